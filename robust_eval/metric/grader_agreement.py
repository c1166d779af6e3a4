"""Agreement of a grader with human labels: accuracy, F1, Cohen's κ, and errors on either side."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robust_eval.stats.agreement import cohen_kappa
from robust_eval.stats.interval import wilson


@dataclass(frozen=True)
class Agreement:
    """Counts of the replies that people and a grader call right or wrong: both, or one of the two alone.

    Where replies were drawn with different probabilities these are weighted, and sum to the number of replies drawn
    alike that would tell as much (Kish's effective size); ``replies`` counts them as they are.
    """

    both_right: float
    grader_right: float
    people_right: float
    both_wrong: float
    replies: int

    @classmethod
    def of(cls, people: Sequence[bool], grader: Sequence[bool], weights: Sequence[float] | None = None) -> "Agreement":
        """Return a grader's agreement with people on replies, each of which weighs 1 without ``weights``."""
        weight = np.ones(len(people)) if weights is None else np.asarray(weights, dtype=float)
        if len(weight):
            weight = weight * weight.sum() / (weight**2).sum()
        one, other = np.asarray(people, dtype=bool), np.asarray(grader, dtype=bool)

        def count(by_people: bool, by_grader: bool) -> float:
            return float(weight[(one == by_people) & (other == by_grader)].sum())

        return cls(count(True, True), count(False, True), count(True, False), count(False, False), len(weight))

    @property
    def total(self) -> float:
        """Sum of all counts: the number of replies or, of weighted ones, their effective number."""
        return self.both_right + self.grader_right + self.people_right + self.both_wrong

    @property
    def f1(self) -> float:
        """F1 of a grader: harmonic mean of precision and recall of "right"; NaN where neither calls any reply right."""
        return share(2 * self.both_right, 2 * self.both_right + self.grader_right + self.people_right)

    @property
    def kappa(self) -> float:
        """Cohen's κ of grader and people; NaN where chance agrees always: both call all of them right, or all wrong."""
        return cohen_kappa([[self.both_right, self.people_right], [self.grader_right, self.both_wrong]])

    def metrics(self) -> dict[str, float]:
        """Return all metrics of the grader's agreement by name; the accuracy has its 95 % interval (Wilson)."""
        same = self.both_right + self.both_wrong
        low, high = wilson(same, self.total)
        called_right, called_wrong = self.both_right + self.grader_right, self.both_wrong + self.people_right
        return {
            "replies": self.replies,
            "verdicts that differ": self.grader_right + self.people_right,
            "accuracy": share(same, self.total),
            "accuracy_low": low,
            "accuracy_high": high,
            "F1": self.f1,
            "kappa": self.kappa,
            "called right": called_right,
            "called right but wrong": self.grader_right,
            "share of replies called right that are wrong": share(self.grader_right, called_right),
            "called wrong": called_wrong,
            "called wrong but right": self.people_right,
            "share of replies called wrong that are right": share(self.people_right, called_wrong),
        }


def share(part: float, whole: float) -> float:
    """Return a part as a share of the whole; NaN of nothing."""
    return part / whole if whole else math.nan
