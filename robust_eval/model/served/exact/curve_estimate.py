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

from robust_eval.model.base import Curve, Floats, Matcher
from robust_eval.model.served.exact.topk_tokens import classify_topk_tokens
from robust_eval.model.served.token_logprobs import Position, TopKToken
from robust_eval.model.token_texts import incomplete_bytes
from robust_eval.stats.interval import NORMAL_95

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
