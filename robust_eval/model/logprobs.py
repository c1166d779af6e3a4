"""Validation of log-probabilities: an invalid one would make every metric that uses it wrong."""

import math
from array import array
from collections.abc import Sequence

from robust_eval.stats.frs import MAX_TOTAL

(HIGHEST,) = array("f", [1e-3])
"""Maximum of a stored log-probability: rounding may put that of a certain token slightly above 0."""
WHOLE = 1 - 1e-6
"""Minimum sum of the probabilities of all tokens of a vocabulary."""


def fault(
    chosen: Sequence[float] | None,
    top: Sequence[Sequence[float]] | None,
    answer_tokens: int | None,
    needed: int,
    whole_is_enough: bool = True,
) -> str | None:
    """Return the fault of the stored log-probabilities of an answer, or None.

    ``chosen`` are those of its tokens, if known, ``top`` the largest at each position. ``needed`` of these are required
    at each of the first ``answer_tokens`` positions, or fewer if they are all of the vocabulary and
    ``whole_is_enough``. Minus infinity, or the -9999 of some services, is that of an impossible token.
    """
    if not top:
        return f"no log-probabilities, but {needed} per token are needed" if needed else None
    for value in array("f", chosen or ()):
        if not value <= HIGHEST:
            return f"a log-probability of {value:g}, which must be at most 0"
    for place, values in enumerate(top):
        largest = array("f", values)
        if not largest and (not needed or place >= (answer_tokens or 0)):
            continue  # some servers omit the token that ends an answer
        if wrong := next((value for value in largest if not value <= HIGHEST), None):
            return f"a log-probability of {wrong:g}, which must be at most 0"
        total = math.fsum(map(math.exp, largest))
        if total > MAX_TOTAL:
            return f"log-probabilities of a token whose probabilities sum to {total:.3f}, more than 1"
        if len(largest) < needed and not (whole_is_enough and is_whole(largest)):
            return f"{len(largest)} log-probabilities of a token, but {needed} are needed"
        if not total:
            return "log-probabilities that exclude every token"
    return None


def is_whole(logprobs: Sequence[float]) -> bool:
    """Return whether log-probabilities are those of the whole vocabulary."""
    return math.fsum(map(math.exp, logprobs)) >= WHOLE
