"""Requests for thoughts alone, and for answers behind thoughts that are given, as prompts of a model that is loaded
here (docs/thinking.md).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from robust_eval.model.base import Reply, Request
from robust_eval.model.local.batching import in_order
from robust_eval.model.local.prompt_encoder import ChatTemplate, PromptEncoder
from robust_eval.model.local.thinking import Thinking


class Thoughts:
    """Encodes such requests with a tokenizer, and says in the replies what was thought."""

    def __init__(self, tokenizer: Any, template: ChatTemplate) -> None:
        self._thinking = Thinking(tokenizer, 1, template.thinking_end)
        self._opened, self._at_once = (
            PromptEncoder(tokenizer, "chat", template, replace(self._thinking, budget=budget)) for budget in (1, 0)
        )

    @property
    def stop(self) -> tuple[bytes, ...]:
        """What ends a thought: the tag."""
        return (self._thinking.end.encode(),)

    def prompt(self, request: Request) -> list[int]:
        """Return the tokens behind which a model thinks, or answers."""
        tokens = _tokens(request)
        if tokens == ():
            return self._at_once(request.prompt)
        opened = self._opened(request.prompt)
        return opened if tokens is None else self._thinking.behind(opened, tokens)

    def in_order(self, requests: Sequence[Request]) -> list[tuple[list[int], Request]]:
        """Return requests with their prompts' ids, in the order in which they are answered."""
        return in_order([(self.prompt(request), request) for request in requests])

    def read(self, reply: Reply) -> Reply:
        """Return a reply whose thoughts are without what ends them, and whose answers have the thought before them."""
        tokens = _tokens(reply.request)
        if tokens is None:
            return reply._replace(completions=[self._thinking.alone(thought) for thought in reply.completions])
        return reply._replace(completions=[self._thinking.after(answer, tokens) for answer in reply.completions])


def alone(requests: Sequence[Request]) -> bool:
    """Tell whether requests ask for thoughts, and not for the answers behind them; no block mixes the two."""
    return _tokens(requests[0]) is None


def by_question(requests: Sequence[Request]) -> list[list[Request]]:
    """Return the requests for answers that are written together: those about a question."""
    found: dict[str, list[Request]] = {}
    for request in requests:
        found.setdefault(request.question_id, []).append(request)
    return list(found.values())


def _tokens(request: Request) -> tuple[int, ...] | None:
    assert request.thought is not None
    return request.thought.tokens
