"""Top-k tree of the answers to one question, from a server's top-k log-probabilities at temperature 1.

At each expanded prefix, the probabilities of the tokens that end the answer, or decide it, are summed; the others are
prefixes for expansion. Unseen tokens and unexpanded prefixes have bounds, and so the probability of a right answer has
guaranteed bounds at every temperature, with an estimate between them.

A server returns the K most probable of at most V tokens. The others have a total probability R at temperature 1, and
none of them is more probable than the least of the returned ones. Their sum at temperature t, U_t = Σ p^s with s = 1/t,
then lies between that of the most concentrated such rest, R e^((s−1) ℓ_K), and that of the most even one,
(V − K)^(1−s) R^s. Log-probabilities are rounded, so all bounds hold for all values that round to the returned ones.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from robust_eval.model.base import Curve, Floats, Matcher, TokenVerdict
from robust_eval.model.served.transport.token_logprobs import Position, TopKToken
from robust_eval.model.token_texts import Mask, TokenTexts, incomplete_bytes
from robust_eval.stats.interval import NORMAL_95

DEFAULT_VOCABULARY_SIZE = 300_000
"""V if it is unknown: no current model has more tokens, and bounds for more tokens hold for fewer."""
NOISE = 1e-6
"""Minimum rounding error of a log-probability: float32 has seven digits."""
_DIGITS = 8  # maximum number of decimals of a rounding server


class TokenBounds(NamedTuple):
    """Probabilities of the K tokens that a server returns, and of all others together, at T temperatures.

    ``lower`` (K, T) are lower bounds. ``likely`` (K, T) and ``unseen_likely`` (T,) sum to 1 over all tokens.
    """

    lower: Floats
    likely: Floats
    unseen_likely: Floats


class EnumeratedAnswers(NamedTuple):
    """Enumerated answers with a common prefix that are all right (or all wrong) after one more token; ``weight`` (T,)
    is their total probability.

    ``tokens`` are those of the likeliest, which represents all of them, ``logprobs`` (tokens, T) their
    log-probabilities.
    """

    right: bool
    weight: Floats
    tokens: tuple[TopKToken, ...]
    finish_reason: str
    logprobs: Floats


def precision(logprobs: Sequence[float]) -> float:
    """Return the rounding error of top-k log-probabilities, by their number of decimals.

    >>> precision([-0.1234, -2.5]), precision([-0.12345678912, -2.5])
    (5e-05, 1e-06)
    """
    for digits in range(1, _DIGITS):
        if all(math.isclose(value, round(value, digits), rel_tol=0, abs_tol=1e-12) for value in logprobs):
            return max(0.5 * 10.0**-digits, NOISE) if any(logprobs) else NOISE
    return NOISE


def unseen_sums(
    logprobs: Sequence[float], temperatures: Sequence[float], vocabulary: int, error: float, largest: bool = True
) -> tuple[Floats, Floats]:
    """Return the bounds (T,), (T,) of U_t, the sum of p^(1/t) over the tokens outside the top k.

    ``logprobs`` (K,) are those of the seen tokens, natural, at temperature 1, each at most ``error`` from the
    model's; the vocabulary has at most ``vocabulary`` tokens. ``largest``: no unseen token is more probable than a seen
    one.
    """
    listed = np.asarray(logprobs, dtype=float)
    s = 1 / np.asarray(temperatures, dtype=float)
    total, unlisted = float(np.exp(listed).sum()), vocabulary - len(listed)
    if unlisted <= 0:
        return np.zeros(len(s)), np.zeros(len(s))
    least_rest, most_rest = (max(0.0, 1 - total * math.exp(shift)) for shift in (error, -error))
    most_probable = most_rest
    if largest and len(listed):
        most_probable = min(most_rest, math.exp(float(listed.min()) + error))
    least_rest = min(least_rest, unlisted * most_probable)

    def concentrated(rest: float) -> Floats:
        # Of an empty rest nothing is left at any temperature. A power of 0 may be infinite, and is not used.
        with np.errstate(divide="ignore"):
            return np.asarray(rest * most_probable ** (s - 1)) if rest else np.zeros(len(s))

    def even(rest: float) -> Floats:
        return np.asarray(unlisted ** (1 - s) * rest**s) if rest else np.zeros(len(s))

    cold = s >= 1
    lower = np.where(cold, even(least_rest), concentrated(least_rest))
    upper = np.where(cold, concentrated(most_rest), even(most_rest))
    return lower, np.maximum(upper, lower)


def token_bounds(
    logprobs: Sequence[float], temperatures: Sequence[float], vocabulary: int, error: float, largest: bool = True
) -> TokenBounds:
    """Return the lower bound and the likely value of each top-k token's probability at each temperature.

    The parameters are those of :func:`unseen_sums`. P_t of a token is at least e^(sℓ) / (S + U_hi), where S is the sum
    of e^(sℓ) over the seen tokens. The likely values use the geometric mean of the bounds of U_t, which are equal at
    temperature 1.
    """
    s = 1 / np.asarray(temperatures, dtype=float)
    listed = np.asarray(logprobs, dtype=float)
    low, high = unseen_sums(logprobs, temperatures, vocabulary, error, largest)
    shift = float(listed.max()) if len(listed) else 0.0  # at low temperatures powers are too small for a number
    terms = np.exp((listed[:, None] - shift) * s)
    scale = np.exp(-shift * s)
    low, high = low * scale, high * scale
    total = terms.sum(axis=0)
    wider = np.exp(np.minimum(s * error, 700))
    # a numerator is among the terms of its sum: both are off by the same factor
    lower = terms / wider / (terms / wider + np.maximum(total - terms, 0) * wider + high)
    likely_rest = np.sqrt(low * high)
    whole = total + likely_rest
    return TokenBounds(lower, terms / whole, likely_rest / whole)


class Resolved(NamedTuple):
    """Part of the probability of a right answer that a top-k tree makes certain, at T temperatures.

    ``right`` and ``wrong`` (T,) are lower bounds of the total probabilities of right and of wrong answers.
    """

    right: Floats
    wrong: Floats

    @property
    def lower(self) -> Floats:
        """Lower bound (T,) of the probability of a right answer, by the top-k tree."""
        return np.minimum(self.right, 1)

    @property
    def upper(self) -> Floats:
        """Upper bound (T,) of the probability of a right answer, by the top-k tree."""
        return np.maximum(1 - self.wrong, self.lower)


@dataclass(frozen=True)
class TopKCoverage:
    """Number of top-k tokens, ``shown``, which may be the whole vocabulary; fewer if the server merges tokens with the
    same text.
    """

    shown: int
    whole: bool = False

    def bounds(self, tokens: Sequence[TopKToken], temperatures: Sequence[float]) -> TokenBounds:
        """Return the probabilities of the top-k tokens of one position, and of all others, by temperature."""
        logprobs = [token.logprob for token in tokens]
        largest = len(tokens) >= self.shown and not any(token.unnamed for token in tokens)
        vocabulary = self.shown if self.whole else DEFAULT_VOCABULARY_SIZE
        return token_bounds(logprobs, temperatures, vocabulary, precision(logprobs), largest)


class TokenOutcomes(NamedTuple):
    """Outcome of each of K next tokens after a prefix of an answer, (K,).

    ``settled`` tokens end the answer, or no continuation makes it wrong; it is then right (``right``) or wrong. The
    others leave it open; after ``right`` ones it is right if it ends, after ``begun`` ones an accepted answer has
    begun.
    """

    settled: Mask
    right: Mask
    begun: Mask


def classify_topk_tokens(
    matcher: Matcher, text: bytes, tokens: Sequence[TopKToken], last: bool, chat: bool
) -> TokenOutcomes:
    """Return the outcomes of top-k tokens after the prefix ``text``; no token follows the ``last`` one.

    An answer ends with its first line; in a conversation (``chat``), with the first one that is not blank.
    """
    texts = TokenTexts([token.text for token in tokens])
    verdicts = matcher.next_tokens(text.lstrip() if chat else text, texts).all()
    right = verdicts >= TokenVerdict.RIGHT
    ends = np.array([token.ends for token in tokens], dtype=bool)
    breaks = texts.breaks_line
    if chat and not text.strip():  # all lines are blank so far
        breaks = breaks & np.array([bool(token.text.split(b"\n", 1)[0].strip()) for token in tokens], dtype=bool)
        for index in np.flatnonzero(texts.breaks_line & ~breaks):
            right[index] = False  # the text after its line breaks is judged with the next token
    ended = np.ones(len(tokens), dtype=bool) if last else ends | breaks
    decided = (verdicts == TokenVerdict.DECIDED) & right
    return TokenOutcomes(ended | decided, right, (verdicts == TokenVerdict.BEGUN) & ~ended)


RIGHT_ALREADY, RIGHT_BEGUN, RIGHT_OTHERWISE = 0.95, 0.6, 0.03
"""Prior probabilities of a right answer after an unexpanded prefix: one that is right so far, one with the beginning of
an accepted answer, and any other."""
STEERS_UP_TO = 1.3
"""Highest temperature whose probabilities decide the expansion: beyond it bounds are hardly ever close."""


@dataclass(eq=False)
class Prefix:
    """Prefix in a top-k tree: its tokens, and its probability at T temperatures, a lower bound and the likely value."""

    tokens: tuple[TopKToken, ...]
    text: bytes
    lower: Floats
    likely: Floats
    logprobs: Floats
    prior: float = RIGHT_OTHERWISE
    """Prior probability of a right answer with this prefix."""
    children: dict[int | bytes, "Prefix"] = field(default_factory=dict)


class TopKTree:
    """Top-k tree of answers of at most ``depth`` tokens.

    ``frontier`` are the unexpanded prefixes, ``bounds`` the certain part of the probabilities.
    """

    def __init__(
        self,
        matcher: Matcher,
        depth: int,
        temperatures: Sequence[float],
        requested: Sequence[float],
        coverage: TopKCoverage,
        chat: bool,
    ) -> None:
        self.temperatures = tuple(temperatures)
        steers = [column for column, t in enumerate(temperatures) if t in requested and t <= STEERS_UP_TO]
        self._steers = steers or [0]
        self._matcher, self.depth, self._coverage, self._chat = matcher, depth, coverage, chat
        ones = np.ones(len(self.temperatures))
        self.root = Prefix((), b"", ones, ones, np.zeros((0, len(ones))))
        self.frontier: list[Prefix] = [self.root]
        self.answers: list[EnumeratedAnswers] = []
        self.bounds = Resolved(0 * ones, 0 * ones)
        self._right, self._hidden = 0 * ones, 0 * ones

    def heaviest(self, number: int, minimum: float) -> list[Prefix]:
        """Remove from the frontier, and return, at most ``number`` prefixes, the most probable first, with a
        probability of at least ``minimum``.
        """

        def weight(prefix: Prefix) -> float:
            return float(prefix.likely[self._steers].max())

        self.frontier.sort(key=weight, reverse=True)
        heaviest = [prefix for prefix in self.frontier[:number] if weight(prefix) >= minimum]
        self.frontier = self.frontier[len(heaviest) :]
        return heaviest

    def grow(self, prefix: Prefix, positions: Sequence[Position]) -> None:
        """Expand a prefix of the top-k tree with the positions that follow it, each after the chosen token before it.

        Without positions the outcome of the prefix remains unknown.
        """
        if not positions:
            self._hidden = self._hidden + prefix.likely * prefix.prior
            return
        position, *following = positions
        largest = position.largest
        bounds = self._coverage.bounds(largest, self.temperatures)
        last = len(prefix.tokens) == self.depth - 1
        outcomes = classify_topk_tokens(self._matcher, prefix.text, largest, last, self._chat)
        unknown = np.array([token.unnamed for token in largest], dtype=bool)
        outcomes = outcomes._replace(settled=outcomes.settled & ~unknown)
        self._count(prefix, largest, bounds, outcomes, last)
        self._hidden = self._hidden + prefix.likely * bounds.likely[unknown].sum(axis=0) * RIGHT_OTHERWISE
        for index in np.flatnonzero(~outcomes.settled & ~unknown).tolist():
            begun = RIGHT_BEGUN if outcomes.begun[index] else RIGHT_OTHERWISE
            token = largest[index]
            child = Prefix(
                (*prefix.tokens, token),
                prefix.text + token.text,
                prefix.lower * bounds.lower[index],
                prefix.likely * bounds.likely[index],
                np.vstack([prefix.logprobs, _log(bounds.likely[index])]),
                RIGHT_ALREADY if outcomes.right[index] else begun,
            )
            prefix.children[token.name] = child
            self.frontier.append(child)
        chosen = prefix.children.get(position.chosen.name)
        if following and chosen is not None:
            self.frontier.remove(chosen)
            self.grow(chosen, following)

    def _count(
        self, prefix: Prefix, tokens: Sequence[TopKToken], bounds: TokenBounds, outcomes: TokenOutcomes, last: bool
    ) -> None:
        """Count the top-k tokens that end the answer or decide it, and the unseen ones."""
        for is_right, sum_of in ((True, self.bounds.right), (False, self.bounds.wrong)):
            mask = outcomes.settled & (outcomes.right == is_right)
            if not mask.any():
                continue
            sum_of += prefix.lower * bounds.lower[mask].sum(axis=0)
            likely = prefix.likely * bounds.likely[mask].sum(axis=0)
            if is_right:
                self._right = self._right + likely
            first = int(mask.argmax())  # in descending order
            token = tokens[first]
            reason = "length" if last else "stop" if token.ends or b"\n" in token.text else "closed"
            path = np.vstack([prefix.logprobs, _log(bounds.likely[first])])
            self.answers.append(EnumeratedAnswers(is_right, likely, (*prefix.tokens, token), reason, path))
        already = self._matcher.right(prefix.text.decode("utf-8", "replace"))
        unseen = RIGHT_ALREADY if already else RIGHT_OTHERWISE
        self._hidden = self._hidden + prefix.likely * bounds.unseen_likely * unseen

    @property
    def likely(self) -> Floats:
        """Estimate (T,) of the probability of a right answer, with priors for the unknown part of the tree."""
        waiting = sum((prefix.likely * prefix.prior for prefix in self.frontier), np.zeros(len(self.temperatures)))
        estimate = self._right + self._hidden + waiting
        return np.asarray(np.clip(estimate, self.bounds.lower, self.bounds.upper))


def _log(probability: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.log(probability)


DEVIATION = 0.5
"""Deviation of an additional draw in the standard error, so that few identical draws are not certain."""


def summed_draw(
    matcher: Matcher, positions: Sequence[Position], temperature: float, depth: int, chat: bool, cut: bool, right: bool
) -> float:
    """Return the estimate of the probability of a right answer from one draw, by its top-k tokens.

    ``depth`` is the maximum number of tokens of an answer. ``cut``: the length ended this one. ``right``: it is right,
    which counts if the server omits its end, or the text of one of its tokens.
    """
    text, estimate = b"", 0.0
    for index, position in enumerate(positions):
        last = index == depth - 1 or (cut and index == len(positions) - 1)
        chosen = position.chosen
        if chosen.unnamed:
            break
        outcome = classify_topk_tokens(matcher, text, [chosen], last, chat)
        visible = [token for token in position.largest if not token.ends and _has_whole_characters(token)]
        if (chosen.name, chosen.text) in {(token.name, token.text) for token in visible}:
            outcomes = classify_topk_tokens(matcher, text, visible, last, chat)
            estimate += float(renormalized(visible, temperature)[outcomes.settled & outcomes.right].sum())
        elif outcome.settled[0]:
            estimate += float(outcome.right[0])
        if outcome.settled[0]:
            return estimate
        text += chosen.text
    return estimate + float(right)


def _has_whole_characters(token: TopKToken) -> bool:
    """Return whether a top-k token has whole characters: a server may merge tokens with parts of one."""
    return not token.unnamed and not incomplete_bytes(token.text) and not 0x80 <= (token.text or b" ")[0] < 0xC0


def renormalized(tokens: Sequence[TopKToken], temperature: float) -> Floats:
    """Return (K,) the probabilities of top-k tokens at a temperature, given that the next token is one of them."""
    logprobs = np.array([token.logprob for token in tokens]) / temperature
    weights = np.exp(logprobs - logprobs.max())
    return np.asarray(weights / weights.sum())


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean of the estimates from draws and its standard error, with one more draw :data:`DEVIATION` off."""
    mean = float(np.mean(values))
    return mean, float(np.sqrt(((np.asarray(values) - mean) ** 2).sum() + DEVIATION**2) / len(values))


