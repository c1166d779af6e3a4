"""Calls to a server: bodies, seeds, completions, and the count of failed questions."""

import codecs
import hashlib
import logging
import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from robust_eval.answer import SERVED
from robust_eval.model.base import Call, Completion, Item, Reply, Request
from robust_eval.model.logprobs import fault
from robust_eval.model.served.limits.retries import Attempts
from robust_eval.model.served.probe import Capabilities
from robust_eval.model.served.service_settings import ServiceSettings
from robust_eval.model.served.structured import SCHEMA, SCHEMA_TOKENS, restricted_sign, restriction
from robust_eval.model.served.transport.service import Choice, ServiceResponse, UnansweredError
from robust_eval.model.served.transport.token_logprobs import Token, drawn_tokens, logprob_fields
from robust_eval.reader.reasoning import without_reasoning
from robust_eval.runtime.finish_reasons import FILTER
from robust_eval.runtime.text import printable

_SEEDS = 2**31 - 2**20


def seed_of(call: Call) -> int:
    """Return the seed of a call: each of its answers then has the seed that a call of its own would have.

    Choice i of a request with seed s is the answer to seed s + i; so the seed of a trial is that of the first one at
    its temperature plus its number, and the trials of a call are consecutive.
    """
    request = call.request
    name = f"{request.seed}\0{request.question_id}\0{request.variant}\0{call.temperature!r}"
    first = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest()) % _SEEDS
    return first + call.trials[0]


def completions(call: Call, trials: Sequence[int], response: ServiceResponse, style: str) -> list[Completion]:
    """Return a call's completions in these trials; the prompt is counted with the first, as services bill it."""
    number = len(response.choices)
    answers: list[Completion] = []
    for trial, choice in zip(trials, response.choices, strict=False):  # some send too many
        first = not answers
        tokens = len(choice.tokens) if choice.tokens else _share(response.completion_tokens, number, first)
        usage: dict[str, Any] = {
            "prompt_tokens": response.prompt_tokens if first else 0,
            "completion_tokens": tokens,
            "reasoning_tokens": _share(response.reasoning_tokens, number, first),
            "cached_tokens": response.cached_tokens if first or response.cached_tokens is None else 0,
        }
        usage |= {column: getattr(response, column) for column in SERVED}
        answers.append(_completion(call, trial, choice, style)._replace(**usage))
    return answers


def _share(tokens: int | None, number: int, first: bool) -> int | None:
    """Return one completion's share of ``number`` in a count of tokens; the first one has the rest."""
    return None if tokens is None else tokens // number + (tokens % number if first else 0)


def _completion(call: Call, trial: int, choice: Choice, style: str) -> Completion:
    text, end, broken = _answer(choice.text, style, call.request.first_line)
    text = restricted_sign(choice.text, call.request.signs) or text
    outcome = "filtered_reply" if choice.finish_reason == FILTER else "refused" if choice.refused else None
    drawn = drawn_tokens(choice.tokens, choice.text, call.temperature == 0) if choice.tokens else None
    tokens = drawn or choice.tokens
    answer = without_reasoning(text) or ""
    if tokens and (choice.reasoning or answer != text.strip()):
        tokens, end = _answer_tokens(tokens, answer), len(answer)
    return Completion(
        temperature=call.temperature,
        trial=trial,
        text=text,
        token_logprobs=[token.logprob for token in tokens] if tokens and drawn else None,
        top_logprobs=[token.top for token in tokens] if tokens else None,
        answer_tokens=_carrying(tokens, end) if tokens else None,
        finish_reason="stop" if broken else choice.finish_reason or None,
        outcome=outcome,
        reasoning=choice.reasoning,
    )


def unanswered(call: Call, trial: int, outcome: str) -> Completion:
    """Return the completion in place of an answer that did not come."""
    return Completion(call.temperature, trial, "", outcome=outcome)


def _answer(text: str, style: str, first_line: bool) -> tuple[str, int, bool]:
    """Return the answer of a completion, its first line (in a conversation: the first that is not blank); the end of
    the answer in the reply, 0 if it is blank; and whether a line break ended it.
    """
    if not first_line:
        return text.strip(), len(text.rstrip()), False
    start = len(text) - len(text.lstrip()) if style == "chat" else 0
    line, broken, _ = text[start:].partition("\n")
    return line.strip(), start + len(line.rstrip()) if line.strip() else 0, bool(broken)


def _answer_tokens(tokens: Sequence[Token], text: str) -> list[Token] | None:
    """Return the tokens of a completion's text after the reasoning; None if they do not contain it."""
    ends = list(accumulate(len(token.text) for token in tokens))
    start = b"".join(token.text for token in tokens).rfind(text.encode())
    return [token for token, end in zip(tokens, ends, strict=True) if end > start] if text and start >= 0 else None


