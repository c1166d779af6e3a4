"""Calls to a server: their bodies and seeds, the answers that come of them, and the count of failed ones."""

import codecs
import hashlib
import logging
import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from robust_eval.model.base import Call, Completion, Item, Reply, Request
from robust_eval.model.logprobs import fault
from robust_eval.model.served.limits.retries import Attempts
from robust_eval.model.served.probe import Capabilities
from robust_eval.model.served.service_settings import ServiceSettings
from robust_eval.model.served.transport.service import Choice, ServiceResponse, UnansweredError
from robust_eval.model.served.transport.token_logprobs import Token
from robust_eval.reader.markup import without_reasoning
from robust_eval.runtime.finish_reasons import FILTER
from robust_eval.runtime.text import printable

_MOST_SEEDS = 2**31 - 2**20


def seed_of(call: Call) -> int:
    """Return the seed of a call, with which each of its answers has the seed that it would have alone.

    Servers give choice i of a request with seed s what seed s + i gives; so the seed of a trial is that of the first
    one of its temperature plus its number. Those that are asked together follow on one another for that.
    """
    request = call.request
    name = f"{request.seed}\0{request.question_id}\0{request.rewrite}\0{call.temperature!r}"
    first = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest()) % _MOST_SEEDS
    return first + call.trials[0]


def completions(call: Call, trials: Sequence[int], answered: ServiceResponse, style: str) -> list[Completion]:
    """Return the answers that came to these trials; the prompt is counted with the first of them, as
    services bill it.
    """
    number = len(answered.choices)
    found = []
    for place, (trial, choice) in enumerate(zip(trials, answered.choices, strict=False)):  # some send more than asked
        share, rest = divmod(answered.completion_tokens, number)
        thought, more = divmod(answered.reasoning_tokens or 0, number)
        found.append(
            _completion(
                call,
                trial,
                choice,
                style,
                prompt_tokens=0 if place else answered.prompt_tokens,
                completion_tokens=len(choice.tokens) if choice.tokens else share + (rest if not place else 0),
                reasoning_tokens=None if answered.reasoning_tokens is None else thought + (more if not place else 0),
                cached_tokens=None if answered.cached_tokens is None else 0 if place else answered.cached_tokens,
                served_model=answered.served_model,
                system_fingerprint=answered.system_fingerprint,
            )
        )
    return found


def _completion(
    call: Call,
    trial: int,
    choice: Choice,
    style: str,
    prompt_tokens: int,
    completion_tokens: int,
    reasoning_tokens: int | None,
    cached_tokens: int | None,
    served_model: str | None,
    system_fingerprint: str | None,
) -> Completion:
    text, end, broken = _answer(choice.text, style, call.request.first_line)
    outcome = None
    if choice.finish_reason == FILTER:
        outcome = "filtered_reply"
    elif choice.refused:
        outcome = "refused"
    tokens = choice.tokens
    spoken = without_reasoning(text)
    if tokens and (choice.reasoning or spoken != text.strip()):
        tokens = _spoken(tokens, spoken or "")
        end = len(spoken or "")
    return Completion(
        temperature=call.temperature,
        trial=trial,
        text=text,
        weight=1 / call.request.trials,
        token_logprobs=[token.logprob for token in tokens] if tokens else None,
        top_logprobs=[token.top for token in tokens] if tokens else None,
        answer_tokens=_carrying(tokens, end) if tokens else None,
        finish_reason="stop" if broken else choice.finish_reason or None,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        outcome=outcome,
        reasoning=choice.reasoning,
        reasoning_tokens=reasoning_tokens,
        cached_tokens=cached_tokens,
        served_model=served_model,
        system_fingerprint=system_fingerprint,
    )


def unanswered(call: Call, trial: int, outcome: str) -> Completion:
    """Return an answer that did not come."""
    return Completion(
        temperature=call.temperature,
        trial=trial,
        text="",
        weight=1 / call.request.trials,
        outcome=outcome,
    )


def _answer(text: str, style: str, first_line: bool) -> tuple[str, int, bool]:
    """Return what a reply answers: its first line (in a conversation: that is not blank); where in the reply that ends,
    0 if it is blank; and whether a line break ended it.
    """
    if not first_line:
        return text.strip(), len(text.rstrip()), False
    start = len(text) - len(text.lstrip()) if style == "chat" else 0
    line, broken, _ = text[start:].partition("\n")
    return line.strip(), start + len(line.rstrip()) if line.strip() else 0, bool(broken)


def _spoken(tokens: Sequence[Token], text: str) -> list[Token] | None:
    """Return the tokens that write a text behind the reasoning; None where they do not tell."""
    ends = list(accumulate(len(token.text) for token in tokens))
    place = b"".join(token.text for token in tokens).rfind(text.encode())
    return [token for token, end in zip(tokens, ends, strict=True) if end > place] if text and place >= 0 else None


