"""Bounds of next-token probabilities at all temperatures from the largest log-probabilities at temperature 1.

A server returns the K most probable of at most V tokens. The others have a total probability R at temperature 1, and
none of them is more probable than the least of the returned ones. Their sum at
temperature t, U_t = Σ p^s with s = 1/t, then lies between that of the most concentrated such rest, R e^((s−1) ℓ_K), and
that of the most even one, (V − K)^(1−s) R^s. Log-probabilities are rounded, so all bounds hold for all values
that round to the returned ones.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from robust_eval.model.base import Floats

DEFAULT_VOCABULARY_SIZE = 300_000
"""V if it is unknown: no current model has more tokens, and bounds for more tokens hold for fewer."""
NOISE = 1e-6
"""Minimum rounding error of a log-probability: float32 has seven digits."""
_DIGITS = 8  # maximum number of decimals of a rounding server


class TokenBounds(NamedTuple):
    """Bounds on the probabilities of the K seen tokens, and of all others together, at T temperatures.

    ``lower`` and ``upper`` are (K, T), ``unseen_lower`` and ``unseen_upper`` (T,). ``likely`` (K, T) and
    ``unseen_likely`` (T,) lie between them, and sum to 1 over all tokens.
    """

    lower: Floats
    likely: Floats
    upper: Floats
    unseen_lower: Floats
    unseen_likely: Floats
    unseen_upper: Floats


def precision(logprobs: Sequence[float]) -> float:
    """Return the rounding error of log-probabilities, by their number of decimals.

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
    """Return the bounds (T,), (T,) of U_t, the sum of p^(1/t) over the unseen tokens.

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
        # Of an empty rest nothing is left at any temperature.
        return rest * most_probable ** (s - 1) if rest else np.zeros(len(s))

    def even(rest: float) -> Floats:
        return np.asarray(unlisted ** (1 - s) * rest**s) if rest else np.zeros(len(s))

    cold = s >= 1
    lower = np.where(cold, even(least_rest), concentrated(least_rest))
    upper = np.where(cold, concentrated(most_rest), even(most_rest))
    return lower, np.maximum(upper, lower)


def token_bounds(
    logprobs: Sequence[float], temperatures: Sequence[float], vocabulary: int, error: float, largest: bool = True
) -> TokenBounds:
    """Return bounds on the probability of each seen token, and of all others together, at each temperature.

    The parameters are those of :func:`unseen_sums`. P_t of a token lies in [e^(sℓ) / (S + U_hi), e^(sℓ) / (S + U_lo)],
    where S is the sum of e^(sℓ) over the seen tokens. The likely values use the geometric mean of the bounds of U_t,
    which are equal at temperature 1.
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
    other_terms = np.maximum(total - terms, 0)
    lower = terms / wider / (terms / wider + other_terms * wider + high)
    upper = terms * wider / (terms * wider + other_terms / wider + low)
    likely_rest = np.sqrt(low * high)
    whole = total + likely_rest
    return TokenBounds(
        lower,
        terms / whole,
        np.minimum(upper, 1),
        low / (low + total * wider),
        likely_rest / whole,
        np.minimum(high / (high + total / wider), 1),
    )


class Resolved(NamedTuple):
    """Certain part of the probability of a right answer, at T temperatures.

    ``right`` and ``wrong`` (T,) are lower bounds of the total probabilities of right and of wrong answers.
    """

    right: Floats
    wrong: Floats

    @property
    def lower(self) -> Floats:
        """Lower bound (T,) of the probability of a right answer."""
        return np.minimum(self.right, 1)

    @property
    def upper(self) -> Floats:
        """Upper bound (T,) of it."""
        return np.maximum(1 - self.wrong, self.lower)
