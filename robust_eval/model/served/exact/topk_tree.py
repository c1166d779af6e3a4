"""The tree of the answers to one question, as far as a server's largest log-probabilities show it.

At each prefix that was asked for, the tokens that end the answer, or settle it, are summed; the others are prefixes
that can be asked for. What is not seen, and what is not asked for, weighs no more than bounds say
(:mod:`robust_eval.model.tail_bounds`), and so the probability of a right answer has bounds that are certain at every
temperature. Between them it is taken for what mostly comes of such answers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from robust_eval.model.base import Curve, Floats, Matcher
from robust_eval.model.enumerated import EnumeratedAnswers
from robust_eval.model.served.exact.topk_draws import TokenOutcomes, TopKCoverage, classify_topk_tokens
from robust_eval.model.served.transport.token_logprobs import Position, TopKToken
from robust_eval.model.tail_bounds import Resolved, TokenBounds
from robust_eval.model.token_texts import incomplete_bytes
from robust_eval.stats.interval import NORMAL_95

RIGHT_ALREADY, RIGHT_BEGUN, RIGHT_OTHERWISE = 0.95, 0.6, 0.03
"""With which probability an answer is taken to be right of which no more is known than that it is right so far, that an
accepted answer has begun in it, or neither."""
STEERS_UP_TO = 1.3
"""The temperature up to which bounds can be close enough to be worth a request."""


@dataclass(eq=False)
class Prefix:
    """The beginning of an answer: its tokens, and what it weighs at T temperatures, at least and likely."""

    tokens: tuple[TopKToken, ...]
    text: bytes
    lower: Floats
    likely: Floats
    logprobs: Floats
    taken: float = RIGHT_OTHERWISE
    """How probable a right answer is taken to be with this beginning."""
    children: dict[int | bytes, "Prefix"] = field(default_factory=dict)


class TopKTree:
    """The tree of answers of at most ``depth`` tokens; what is ``waiting`` can be asked for."""

    def __init__(
        self,
        matcher: Matcher,
        depth: int,
        temperatures: Sequence[float],
        wanted: Sequence[float],
        coverage: TopKCoverage,
        chat: bool,
    ) -> None:
        self.temperatures = tuple(temperatures)
        steers = [place for place, t in enumerate(temperatures) if t in wanted and t <= STEERS_UP_TO]
        self._steers = steers or [0]
        self._matcher, self.depth, self._coverage, self._chat = matcher, depth, coverage, chat
        ones = np.ones(len(self.temperatures))
        self.root = Prefix((), b"", ones, ones, np.zeros((0, len(ones))))
        self.waiting: list[Prefix] = [self.root]
        self.answers: list[EnumeratedAnswers[TopKToken]] = []
        self._resolved = Resolved(0 * ones, 0 * ones)
        self._right = 0 * ones
        self._hidden = 0 * ones

    def heaviest(self, number: int, least: float) -> list[Prefix]:
        """Take out of those that are waiting the heaviest ones, each of which weighs something at a temperature."""
        self.waiting.sort(key=self._weight, reverse=True)
        taken = [prefix for prefix in self.waiting[:number] if self._weight(prefix) >= least]
        self.waiting = self.waiting[len(taken) :]
        return taken

    def _weight(self, prefix: Prefix) -> float:
        return float(prefix.likely[self._steers].max())

    def grow(self, prefix: Prefix, positions: Sequence[Position]) -> None:
        """Add what a server said of the places that follow on a prefix which was taken, with the likeliest token at
        each place before the next. Where that is nothing, what comes of the prefix stays unknown.
        """
        if not positions:
            self._hidden = self._hidden + prefix.likely * prefix.taken
            return
        position, *following = positions
        largest = position.largest
        bounds = self._coverage.bounds(largest, self.temperatures)
        last = len(prefix.tokens) == self.depth - 1
        kinds = classify_topk_tokens(self._matcher, prefix.text, largest, last, self._chat)
        unknown = np.array([token.unnamed for token in largest], dtype=bool)
        kinds = kinds._replace(settled=kinds.settled & ~unknown)
        self._count(prefix, largest, bounds, kinds, last)
        self._hidden = self._hidden + prefix.likely * bounds.likely[unknown].sum(axis=0) * RIGHT_OTHERWISE
        for index in np.flatnonzero(~kinds.settled & ~unknown).tolist():
            taken = RIGHT_ALREADY if kinds.right[index] else RIGHT_BEGUN if kinds.begun[index] else RIGHT_OTHERWISE
            token = largest[index]
            child = Prefix(
                (*prefix.tokens, token),
                prefix.text + token.text,
                prefix.lower * bounds.lower[index],
                prefix.likely * bounds.likely[index],
                np.vstack([prefix.logprobs, _log(bounds.likely[index])]),
                taken,
            )
            prefix.children[token.name] = child
            self.waiting.append(child)
        child_of = prefix.children.get(position.chosen.name)
        if following and child_of is not None:
            self.waiting.remove(child_of)
            self.grow(child_of, following)

    def _count(
        self, prefix: Prefix, tokens: Sequence[TopKToken], bounds: TokenBounds, kinds: TokenOutcomes, last: bool
    ) -> None:
        """Count the tokens that end the answer or settle it, and those that are not seen."""
        settled = self._resolved
        for is_right, sum_of in ((True, settled.right), (False, settled.wrong)):
            mask = kinds.settled & (kinds.right == is_right)
            if not mask.any():
                continue
            sum_of += prefix.lower * bounds.lower[mask].sum(axis=0)
            likely = prefix.likely * bounds.likely[mask].sum(axis=0)
            if is_right:
                self._right = self._right + likely
            place = int(mask.argmax())  # tokens are in order
            token = tokens[place]
            reason = "length" if last else "stop" if token.ends or b"\n" in token.text else "closed"
            path = np.vstack([prefix.logprobs, _log(bounds.likely[place])])
            self.answers.append(EnumeratedAnswers(is_right, likely, (*prefix.tokens, token), reason, path))
        already = self._matcher.right(prefix.text.decode("utf-8", "replace"))
        unseen = RIGHT_ALREADY if already else RIGHT_OTHERWISE
        self._hidden = self._hidden + prefix.likely * bounds.unseen_likely * unseen

    @property
    def bounds(self) -> Resolved:
        """What is certain."""
        return self._resolved

    @property
    def likely(self) -> Floats:
        """(T,) the probability of a right answer, as far as it is known, and what else it is taken for."""
        waiting = sum((prefix.likely * prefix.taken for prefix in self.waiting), np.zeros(len(self.temperatures)))
        found = self._right + self._hidden + waiting
        return np.asarray(np.clip(found, self._resolved.lower, self._resolved.upper))


def _log(probability: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.log(probability)


SPREAD = 0.5
"""How far off a draw may be that was not made."""


def summed_draw(
    matcher: Matcher, positions: Sequence[Position], temperature: float, depth: int, chat: bool, cut: bool, right: bool
) -> float:
    """Return what a draw tells of the probability of a right answer.

    ``depth`` is how many tokens an answer has at most, ``cut`` whether the length ended this one, ``right`` whether it
    is right: that counts where the server does not list how it ended, or what one of its tokens writes.
    """
    text, told = b"", 0.0
    for place, position in enumerate(positions):
        last = place == depth - 1 or (cut and place == len(positions) - 1)
        chosen = position.chosen
        if chosen.unnamed:
            break
        (kind,) = [classify_topk_tokens(matcher, text, [chosen], last, chat)]
        seen = [token for token in position.largest if not token.ends and _whole(token)]
        if (chosen.name, chosen.text) in {(token.name, token.text) for token in seen}:
            kinds = classify_topk_tokens(matcher, text, seen, last, chat)
            told += float(renormalized(seen, temperature)[kinds.settled & kinds.right].sum())
        elif kind.settled[0]:
            told += float(kind.right[0])
        if kind.settled[0]:
            return told
        text += chosen.text
    return told + float(right)


def _whole(token: TopKToken) -> bool:
    """Tell whether a token writes whole characters: parts of one may come together, as if they were one token."""
    return not token.unnamed and not incomplete_bytes(token.text) and not 0x80 <= (token.text or b" ")[0] < 0xC0


def renormalized(tokens: Sequence[TopKToken], temperature: float) -> Floats:
    """Return (K,) how probable each of some tokens is at a temperature, given that it is one of them."""
    logprobs = np.array([token.logprob for token in tokens]) / temperature
    weights = np.exp(logprobs - logprobs.max())
    return np.asarray(weights / weights.sum())


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean of what draws tell, and its standard error: as if one more of them had been :data:`SPREAD` off,
    for a few that are all alike are no certainty.
    """
    told = np.asarray(values, dtype=float)
    mean = float(told.mean())
    return mean, float(np.sqrt(((told - mean) ** 2).sum() + SPREAD**2) / len(told))


