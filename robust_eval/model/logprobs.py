"""Which log-probabilities of an answer can be believed: one that cannot makes every figure that it is part of wrong."""

import math
from array import array
from collections.abc import Sequence

from robust_eval.stats.frs import MAX_TOTAL

(HIGHEST,) = array("f", [1e-3])
"""What a log-probability is at most, as it is stored: rounding takes that of a certain token a little above 0."""
WHOLE = 1 - 1e-6
"""What the probabilities of all tokens that there are sum to at least."""


def fault(
    chosen: Sequence[float] | None,
    top: Sequence[Sequence[float]] | None,
    answer_tokens: int | None,
    needed: int,
    whole_is_enough: bool = True,
) -> str | None:
    """Return what is wrong with the log-probabilities of an answer, as they are stored; None where nothing is.

    ``chosen`` are those of its tokens, ``top`` the largest of each, of which ``needed`` are needed of each of the first
    ``answer_tokens``, or fewer where those are all that there are and the ``whole_is_enough``. Minus infinity, or what
    services write instead of it (-9999), is that of an impossible token.
    """
    if not chosen or not top:
        return f"no log-probabilities, and {needed} a token are needed" if needed else None
    for value in array("f", chosen):
        if not value <= HIGHEST:
            return f"a log-probability of {value:g}, and none is above 0"
    for place, values in enumerate(top):
        largest = array("f", values)
        if not largest and (not needed or place >= (answer_tokens or 0)):
            continue  # some servers say nothing of the token that ends an answer
        if wrong := next((value for value in largest if not value <= HIGHEST), None):
            return f"a log-probability of {wrong:g}, and none is above 0"
        total = math.fsum(map(math.exp, largest))
        if total > MAX_TOTAL:
            return f"log-probabilities of a token whose probabilities sum to {total:.3f}, more than 1"
        if len(largest) < needed and not (whole_is_enough and is_whole(largest)):
            return f"{len(largest)} log-probabilities of a token, and {needed} are needed"
        if not total:
            return "log-probabilities of a token by which none is possible"
    return None


def is_whole(logprobs: Sequence[float]) -> bool:
    """Tell whether these are the log-probabilities of all tokens that there are."""
    return math.fsum(map(math.exp, logprobs)) >= WHOLE