BOUNDS, DRAWS = "bounds", "draws"
"""Estimators of a point of a curve."""
CLOSE, CLOSE_UP_TO_1 = 0.15, 0.7
"""Maximum distance of bounds that give a probability, and up to temperature 1. There the unseen probability is known,
and only its right part is assumed; beyond, the unseen probability itself is unknown."""
HALF, NEAR = 0.5, 0.2
"""Threshold of the accuracy below which a fact breaks, and the distance from it within which that is uncertain."""


class CurveEstimate:
    """Accuracy curve at T temperatures: by close bounds, or by draws; otherwise unknown."""

    def __init__(
        self, temperatures: Sequence[float], lower: Floats, likely: Floats, upper: Floats, distance: Floats
    ) -> None:
        self.temperatures = list(temperatures)
        self.accuracy, self.lower, self.upper = likely.copy(), lower, upper
        self.error = np.maximum(likely - lower, upper - likely) / NORMAL_95  # its interval reaches to the bounds
        close = np.where(np.asarray(temperatures) <= 1, CLOSE_UP_TO_1, CLOSE)
        self.how: list[str | None] = [BOUNDS if each else None for each in distance <= close]

    def draw(self, temperature: float, mean: float, error: float) -> None:
        """Set the estimate from draws at a temperature, clipped to the bounds."""
        column = self.temperatures.index(temperature)
        self.accuracy[column] = np.clip(mean, self.lower[column], self.upper[column])
        self.error[column], self.how[column] = error, DRAWS

    def loose_points(self, requested: Sequence[float]) -> list[float]:
        """Return the requested temperatures at which bounds are not close."""
        return [t for t in requested if self.how[self.temperatures.index(t)] is None]

    def points_near_threshold(self, requested: Sequence[float]) -> list[float]:
        """Return the temperatures with draws at which the accuracy of the neighbours is near one half.

        There a few more draws decide at which temperature a fact breaks. The draws at a temperature itself do not
        decide about more of them, so that their mean stays unbiased.
        """
        columns = [self.temperatures.index(t) for t in requested]
        near = []
        for number, column in enumerate(columns):
            neighbours = self.accuracy[[*columns[max(0, number - 1) : number], *columns[number + 1 : number + 2]]]
            if self.how[column] == DRAWS and len(neighbours) and abs(neighbours.mean() - HALF) <= NEAR:
                near.append(self.temperatures[column])
        return near

    def curve(self) -> Curve:
        """Return the accuracy curve at the temperatures with an estimate."""
        known = [column for column, how in enumerate(self.how) if how is not None]
        estimates = (np.array(self.temperatures), self.accuracy, self.error, self.lower, self.upper)
        temperatures, accuracy, error, lower, upper = (estimate[known] for estimate in estimates)
        return Curve(temperatures, accuracy, error, lower, upper, [str(self.how[column]) for column in known])