def _carrying(tokens: Sequence[Token], end: int) -> int:
    """Return the number of a completion's leading tokens with the first ``end`` characters of their text."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a character may have several tokens
    written = 0
    for number, token in enumerate(tokens):
        if written >= end:
            return number
        written += len(decoder.decode(token.text))
    return len(tokens) if tokens and tokens[-1].text else max(0, len(tokens) - 1)


def request_body(settings: ServiceSettings, capabilities: Capabilities, call: Call) -> dict[str, Any]:
    """Return the body of a call's request, without the prompt."""
    request = call.request
    body = truncation(settings, capabilities) | extra_body(settings)
    body |= {capabilities.limit: settings.reply_tokens(request.max_new_tokens), **settings.reasoning_parameter(request)}
    if request.signs:
        body |= restriction(capabilities.structured, request.signs)
        body[capabilities.limit] += SCHEMA_TOKENS if capabilities.structured == SCHEMA else 0
    if not math.isnan(call.temperature):
        body["temperature"] = call.temperature
    if call.temperature != 0 and capabilities.takes_seed:
        body["seed"] = seed_of(call)
    if len(call.trials) > 1:
        body["n"] = len(call.trials)
    top = min(request.top_logprobs, capabilities.top_logprobs)
    if top:
        body |= logprob_fields(settings.chat, top)
    elif request.first_line and not settings.chat:
        body["stop"] = ["\n"]
    return body


def truncation(settings: ServiceSettings, capabilities: Capabilities) -> dict[str, Any]:
    """Return the truncation settings of a request's body, as the server accepts them."""
    generation = settings.generation
    if generation.preset == "repository":
        return {}
    body = dict(capabilities.truncation_off)
    for name, off in (("top_p", 1.0), ("top_k", 0), ("min_p", 0.0), ("repetition_penalty", 1.0)):
        if getattr(generation, name) != off:
            body[name] = getattr(generation, name)
    return body


def extra_body(settings: ServiceSettings) -> dict[str, Any]:
    """Return the additional settings in the body of every request."""
    return {**(settings.extra_body or {}), **settings.thinking()}


log = logging.getLogger(__name__)

MIN_QUESTIONS = 10
"""Minimum number of questions for a limit of the share of failed ones."""


def by_prefix(request: Request) -> tuple[Any, ...]:
    """Return the sort key of requests: prompts with a common prefix are consecutive, so that it is in the service's
    cache.
    """
    prompt = request.prompt
    return prompt.system, prompt.exemplars, prompt.question


class Intake:
    """Check of the completions of one run, and count of the questions with a failed answer."""

    def __init__(self, settings: ServiceSettings, attempts: Attempts) -> None:
        self.answered: set[Item] = set()
        self.failed: set[Item] = set()
        self.unknown_ends: list[str] = []
        self._settings = settings
        self._attempts = attempts

    def completions(self, call: Call, response: ServiceResponse, needed: int) -> list[Completion]:
        """Return the completions of a call, or the first of them, with ``needed`` log-probabilities a token; raises
        UnansweredError for invalid log-probabilities.
        """
        self._note_ends(response)
        answers = completions(call, call.trials, response, self._settings.prompt_style)
        for answer in answers:
            without = answer.outcome is not None or not answer.text  # no answer needs no log-probabilities
            logprobs = answer.token_logprobs, answer.top_logprobs, answer.answer_tokens
            if wrong := fault(*logprobs, 0 if without else needed, whole_is_enough=False):
                raise UnansweredError("garbled", f"the server sent {wrong}")
        return answers

    def reply(self, request: Request, completions: list[Completion]) -> Reply:
        """Return completions as a reply to their request, and count it."""
        self.answered.add(request.item)
        if any(completion.outcome == "error" for completion in completions):
            self.failed.add(request.item)
        return Reply(request, completions, share=1.0 if request.enumeration else len(completions) / request.max_answers)

    def failure(self, request: Request, problem: UnansweredError) -> str:
        """Return the outcome of a failed answer; log a warning unless the prompt was filtered."""
        if problem.kind == "filtered":
            return "filtered_prompt"
        log.warning("question %s: %s", request.question_id, problem)
        return "error"

    async def check_failures(self, problem: UnansweredError) -> None:
        """End the run if too many questions failed in all processes together."""
        self.check_totals(*await self._attempts.limiter.counted(len(self.answered), len(self.failed)), problem)

    def check_totals(self, answered: int, failed: int, problem: UnansweredError) -> None:
        """End the run if too many of the ``answered`` questions ``failed``."""
        if answered >= MIN_QUESTIONS and failed > self._settings.max_error_rate * answered:
            self._attempts.end(
                f"requests for {failed} of {answered} questions failed, more than "
                f"model.max_error_rate={self._settings.max_error_rate:g}; the last error: {problem}"
            )

    def _note_ends(self, response: ServiceResponse) -> None:
        """Warn once of each unknown finish reason."""
        for word in {printable(choice.unknown_reason[:40]) for choice in response.choices if choice.unknown_reason}:
            if word not in self.unknown_ends and len(self.unknown_ends) < MIN_QUESTIONS:
                self.unknown_ends.append(word)
                log.warning(
                    "%s returned an unknown finish_reason=%r: such replies count as complete",
                    *(self._settings.server, word),
                )
