"""Tests of a server's draws against their log-probabilities, during a run.

Both bet against the server. If the replies are draws at the requested temperature, the expected wealth stays at its
initial 1, so the probability that it ever exceeds 1/p is at most p (Ville's inequality).

*Repetition.* A further reply equals the first, r, with probability P(r). The bet on that pays 1/P(r), so k equal
replies to a question pay P(r)^-(k - 1): the sum over questions of (k - 1) log P(r), against its expectation. Half of
the wealth is bet on each question, so that a question with different replies does not end the test.

*Temperature.* Among the tokens with log-probabilities, a token is drawn with a probability proportional to
exp(log p / t). The bet is on another temperature, and pays the ratio of the two probabilities.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from robust_eval.model.base import Call, Item
from robust_eval.model.served.probe import Capabilities
from robust_eval.model.served.refusals import REMEDY
from robust_eval.model.served.service_settings import ServiceSettings
from robust_eval.model.served.transport.service import Choice, ServiceResponse
from robust_eval.model.served.transport.token_logprobs import Token, drawn_tokens, logprob_fields

REQUESTED_LOGPROBS = 20
"""Number of requested log-probabilities a token."""
HARMLESS = {"chat_template_kwargs", "user", "metadata", "store", "service_tier"}
"""Settings of ``extra_body`` that do not change the distribution."""
IMPOSSIBLE = -1000.0
"""Lower bound of log-probabilities; placeholders of servers lie below."""
QUESTIONS = 30
"""Number of questions whose draws at the highest temperature are tested."""
CERTAIN = -math.log(1e-9)
"""Log wealth at which the draws differ from those requested."""
ALTERNATIVES = (0.25, 0.5, 0.7, 1.0, 1.5, 2.0)
"""Alternative temperatures of the bets."""
MIN_RATIO = 1.3
"""Minimum ratio of an alternative and the requested temperature, or of their inverses."""


@dataclass
class _WatchedQuestion:
    first: tuple[bytes, ...] | None = None
    wealth: float = 0.0
    """Logarithm of the wealth; −∞ after a different reply."""


@dataclass
class DrawWatch:
    """Test of a server's draws for the first questions, with the ``top`` log-probabilities of each position.

    The log-probabilities, which ``body`` requests, are ``tempered`` or the model's own.
    """

    tempered: bool
    top: int
    body: dict[str, Any]
    questions: dict[Item, _WatchedQuestion] = field(default_factory=dict)
    _bets: dict[float, float] = field(default_factory=dict)
    _temperature: float = math.nan

    def covers(self, call: Call) -> bool:
        """Return whether a call's draws are tested: those at the highest temperature of one of the questions."""
        request = call.request
        if not call.temperature > 0 or call.temperature != max(request.temperatures):
            return False
        if request.reasoning is not None or request.signs:
            return False
        if math.isnan(self._temperature):
            self._temperature = call.temperature
            self._bets = {t: 0.0 for t in ALTERNATIVES if abs(math.log(t / call.temperature)) >= math.log(MIN_RATIO)}
        is_watched = request.item in self.questions
        return call.temperature == self._temperature and (is_watched or len(self.questions) < QUESTIONS)

    def add(self, call: Call, choices: Sequence[Choice]) -> None:
        """Add the replies to a call to the test."""
        question = self.questions.setdefault(call.request.item, _WatchedQuestion())
        for choice in choices:
            tokens = choice.tokens
            if not tokens or not all(IMPOSSIBLE < token.logprob < 1e-3 for token in tokens):
                continue
            if drawn_tokens(tokens, choice.text) is None:
                question.wealth, self._bets = -math.inf, {}
                continue
            self._repeat(question, choice.text, tokens)
            if not self.tempered:
                self._bet(tokens)

    def repetition(self) -> float:
        """Return the log wealth of the bets that the server repeats its replies."""
        return sum(
            math.log(0.5) + _log_sum([0.0, question.wealth])
            for question in self.questions.values()
            if question.first is not None
        )

    def drawn_as_at(self) -> float | None:
        """Return the likely temperature of the server's draws; None if it may be the requested one."""
        if not self._bets:
            return None
        best = max(self._bets, key=lambda t: self._bets[t])
        return best if self._bets[best] - math.log(len(self._bets)) >= CERTAIN else None

    def _repeat(self, question: _WatchedQuestion, text: str, tokens: Sequence[Token]) -> None:
        path = (text.encode(), *(token.text for token in tokens))
        if question.first is None:
            question.first = path
        elif path != question.first:
            question.wealth = -math.inf
        else:
            question.wealth -= sum(self._max_logprob(token) for token in tokens)

    def _max_logprob(self, token: Token) -> float:
        """Return the maximum log-probability of a drawn token at the sampling temperature."""
        if self.tempered or self._temperature == 1:
            return min(token.logprob, 0.0)
        largest = [value for value in token.top[: self.top] if value > IMPOSSIBLE]
        if not largest or token.logprob < largest[-1]:
            largest.append(token.logprob)
        return token.logprob / self._temperature - _log_sum([value / self._temperature for value in largest])

    def _bet(self, tokens: Sequence[Token]) -> None:
        for token in tokens:
            largest = [value for value in token.top[: self.top] if value > IMPOSSIBLE]
            if len(largest) < 2 or token.logprob < largest[-1]:
                continue
            requested = token.logprob / self._temperature - _log_sum([value / self._temperature for value in largest])
            for t in self._bets:
                self._bets[t] += token.logprob / t - _log_sum([value / t for value in largest]) - requested


def draw_watch(settings: ServiceSettings, capabilities: Capabilities) -> DrawWatch | None:
    """Return the test of a server's draws; None without log-probabilities, or if settings or the server change the
    distribution.
    """
    changed = settings.generation.changes_distribution or not HARMLESS.issuperset(settings.extra_body or {})
    if changed or not capabilities.truncation_off or not capabilities.top_logprobs:
        return None
    top = min(REQUESTED_LOGPROBS, capabilities.top_logprobs)
    return DrawWatch(capabilities.tempered_logprobs, top, logprob_fields(settings.chat, top))


def without_logprobs(response: ServiceResponse) -> ServiceResponse:
    """Return the response without the log-probabilities that only the test of draws needs."""
    return response._replace(choices=[choice._replace(tokens=None) for choice in response.choices])


def _log_sum(values: Sequence[float]) -> float:
    """Return the logarithm of the sum of exp(value)."""
    return float(np.logaddexp.reduce(values))


def repeats_itself(settings: ServiceSettings, temperature: float) -> str:
    """Return the message that replies are identical too often for independent draws, with a remedy."""
    return (
        f"{settings.server} repeats itself: its replies at temperature {temperature:g} agree so often that "
        "independent draws with these log-probabilities would do so in fewer than one in a billion runs; "
        f"{REMEDY}, and set another store.folder, because this one contains its replies"
    )


def draws_otherwise(settings: ServiceSettings, temperature: float, drawn_at: float) -> str:
    """Return the message that replies are drawn as if at another temperature, with a remedy."""
    return (
        f"according to its log-probabilities, {settings.server} draws at temperature {temperature:g} as if it were "
        f"about {drawn_at:g}. It caps or ignores the temperature, or silently truncates the distribution: set "
        f"model.{f'highest_temperature={drawn_at:g}' if drawn_at < temperature else 'takes_temperature=false'}"
    )
