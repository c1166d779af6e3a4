"""Prompts as the token ids that a causal language model reads."""

from collections.abc import Sequence
from typing import Any

from robust_eval.model.base import Request
from robust_eval.prompt.prompt import Prompt

TODAY = "26 Jul 2024"
"""The date for chat templates that write one (Llama 3): today's would change the answers from day to day."""


class PromptEncoder:
    """Encodes prompts with a tokenizer of transformers, as plain text or (``chat``) by its chat template."""

    def __init__(self, tokenizer: Any, prompt_style: str) -> None:
        self._tokenizer = tokenizer
        self._chat = prompt_style == "chat"
        self._system_role = self._chat and _takes_system_role(tokenizer)

    def __call__(self, prompt: Prompt) -> list[int]:
        if not self._chat:
            text, special = prompt.text(), True
        else:  # the template writes the special tokens itself
            messages = prompt.messages(self._system_role)
            options = {"tokenize": False, "add_generation_prompt": True, "date_string": TODAY}
            text = self._tokenizer.apply_chat_template(messages, **options)
            special = False
        return list(self._tokenizer(text, add_special_tokens=special).input_ids)

    def by_length(self, requests: Sequence[Request]) -> list[tuple[list[int], Request]]:
        """Return the requests with their prompts' ids, the shortest first."""
        return sorted(((self(request.prompt), request) for request in requests), key=lambda pair: len(pair[0]))


def _takes_system_role(tokenizer: Any) -> bool:
    """Tell whether the chat template shows a system line; some raise, and some drop it in silence."""
    from jinja2 import TemplateError

    messages = Prompt("SYSTEM LINE", (), "question").messages()
    try:
        return "SYSTEM LINE" in tokenizer.apply_chat_template(messages, tokenize=False)
    except TemplateError:
        return False
