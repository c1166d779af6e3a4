"""Answers to one question that are drawn with the log-probabilities of their tokens, and checked by these."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from robust_eval.model.base import Call, Completion, Matcher, Request, calls
from robust_eval.model.served.completions import completions
from robust_eval.model.served.exact.continuation import Ask, LogprobRequest, LogprobSettings
from robust_eval.model.served.transport.service import UnansweredError
from robust_eval.model.served.transport.token_logprobs import Position, TopKToken
from robust_eval.model.tail_bounds import DEFAULT_VOCABULARY_SIZE, TokenBounds, precision, token_bounds
from robust_eval.model.token_texts import Mask, TokenTexts
from robust_eval.runtime.finish_reasons import LENGTH


@dataclass(frozen=True)
class TopKCoverage:
    """The ``shown`` likeliest tokens, which may be all that there are (``whole``); fewer where several that write the
    same were named as one.
    """

    shown: int
    whole: bool = False

    @property
    def most(self) -> int:
        """How many tokens the model has at most."""
        return self.shown if self.whole else DEFAULT_VOCABULARY_SIZE

    def bounds(self, tokens: Sequence[TopKToken], temperatures: Sequence[float]) -> TokenBounds:
        """Return what the tokens of one place weigh at each temperature, at least and at most, and all others."""
        logprobs = [token.logprob for token in tokens]
        largest = len(tokens) >= self.shown and not any(token.unnamed for token in tokens)
        return token_bounds(logprobs, temperatures, self.most, precision(logprobs), largest)


class TokenOutcomes(NamedTuple):
    """Tokens by what they make of an answer that began in some way, each (K,).

    After those that are ``settled`` it is right whatever follows, or ended and right (``right``), or ended and not
    (``right`` is False). The others leave it open; after those of them that are ``right`` it is right if it ends there,
    and with those that are ``begun`` an accepted answer has begun.
    """

    settled: Mask
    right: Mask
    begun: Mask


def classify_topk_tokens(
    matcher: Matcher, text: bytes, tokens: Sequence[TopKToken], last: bool, chat: bool
) -> TokenOutcomes:
    """Return the kinds of tokens after an answer that began with ``text``; no token follows after the ``last`` one.

    An answer ends with its first line. In a conversation (``chat``) that is the first one that is not blank.
    """
    texts = TokenTexts([token.text for token in tokens])
    right, closed, begun = matcher.next_tokens(text.lstrip() if chat else text, texts)
    ends = np.array([token.ends for token in tokens], dtype=bool)
    breaks = texts.breaks_line
    if chat and not text.strip():  # lines are blank so far
        breaks = breaks & np.array([bool(token.text.split(b"\n", 1)[0].strip()) for token in tokens], dtype=bool)
        for index in np.flatnonzero(texts.breaks_line & ~breaks):
            right[index] = False  # what follows its line breaks is judged with what comes after it
    ended = np.ones(len(tokens), dtype=bool) if last else ends | breaks
    begins = np.zeros(len(tokens), dtype=bool)
    begins[begun] = True
    return TokenOutcomes(ended | (closed & right), right, begins & ~ended)


CHANGED = 0.08
"""By how much log-probabilities of one place may be further apart at one time than at another: half precision is not
exact."""
FAR_ENOUGH = 0.5
"""How far apart they have to be for that to be told."""


@dataclass(frozen=True)
class LogprobClient:
    """How the server is asked: with which ``settings``; for draws with which ``body``, with so many ``choices`` in one
    request.
    """

    ask: Ask
    settings: LogprobSettings
    body: Callable[[Call], Mapping[str, Any]]
    choices: int

    @property
    def coverage(self) -> TopKCoverage:
        return TopKCoverage(self.settings.top_logprobs, self.settings.whole_vocabulary)


@dataclass(frozen=True)
class Draw:
    """One answer that was drawn: what was said of its places, and whether the length ended it."""

    completion: Completion
    places: Sequence[Position]
    cut: bool


async def drawn(
    request: Request, trials: range, client: LogprobClient, temperatures: Sequence[float], root: Position
) -> dict[float, list[Draw]]:
    """Return answers drawn at each of these temperatures, with the numbers ``trials``; raises UnansweredError, also
    where the server says otherwise of the first place than it did.
    """
    plain = replace(
        request,
        temperatures=tuple(temperatures),
        first_trial=trials.start,
        trials=trials.stop,
        top_logprobs=client.settings.top_logprobs,
        enumeration=None,
    )
    path, asked = client.settings.asked(request.prompt)
    style = "chat" if client.settings.chat else "plain"
    found: dict[float, list[Draw]] = {}
    for call in calls(plain, client.choices):
        left = call.trials
        while left:
            part = call._replace(trials=left)
            most = len(left) * request.max_new_tokens
            body = {**client.body(part), **asked}
            answered = await client.ask.positions(LogprobRequest(client.settings, path, body, 0, most))
            came = completions(part, left, answered, style)
            for completion, places in zip(came, answered.positions, strict=False):
                _refuse_change(root, places)
                cut = completion.finish_reason == LENGTH
                found.setdefault(call.temperature, []).append(Draw(completion, places, cut))
            left = left[len(came) :]
    return found


def _refuse_change(root: Position, places: Sequence[Position]) -> None:
    """UnansweredError where the log-probabilities of the first place are others than they were: those after the
    temperature are closer together, or further apart.
    """
    if not places:
        raise UnansweredError("garbled", "the server sent no log-probabilities, and they are needed")
    before, now = ({token.name: token.logprob for token in each.largest} for each in (root, places[0]))
    both = [name for name in before if name in now and math.isfinite(before[name]) and math.isfinite(now[name])]
    if len(both) < 2:
        return
    apart = before[both[0]] - before[both[-1]]
    if apart > FAR_ENOUGH and abs((now[both[0]] - now[both[-1]]) / apart - 1) > CHANGED:
        raise UnansweredError(
            "garbled",
            "the server sent other log-probabilities of the same place than before: are they after the temperature?",
        )
