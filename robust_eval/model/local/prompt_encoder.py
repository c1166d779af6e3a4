"""Encoder of prompts as the token ids of a causal language model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from robust_eval.model.base import Request
from robust_eval.model.local.batching import in_order
from robust_eval.prompt.prompt import Prompt

TEMPLATE_DATE = "26 Jul 2024"
"""Date for chat templates that write one (Llama 3): the current date would change the answers every day."""


@dataclass
class ChatTemplate:
    """Parameters of a model's chat template."""

    enable_thinking: bool | None = None
    """For templates that can turn thinking on and off (Qwen3); null: as the template has it by itself."""
    system_role: bool | None = None
    """Whether the system line is a message of its own; false: it opens the first message of the user. null: wherever
    the template shows such a message."""
    date: str = TEMPLATE_DATE
    """What templates are told that write today's date."""
    thinking_end: str = "</think>"
    """The tag with which the model ends its reasoning. It begins with the same tag without the slash."""

    def __post_init__(self) -> None:
        if "/" not in self.thinking_end:
            raise ValueError(f"chat_template.thinking_end must be a tag with a slash, not {self.thinking_end}")


class PromptEncoder:
    """Encoder of prompts with a tokenizer of transformers, as plain text or (``chat``) by its chat template.

    ``opened`` opens the reasoning of a reasoning model in the text of a conversation.
    """

    def __init__(
        self,
        tokenizer: Any,
        prompt_style: str,
        template: ChatTemplate | None = None,
        opened: Callable[[str], str] = str,
    ) -> None:
        self._tokenizer = tokenizer
        self._chat = prompt_style == "chat"
        self._opened = opened
        template = template or ChatTemplate()
        self._options: dict[str, Any] = {"tokenize": False, "add_generation_prompt": True, "date_string": template.date}
        if template.enable_thinking is not None:
            self._options["enable_thinking"] = template.enable_thinking
        has_system_role = (
            _shows_system_role(tokenizer) if self._chat and template.system_role is None else template.system_role
        )
        self._system_role = self._chat and bool(has_system_role)

    def __call__(self, prompt: Prompt) -> list[int]:
        if not self._chat:
            text, special = prompt.text(), True
        else:  # the template writes the special tokens itself
            messages = prompt.messages(self._system_role)
            text = self._opened(self._tokenizer.apply_chat_template(messages, **self._options))
            special = False
        return list(self._tokenizer(text, add_special_tokens=special).input_ids)

    def in_order(self, requests: Sequence[Request]) -> list[tuple[list[int], Request]]:
        """Return the requests with their prompts' ids, in the order of evaluation."""
        return in_order([(self(request.prompt), request) for request in requests])


def _shows_system_role(tokenizer: Any) -> bool:
    """Return whether the chat template shows a system message; some raise, and some drop it silently."""
    from jinja2 import TemplateError

    messages = Prompt("SYSTEM LINE", (), "question").messages()
    try:
        return "SYSTEM LINE" in tokenizer.apply_chat_template(messages, tokenize=False)
    except TemplateError:
        return False
