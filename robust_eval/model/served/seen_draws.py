"""The accuracy at one temperature from answers drawn at it, with the last step summed over the tokens that were seen.

How probable a token is at a high temperature is not known where only the largest log-probabilities are: what the others
weigh together has no useful bounds. But how probable the tokens that are seen are beside one another is. So where a
draw went on with one of these, the share of them that settle the answer rightly takes the place of whether it did
(Rao-Blackwell: the expectation, given the beginning and that the token is one of those). Where it went on with another
token, that itself counts. So does a token that writes nothing and ends the answer, because some servers do not list the
place where it stands. The mean over draws is unbiased.
"""

from collections.abc import Sequence

import numpy as np

from robust_eval.model.base import Floats, Matcher
from robust_eval.model.served.seen_kinds import seen_kinds
from robust_eval.model.served.seen_tokens import Position, SeenToken, unnamed
from robust_eval.model.token_texts import incomplete_bytes

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
        if unnamed(chosen):
            break
        (kind,) = [seen_kinds(matcher, text, [chosen], last, chat)]
        seen = [token for token in position.largest if not token.ends and _whole(token)]
        if (chosen.name, chosen.text) in {(token.name, token.text) for token in seen}:
            kinds = seen_kinds(matcher, text, seen, last, chat)
            told += float(beside(seen, temperature)[kinds.settled & kinds.right].sum())
        elif kind.settled[0]:
            told += float(kind.right[0])
        if kind.settled[0]:
            return told
        text += chosen.text
    return told + float(right)


def ended(matcher: Matcher, positions: Sequence[Position], depth: int, chat: bool) -> list[Position]:
    """Return the places of a draw up to the token that ended or settled the answer."""
    text = b""
    for place, position in enumerate(positions[:depth]):
        if unnamed(position.chosen):
            continue
        (settled,) = seen_kinds(matcher, text, [position.chosen], place == depth - 1, chat).settled
        if settled:
            return list(positions[: place + 1])
        text += position.chosen.text
    return list(positions[:depth])


def _whole(token: SeenToken) -> bool:
    """Tell whether a token writes whole characters: parts of one may come together, as if they were one token."""
    return not unnamed(token) and not incomplete_bytes(token.text) and not 0x80 <= (token.text or b" ")[0] < 0xC0


def beside(tokens: Sequence[SeenToken], temperature: float) -> Floats:
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
