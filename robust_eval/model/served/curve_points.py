"""The points of a question's accuracy curve, and how each was got."""

from collections.abc import Sequence

import numpy as np

from robust_eval.model.base import Curve, Floats
from robust_eval.model.served.capped_draws import Capped
from robust_eval.stats.interval import NORMAL_95

BOUNDS, DRAWS, WEIGHTS = "bounds", "draws", "weights"
"""How a point of a curve was got."""
CLOSE, CLOSE_UP_TO_1 = 0.15, 0.7
"""How far apart bounds may be where a probability is read off them. Up to temperature 1 it is known how much is not
seen, and all that is taken for granted is how little of it is right; beyond, nobody knows how much there is."""
HALF, NEAR = 0.5, 0.2
"""Of an accuracy: a fact breaks below the first, and whether it does is unsure within the second of it."""


class Points:
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

    @classmethod
    def weighed(cls, temperatures: Sequence[float], told: Capped) -> "Points":
        """Return the points that draws at a higher temperature tell."""
        bounds = told.bounds
        points = cls(temperatures, bounds.lower, told.accuracy, bounds.upper, np.zeros(len(temperatures)))
        points.error, points.how = told.error, [WEIGHTS] * len(temperatures)
        return points

    def draw(self, temperature: float, mean: float, error: float) -> None:
        """Take what draws at a temperature tell, as far as the bounds let it be."""
        place = self.temperatures.index(temperature)
        self.accuracy[place] = np.clip(mean, self.lower[place], self.upper[place])
        self.error[place], self.how[place] = error, DRAWS

    def far(self, wanted: Sequence[float]) -> list[float]:
        """Return the temperatures among those that are wanted at which bounds are not close."""
        return [t for t in wanted if self.how[self.temperatures.index(t)] is None]

    def near_half(self, wanted: Sequence[float]) -> list[float]:
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
