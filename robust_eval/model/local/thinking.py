"""Reasoning of local models: before each answer (``model.thinking_budget``), or as traces of their own, with answers
after them (``sampler=thinking``, docs/thinking.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from robust_eval.model.base import Completion, Reply, Request
from robust_eval.model.local.batching import in_order
from robust_eval.model.local.prompt_encoder import ChatTemplate, PromptEncoder

_AFTER = "\n\n"
"""What stands between the end of thinking and the answer, as templates write it."""
_APART = 1_000_003
"""Seeds of answers to different thoughts are so far apart; answers to the same thought would be the same otherwise."""


@dataclass(frozen=True)
class ThoughtFormat:
    """How a model thinks: at most ``budget`` tokens, up to the tag ``end``, which is written for it if it goes on."""

    tokenizer: Any
    budget: int
    end: str

    @property
    def start(self) -> str:
        """The tag that opens the reasoning: the end without its slash."""
        return self.end.replace("/", "", 1)

    def opened(self, prompt: str) -> str:
        """Return the text of a prompt after which a model thinks, or with a budget of 0 answers at once.

        Some templates open the reasoning, others do not.
        """
        opened = prompt if prompt.rstrip().endswith(self.start) else f"{prompt}{self.start}\n"
        return opened if self.budget else f"{opened}\n{self.end}{_AFTER}"

    def request(self, request: Request) -> Request:
        """Return the request for the thoughts that lead to the answers of a request, one for each of them."""
        return replace(request, max_new_tokens=self.budget, top_logprobs=0, matcher=None, first_line=False, whole=True)

    def prompt(self, prompt: Sequence[int], thought: Completion) -> list[int]:
        """Return the tokens after which the model answers: prompt, thought, and the end of thinking."""
        ids = list(thought.token_ids or ())
        if self.end in self._text(ids):
            return [*prompt, *ids]
        if thought.finish_reason == "stop":
            ids = ids[:-1]  # it ended its reply, and not its thought
        return [*prompt, *ids, *self.tokenizer(f"\n{self.end}{_AFTER}", add_special_tokens=False).input_ids]

    def behind(self, prompt: Sequence[int], tokens: Sequence[int]) -> list[int]:
        """Return the tokens after which the model answers: prompt, the tokens of a thought, and the end of thinking."""
        own_line = "" if self._text(tokens).endswith("\n") else "\n"
        end = self.tokenizer(f"{own_line}{self.end}{_AFTER}", add_special_tokens=False).input_ids
        return [*prompt, *tokens, *end]

    def alone(self, thought: Completion) -> Completion:
        """Return a thought as a reply of its own, of which ``answer_tokens`` stand before the tag that ends it."""
        ids = list(thought.token_ids or ())
        before, ended, _ = self._text(ids).partition(self.end)
        own = len(ids) - (thought.finish_reason == "stop" and not ended)  # it may have ended its reply instead
        while ended and len(self._text(ids[:own])) > len(before):
            own -= 1
        return replace(thought, text=self._text(ids[:own], whole=False), answer_tokens=own)

    def answer(self, request: Request, thought: Completion) -> Request:
        """Return the request for the one answer that follows on a thought, with random numbers of its own."""
        seed = request.seed + _APART * (thought.trial + 1)
        one = replace(request, temperatures=(thought.temperature,), trials=1, first_trial=0, seed=seed)
        return replace(one, matcher=None, whole=True)

    def after(self, answer: Completion, tokens: Sequence[int]) -> Completion:
        """Return an answer with the thought of these tokens, behind which it was given."""
        text = self._text(tokens, whole=False).strip()
        return replace(answer, reasoning=text, reasoning_tokens=len(tokens)) if tokens else answer

    def with_thought(self, answer: Completion, thought: Completion) -> Completion:
        """Return an answer with what was thought before it, in the place of the thought."""
        ids = list(thought.token_ids or ())
        return replace(
            answer,
            trial=thought.trial,
            weight=thought.weight,
            prompt_tokens=thought.prompt_tokens,
            reasoning=self._text(ids, whole=False).split(self.end)[0].strip(),
            reasoning_tokens=len(ids),
        )

    def _text(self, ids: Sequence[int], whole: bool = True) -> str:
        """Return what tokens write, with the special ones if it is the ``whole`` text."""
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=not whole)
        return text


class ThoughtPrompts:
    """Encodes requests for traces alone, and for answers after given traces, and adds the reasoning to the replies."""

    def __init__(self, tokenizer: Any, template: ChatTemplate) -> None:
        self._thinking = ThoughtFormat(tokenizer, 1, template.thinking_end)
        self._opened, self._at_once = (
            PromptEncoder(tokenizer, "chat", template, replace(self._thinking, budget=budget).opened)
            for budget in (1, 0)
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