def _carrying(tokens: Sequence[Token], end: int) -> int:
    """Return how many of the leading tokens carry the first ``end`` characters of the text that they write."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a character may be written by several
    written = 0
    for number, token in enumerate(tokens):
        if written >= end:
            return number
        written += len(decoder.decode(token.text))
    return len(tokens) if tokens and tokens[-1].text else max(0, len(tokens) - 1)


def request_body(settings: ServiceSettings, can: Capabilities, call: Call) -> dict[str, Any]:
    """Return what is sent beside the prompt."""
    request = call.request
    body = truncation(settings, can) | extra_body(settings) | {can.limit: settings.reply_tokens(request.max_new_tokens)}
    body |= settings.thought(request)
    if not math.isnan(call.temperature):
        body["temperature"] = call.temperature
    if call.temperature != 0 and can.takes_seed:
        body["seed"] = seed_of(call)
    if len(call.trials) > 1:
        body["n"] = len(call.trials)
    top = min(request.top_logprobs, can.top_logprobs)
    if top:
        chat = settings.prompt_style == "chat"
        body |= {"logprobs": True, "top_logprobs": top} if chat else {"logprobs": top}
    elif request.first_line and settings.prompt_style == "plain":
        body["stop"] = ["\n"]
    return body


def truncation(settings: ServiceSettings, can: Capabilities) -> dict[str, Any]:
    """Return the part of the distribution that is sampled, as far as the server lets it be said."""
    own = settings.generation
    if own.preset == "repository":
        return {}
    body = dict(can.truncation_off)
    for name, off in (("top_p", 1.0), ("top_k", 0), ("min_p", 0.0), ("repetition_penalty", 1.0)):
        if getattr(own, name) != off:
            body[name] = getattr(own, name)
    return body


def extra_body(settings: ServiceSettings) -> dict[str, Any]:
    """Return what the settings say that every request holds."""
    return {**(settings.extra_body or {}), **settings.thinking()}


log = logging.getLogger(__name__)

FEW = 10
"""Questions from which on the share of those that failed is judged."""


def by_prefix(request: Request) -> tuple[Any, ...]:
    """Return what requests are ordered by: prompts that begin alike follow one another, and a service finds in its
    cache what it has just read.
    """
    prompt = request.prompt
    return prompt.system, prompt.exemplars, prompt.question


class Intake:
    """Check of the answers of one run, and count of the questions of which an answer failed."""

    def __init__(self, settings: ServiceSettings, attempts: Attempts) -> None:
        self.answered: set[Item] = set()
        self.failed: set[Item] = set()
        self.unknown_ends: list[str] = []
        self._settings = settings
        self._attempts = attempts

    def completions(self, call: Call, answered: ServiceResponse, needed: int) -> list[Completion]:
        """Return the answers to a call, or the first of them, with ``needed`` log-probabilities a token; raises
        UnansweredError where log-probabilities cannot be believed.
        """
        self._note_ends(answered)
        found = completions(call, call.trials, answered, self._settings.prompt_style)
        for one in found:
            silent = one.outcome is not None or not one.text  # of what is no answer none are needed
            logprobs = one.token_logprobs, one.top_logprobs, one.answer_tokens
            if wrong := fault(*logprobs, 0 if silent else needed, whole_is_enough=False):
                raise UnansweredError("garbled", f"the server sent {wrong}")
        return found

    def reply(self, request: Request, completions: list[Completion]) -> Reply:
        """Return answers as a reply to their request, and count it."""
        self.answered.add(request.item)
        if any(completion.outcome == "error" for completion in completions):
            self.failed.add(request.item)
        return Reply(request, completions, share=1.0 if request.enumeration else len(completions) / request.answers)

    def failure(self, request: Request, problem: UnansweredError) -> str:
        """Return the outcome of an answer that did not come, and log an error."""
        if problem.kind == "filtered":
            return "filtered_prompt"
        log.warning("question %s: %s", request.question_id, problem)
        return "error"

    async def judge(self, problem: UnansweredError) -> None:
        """End the run where too many questions failed, in all processes that ask the service."""
        self.judge_totals(*await self._attempts.limiter.counted(len(self.answered), len(self.failed)), problem)

    def judge_totals(self, answered: int, failed: int, problem: UnansweredError) -> None:
        """End the run where too many of these questions failed."""
        if answered >= FEW and failed > self._settings.max_error_rate * answered:
            self._attempts.end(
                f"an answer to {failed} of {answered} questions failed, more than "
                f"model.max_error_rate={self._settings.max_error_rate:g}; the last: {problem}"
            )

    def _note_ends(self, answered: ServiceResponse) -> None:
        """Warn once of each word for the end of a reply that is in no dialect."""
        for word in {printable(choice.unknown_reason[:40]) for choice in answered.choices if choice.unknown_reason}:
            if word not in self.unknown_ends and len(self.unknown_ends) < FEW:
                self.unknown_ends.append(word)
                log.warning(
                    "%s ends replies with finish_reason=%r, which is not known: they are taken as whole",
                    *(self._settings.server, word),
                )
