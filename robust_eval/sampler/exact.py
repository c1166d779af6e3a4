"""Exact sampler: probability of a right answer to known facts at every temperature, enumerated instead of drawn.

P_t(right) = Σ over answers that are right of Π softmax(logits / t) (docs/methods.md, §1).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from robust_eval.error import UserError
from robust_eval.model.base import Enumeration, Request
from robust_eval.question import Question
from robust_eval.sampler.base import PrefixGrader, prefix_grader_settings
from robust_eval.sampler.known_facts import KnownFacts


@dataclass
class Exact(KnownFacts):
    """Exact sampler: the answers to a known fact as one tree, weighted for all temperatures at once."""

    nodes: int = 128
    """Maximum number of evaluated prefixes of answers to each question. The unresolved rest is estimated without bias,
    with a standard error."""
    precision: float = 0.0
    """Target standard error at every temperature: a question is enumerated with an eighth of its nodes, then a quarter,
    half and all of them, until no accuracy has a larger error. 0: all at once. The standard error of the breaking
    temperature is that of the accuracy there over the slope of the curve. Stopping according to an estimate's own
    standard error biases the estimate downwards, by about half of that error in simulations."""
    draws: int = 8
    """Number of answers drawn at each temperature where the log-probabilities of a server do not suffice; three times
    as many where the curve passes near one half."""
    max_temperature: float = 4.0
    """Maximum temperature of the search for a breaking temperature beyond the grid."""

    estimator = "exact"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.structured:
            raise ValueError("structured must be false, because sampler=exact computes the probability of each letter")
        if self.nodes < 1:
            raise ValueError(f"nodes must be at least 1, not {self.nodes}")
        if not 0 <= self.precision < 0.5:
            raise ValueError(f"precision must be at least 0 and below 0.5, not {self.precision:g}")
        if self.draws < 1:
            raise ValueError(f"draws must be at least 1, not {self.draws}")
        if not self.temperatures[-1] <= self.max_temperature < math.inf:
            raise ValueError(
                "max_temperature must be finite and at least the highest of the temperatures, "
                f"{self.temperatures[-1]:g}, not {self.max_temperature:g}"
            )

    @property
    def repetitions(self) -> float:
        return math.inf

    def requests(self, questions: Sequence[Question], grader: PrefixGrader, seed: int) -> list[Request]:
        """Return a request to enumerate all answers to each question; an answer to multiple choice is one letter."""
        return [self._request(question, grader, seed) for question in questions]

    def _request(self, question: Question, grader: PrefixGrader, seed: int) -> Request:
        matcher, choices = grader.matcher(question), grader.choices(question)
        if matcher is None and choices is None:
            raise UserError(
                f"sampler=exact cannot grade the answers to question {question.id}: it needs accepted answers, and "
                f"{prefix_grader_settings(grader)}"
            )
        return replace(
            self.request(question, grader, seed, trials=0),
            max_new_tokens=1 if choices else self.max_new_tokens,
            matcher=matcher,
            enumeration=Enumeration(self.nodes, self.curve_temperatures(), choices, self.draws, self.precision),
        )

    def curve_temperatures(self) -> tuple[float, ...]:
        """Return the temperatures of exact curves: the grid, 1, a quarter and half of the lowest, and higher ones in
        steps of the widest of the grid.
        """
        grid = np.array(self.temperatures)
        step = float(np.diff(grid).max()) if len(grid) > 1 else float(grid[0])
        higher = np.arange(grid[-1] + step, self.max_temperature + step / 2, step)
        higher = np.append(higher[higher < self.max_temperature - step / 4], self.max_temperature)
        below = [grid[0] / 4, grid[0] / 2]
        beyond = {round(float(t), 10) for t in (*below, 1.0, *higher)}
        return tuple(sorted({*self.temperatures, *beyond}))
