"""Tests of a server's draws against the log-probabilities that it gives with them, while a run goes on.

Both bet against the server. Wealth that begins at 1 grows by no bet on the average, if the replies are draws at the
temperature that was asked for. So it ever exceeds 1/p with probability p at most (Ville's inequality).

*Repetition.* A further reply equals the first, r, with probability P(r). The bet that it does pays 1/P(r), so k equal
replies to a question pay P(r)^-(k - 1): the sum over questions of (k - 1) log P(r), against its expectation. Half of
the wealth is bet on each question, so that a question with different replies does not end the test.

*Temperature.* Among the tokens whose log-probabilities are shown, a token is drawn with a probability proportional to
exp(log p / t). The bet is on another temperature, and pays the ratio of the two probabilities.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from robust_eval.model.base import Call, Item
from robust_eval.model.served.probe import Capabilities
from robust_eval.model.served.service_settings import ServiceSettings
from robust_eval.model.served.transport.service import Choice, ServiceResponse
from robust_eval.model.served.transport.token_logprobs import Token

SHOWN = 20
"""Log-probabilities a token that are asked for."""
HARMLESS = {"chat_template_kwargs", "user", "metadata", "store", "service_tier"}
"""Settings of ``extra_body`` that leave the distribution alone."""
IMPOSSIBLE = -1000.0
"""What servers write in place of a log-probability lies below."""
QUESTIONS = 30
"""Questions whose draws at the highest temperature are watched."""
CERTAIN = -math.log(1e-9)
"""Log wealth at which a server does not draw as it is asked to."""
OTHERS = (0.25, 0.5, 0.7, 1.0, 1.5, 2.0)
"""Temperatures that are bet on."""
DIFFERENT = 1.3
"""Ratio of two temperatures from which on one is bet on against the other."""


@dataclass
class _WatchedQuestion:
    first: tuple[bytes, ...] | None = None
    wealth: float = 0.0
    """The logarithm; −∞ once a reply was another."""


@dataclass
class DrawWatch:
    """Draws of the first questions, whose log-probabilities are ``tempered`` or the model's own, ``top`` at a place.

    ``body`` asks for them.
    """

    tempered: bool
    top: int
    body: dict[str, Any]
    questions: dict[Item, _WatchedQuestion] = field(default_factory=dict)
    _bets: dict[float, float] = field(default_factory=dict)
    _temperature: float = math.nan

    def covers(self, call: Call) -> bool:
        """Tell whether the draws of a call are watched: those at the highest temperature of one of the questions."""
        request = call.request
        if not call.temperature > 0 or call.temperature != max(request.temperatures) or request.thought is not None:
            return False
        if math.isnan(self._temperature):
            self._temperature = call.temperature
            self._bets = {t: 0.0 for t in OTHERS if abs(math.log(t / call.temperature)) >= math.log(DIFFERENT)}
        known = request.item in self.questions
        return call.temperature == self._temperature and (known or len(self.questions) < QUESTIONS)

    def add(self, call: Call, choices: Sequence[Choice]) -> None:
        """Take the replies to a call."""
        question = self.questions.setdefault(call.request.item, _WatchedQuestion())
        for tokens in (choice.tokens for choice in choices):
            if tokens and all(IMPOSSIBLE < token.logprob < 1e-3 for token in tokens):
                self._repeat(question, tokens)
                if not self.tempered:
                    self._bet(tokens)

    def repetition(self) -> float:
        """Return the log wealth of the bets on repetition."""
        return sum(
            math.log(0.5) + _log1pexp(question.wealth)
            for question in self.questions.values()
            if question.first is not None
        )

    def drawn_as_at(self) -> float | None:
        """Return the temperature at which replies seem to be drawn, where it is not the one asked for."""
        if not self._bets:
            return None
        best = max(self._bets, key=lambda t: self._bets[t])
        return best if self._bets[best] - math.log(len(self._bets)) >= CERTAIN else None

    def _repeat(self, question: _WatchedQuestion, tokens: Sequence[Token]) -> None:
        path = tuple(token.text for token in tokens)
        if question.first is None:
            question.first = path
        elif path != question.first:
            question.wealth = -math.inf
        else:
            question.wealth -= sum(self._most(token) for token in tokens)

    def _most(self, token: Token) -> float:
        """Return the largest log-probability that a token may have had when it was drawn."""
        if self.tempered or self._temperature == 1:
            return min(token.logprob, 0.0)
        shown = [value for value in token.top[: self.top] if value > IMPOSSIBLE]
        if not shown or token.logprob < shown[-1]:
            shown.append(token.logprob)
        return token.logprob / self._temperature - _log_sum([value / self._temperature for value in shown])

    def _bet(self, tokens: Sequence[Token]) -> None:
        for token in tokens:
            shown = [value for value in token.top[: self.top] if value > IMPOSSIBLE]
            if len(shown) < 2 or token.logprob < shown[-1]:
                continue
            asked = token.logprob / self._temperature - _log_sum([value / self._temperature for value in shown])
            for t in self._bets:
                self._bets[t] += token.logprob / t - _log_sum([value / t for value in shown]) - asked


def draw_watch(settings: ServiceSettings, can: Capabilities) -> DrawWatch | None:
    """Return the watch of a server that ``can`` do so much; None where it gives no log-probabilities, or settings or
    the server itself change what is drawn from.
    """
    own = settings.generation
    changed = own.preset != "full" or own.truncates or own.repetition_penalty != 1 or not can.truncation_off
    if changed or not HARMLESS.issuperset(settings.extra_body or {}) or not can.top_logprobs:
        return None
    top = min(SHOWN, can.top_logprobs)
    chat = settings.prompt_style == "chat"
    return DrawWatch(can.tempered_logprobs, top, {"logprobs": True, "top_logprobs": top} if chat else {"logprobs": top})


def without_logprobs(answered: ServiceResponse) -> ServiceResponse:
    """Return what a server would have answered that was asked for no log-probabilities."""
    return answered._replace(choices=[choice._replace(tokens=None) for choice in answered.choices])


def _log_sum(values: Sequence[float]) -> float:
    most = max(values)
    return most + math.log(sum(math.exp(value - most) for value in values))


def _log1pexp(value: float) -> float:
    """Return log(1 + exp(value)), also of large values."""
    return max(value, 0.0) + math.log1p(math.exp(-abs(value)))