BOUNDS, DRAWS = "bounds", "draws"
"""How a point of a curve was got."""
CLOSE, CLOSE_UP_TO_1 = 0.15, 0.7
"""How far apart bounds may be where a probability is read off them. Up to temperature 1 it is known how much is not
seen, and all that is taken for granted is how little of it is right; beyond, nobody knows how much there is."""
HALF, NEAR = 0.5, 0.2
"""Of an accuracy: a fact breaks below the first, and whether it does is unsure within the second of it."""


class CurveEstimate:
    """The probability of a right answer at T temperatures, by bounds where these are close, by draws where these were
    made; elsewhere it is not known.
    """

    def __init__(
        self, temperatures: Sequence[float], lower: Floats, likely: Floats, upper: Floats, apart: Floats
    ) -> None:
        self.temperatures = list(temperatures)
        self.accuracy, self.lower, self.upper = likely.copy(), lower, upper
        self.error = np.maximum(likely - lower, upper - likely) / NORMAL_95  # its interval reaches to the bounds
        close = np.where(np.asarray(temperatures) <= 1, CLOSE_UP_TO_1, CLOSE)
        self.how: list[str | None] = [BOUNDS if each else None for each in apart <= close]

    def draw(self, temperature: float, mean: float, error: float) -> None:
        """Take what draws at a temperature tell, as far as the bounds let it be."""
        place = self.temperatures.index(temperature)
        self.accuracy[place] = np.clip(mean, self.lower[place], self.upper[place])
        self.error[place], self.how[place] = error, DRAWS

    def loose_points(self, wanted: Sequence[float]) -> list[float]:
        """Return the temperatures among those that are wanted at which bounds are not close."""
        return [t for t in wanted if self.how[self.temperatures.index(t)] is None]

    def points_near_threshold(self, wanted: Sequence[float]) -> list[float]:
        """Return the temperatures among those drawn at where the accuracy is near one half, going by its neighbours.

        There a few draws more decide where a fact breaks. What was drawn at a temperature itself has no say in whether
        more is, so that its mean stays without bias.
        """
        places = [self.temperatures.index(t) for t in wanted]
        found = []
        for number, place in enumerate(places):
            beside = self.accuracy[[*places[max(0, number - 1) : number], *places[number + 1 : number + 2]]]
            if self.how[place] == DRAWS and len(beside) and abs(beside.mean() - HALF) <= NEAR:
                found.append(self.temperatures[place])
        return found

    def curve(self) -> Curve:
        """Return what is known."""
        known = [place for place, how in enumerate(self.how) if how is not None]
        return Curve(
            np.array(self.temperatures)[known],
            self.accuracy[known],
            self.error[known],
            self.lower[known],
            self.upper[known],
            [str(self.how[place]) for place in known],
        )
