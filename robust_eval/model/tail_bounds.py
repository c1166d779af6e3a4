"""What the largest log-probabilities of a token, given at temperature 1, say of its probabilities at all temperatures.

A server names the K most probable of at most V tokens. Of the others it is known how much they weigh together at
temperature 1, R, and that none of them is more probable than the least of those that are named. Their sum at
temperature t, U_t = Σ p^s with s = 1/t, then lies between that of the most concentrated such rest, R e^((s−1) ℓ_K), and
that of the most even one, (V − K)^(1−s) R^s. Log-probabilities are rounded, and so everything here holds for all values
that may have been rounded to those that were given.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from robust_eval.model.base import Floats

MOST_TOKENS = 300_000
"""V where it is not known: no model at hand has more tokens, and bounds for more hold for fewer."""
NOISE = 1e-6
"""How far a log-probability may be from what it stands for, at least: float32 has seven digits."""
_DIGITS = 8  # decimals to which a server may have rounded


class TokenBounds(NamedTuple):
    """Bounds on the probabilities of the K tokens that are seen, and of all others together, at T temperatures.

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
    """Return how far these log-probabilities may be from the model's, by the decimals that they are given with.

    >>> precision([-0.1234, -2.5]), precision([-0.12345678912, -2.5])
    (5e-05, 1e-06)
    """
    for digits in range(1, _DIGITS):
        if all(math.isclose(value, round(value, digits), rel_tol=0, abs_tol=1e-12) for value in logprobs):
            return max(0.5 * 10.0**-digits, NOISE) if any(logprobs) else NOISE
    return NOISE


def unseen_sums(
    logprobs: Sequence[float], temperatures: Sequence[float], most: int, error: float, largest: bool = True
) -> tuple[Floats, Floats]:
    """Return the bounds (T,), (T,) of U_t, the sum of p^(1/t) over the tokens that are not seen.

    ``logprobs`` (K,) are those of the tokens that are seen, natural, at temperature 1, each at most ``error`` from the
    model's; there are ``most`` tokens at most. ``largest``: none that is not seen is more probable than one that is.
    """
    seen = np.asarray(logprobs, dtype=float)
    s = 1 / np.asarray(temperatures, dtype=float)
    total, others = float(np.exp(seen).sum()), most - len(seen)
    if others <= 0:
        return np.zeros(len(s)), np.zeros(len(s))
    least_rest, most_rest = (max(0.0, 1 - total * math.exp(shift)) for shift in (error, -error))
    most_probable = most_rest
    if largest and len(seen):
        most_probable = min(most_rest, math.exp(float(seen.min()) + error))
    least_rest = min(least_rest, others * most_probable)

    def concentrated(rest: float) -> Floats:
        # Of an empty rest nothing is left at any temperature.
        return rest * most_probable ** (s - 1) if rest else np.zeros(len(s))

    def even(rest: float) -> Floats:
        return np.asarray(others ** (1 - s) * rest**s) if rest else np.zeros(len(s))

    cold = s >= 1
    lower = np.where(cold, even(least_rest), concentrated(least_rest))
    upper = np.where(cold, concentrated(most_rest), even(most_rest))
    return lower, np.maximum(upper, lower)


def token_bounds(
    logprobs: Sequence[float], temperatures: Sequence[float], most: int, error: float, largest: bool = True
) -> TokenBounds:
    """Return bounds on what each token that is seen, and all others together, weigh at each temperature.

    The parameters are those of :func:`unseen_sums`. P_t of a token lies in [e^(sℓ) / (S + U_hi), e^(sℓ) / (S + U_lo)],
    where S is the sum of e^(sℓ) over the tokens that are seen. What is likely is taken with the geometric mean of the
    bounds of U_t, which at temperature 1 are one.
    """
    s = 1 / np.asarray(temperatures, dtype=float)
    seen = np.asarray(logprobs, dtype=float)
    low, high = unseen_sums(logprobs, temperatures, most, error, largest)
    shift = float(seen.max()) if len(seen) else 0.0  # at low temperatures powers are too small for a number
    terms = np.exp((seen[:, None] - shift) * s)
    scale = np.exp(-shift * s)
    low, high = low * scale, high * scale
    total = terms.sum(axis=0)
    wider = np.exp(np.minimum(s * error, 700))
    # a numerator is among the terms of its sum: both are off by the same factor
    others = np.maximum(total - terms, 0)
    lower = terms / wider / (terms / wider + others * wider + high)
    upper = terms * wider / (terms * wider + others / wider + low)
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
    """What is certain of the paths of an answer whose verdicts are known, at T temperatures.

    ``right`` and ``wrong`` (T,) are lower bounds of what the right and the wrong ones weigh together.
    """

    right: Floats
    wrong: Floats

    @property
    def lower(self) -> Floats:
        """(T,) the least that the probability of a right answer can be."""
        return np.minimum(self.right, 1)

    @property
    def upper(self) -> Floats:
        """(T,) the most that it can be."""
        return np.maximum(1 - self.wrong, self.lower)
