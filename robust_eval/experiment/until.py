"""Runs that take as few questions as an interval needs (``until={frs.d1: 0.02}``; docs/methods.md, §5)."""

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple, Protocol

import numpy as np

from robust_eval.answer import GREEDY
from robust_eval.error import UserError
from robust_eval.metric.score import Score
from robust_eval.question import Question, seeded_rank
from robust_eval.runtime.text import number
from robust_eval.stats.estimate import Estimate
from robust_eval.stats.interval import MIN_UNITS, ROUNDING, UNKNOWN, Limits

BLOCK = 10
"""Questions that are taken at least before the intervals are looked at again."""
_NORMAL = NormalDist().inv_cdf(0.975)


class Seen(NamedTuple):
    """A figure after some questions: its estimate, the half-width of its interval, and the number of independent
    questions or groups that it rests on.

    The half-width is that on which a run stops (:func:`careful_half_width`), NaN where there is no interval.
    """

    estimate: Estimate
    half_width: float
    n: int


class Takes(Protocol):
    """Which questions a run takes next; those that are ``left`` are not taken yet."""

    left: list[Question]

    def next(self, scores: Mapping[str, Score]) -> list[Question]:
        """Return the next questions, given the scores of those before; none where that is enough, or none is left."""

    def in_words(self, scores: Mapping[str, Score]) -> str:
        """Say what is known by now; nothing where all are taken at once."""

    def reported(self, scores: dict[str, Score]) -> dict[str, Score]:
        """Return the scores of a run that takes no more questions as they are reported: by default as they are."""
        return scores


class Taking(Takes):
    """The questions of a run in the order in which it takes them: all at once, or until its figures are known.

    ``wanted`` maps the names of figures to the half-width that their 95 % intervals shall have; where it is empty, all
    questions are taken at once. Otherwise they come in an order of the seed, which does not depend on what else the
    data set holds. Those of a group stay together. There are :data:`MIN_UNITS` at first. Then half as many follow as
    the widest interval lets expect, :data:`BLOCK` at least, until every interval is narrow enough.
    """

    def __init__(self, wanted: Mapping[str, float], questions: Sequence[Question], seed: int) -> None:
        self.wanted = wanted
        self.left = in_order(questions, seed) if wanted else list(questions)
        self.taken = 0
        self._unit = {question.id: unit(question) for question in questions}

    def next(self, scores: Mapping[str, Score]) -> list[Question]:
        """Return the next questions, given the scores of those before; none where that is enough, or none is left.

        Raises UserError where one of the figures is no mean over questions, or is not measured.
        """
        if not self.wanted:
            more = len(self.left)
        elif not self.taken:
            more = MIN_UNITS
        else:
            more = self._missing(scores)
        block, self.left = whole_units(self.left, more)
        self.taken += len(block)
        return block

    def in_words(self, scores: Mapping[str, Score]) -> str:
        """Say what is known of the figures, and after how many questions; nothing where none is wanted."""
        if not self.wanted:
            return ""
        figures = [
            f"{name} {number(seen.estimate.value)} ± {number(seen.half_width, '.4f')}, n = {seen.n} "
            f"(wanted: ± {self.wanted[name]:g})"
            for name, seen in self._seen(scores).items()
        ]
        of = f"{self.taken:,} of {self.taken + len(self.left):,} questions"
        return f"{of}: {', '.join(figures) or 'nothing to measure yet'}"

    def reported(self, scores: dict[str, Score]) -> dict[str, Score]:
        """Return the scores with the intervals on which the run stopped: those of the figures that are wanted are
        stretched to the half-width that was looked at. Where the run did not stop for them, they are as they are.
        """
        if not self.left or self._missing(scores):
            return scores
        seen = self._seen(scores)
        return {key: _with_stretched(score, seen) for key, score in scores.items()}

    def _missing(self, scores: Mapping[str, Score]) -> int:
        """Return how many questions to take next; 0 where every interval is narrow enough."""
        times = [_times(seen, self.wanted[name]) for name, seen in self._seen(scores).items()]
        more = max(times, default=2.0) - 1
        return max(BLOCK, math.ceil(self.taken * more / 2)) if more > ROUNDING else 0

    def _seen(self, scores: Mapping[str, Score]) -> dict[str, Seen]:
        """Return what is known of each figure; nothing where no question is kept yet."""
        return {name: self._figure(name, scores) for name in self.wanted} if scores.keys() - {GREEDY} else {}

    def _figure(self, name: str, scores: Mapping[str, Score]) -> Seen:
        score = next((score for score in scores.values() if name in score.by_question), None)
        if score is None:
            means = ", ".join(sorted({name for score in scores.values() for name in score.by_question}))
            raise UserError(f"until names {name}, which is no mean over questions in this run; these are: {means}")
        estimate = score.figures()[name]
        residuals: dict[tuple[str, str], float] = {}
        values = score.by_question[name]
        for question_id, value in zip(score.question_ids, values.tolist(), strict=True):
            if not math.isnan(value):
                drawn = self._unit[question_id]
                residuals[drawn] = residuals.get(drawn, 0.0) + value - estimate.value
        number_known = max(1, int(np.count_nonzero(~np.isnan(values))))
        half_width = careful_half_width(estimate, list(residuals.values()), number_known)
        return Seen(estimate, half_width, len(residuals))


def careful_half_width(estimate: Estimate, residuals: Sequence[float], number: int) -> float:
    """Return the half-width of the interval of a mean of ``number`` values, no less than the normal interval would have
    if the variance were two standard errors above its estimate.

    A run looks again and again, and would stop at the first interval that is narrow by chance: where few of the rare
    values have come, as where nine in ten answers are right. ``residuals`` are those of independent questions, or sums
    of a group.
    """
    squares = np.square(residuals)
    variance = squares.sum() + 2 * math.hypot(*(squares - squares.mean())) if len(squares) else 0.0
    return float(np.maximum((estimate.high - estimate.low) / 2, _NORMAL * math.sqrt(variance) / number))


def stretched(estimate: Estimate, half_width: float, limits: Limits) -> Estimate:
    """Return an estimate whose interval has this half-width, as far as its ``limits`` allow.

    >>> stretched(Estimate(0.5, 0.25, 0.625), 0.25, (0.0, 1.0))
    Estimate(value=0.5, low=0.16666666666666669, high=0.6666666666666666)
    """
    value, low, high = estimate
    times = 2 * half_width / (high - low)
    lowest, highest = limits
    return Estimate(value, max(lowest, value - times * (value - low)), min(highest, value + times * (high - value)))


def _with_stretched(score: Score, seen: Mapping[str, Seen]) -> Score:
    for name in seen.keys() & score.by_question.keys():
        limits = score.limits.get(name, UNKNOWN)
        score = score.with_estimate(name, stretched(seen[name].estimate, seen[name].half_width, limits))
    return score


def _times(seen: Seen, wanted: float) -> float:
    """Return how many times as many questions a figure needs; twice as many, where it has no interval yet."""
    enough = MIN_UNITS / seen.n if seen.n else 2.0
    return max(enough, 2.0 if math.isnan(seen.half_width) else (seen.half_width / wanted) ** 2)


def whole_units(questions: Sequence[Question], most: int) -> tuple[list[Question], list[Question]]:
    """Return so many questions, or more where a group would be divided otherwise, and the rest."""
    block, rest = list(questions[:most]), list(questions[most:])
    while block and rest and unit(rest[0]) == unit(block[-1]):
        block.append(rest.pop(0))
    return block, rest


def in_order(questions: Sequence[Question], seed: int) -> list[Question]:
    """Return the questions in an order of the seed; those of a group follow one another as they stood."""
    return sorted(questions, key=lambda question: seeded_rank(seed, *unit(question)))


def unit(question: Question) -> tuple[str, str]:
    """Return what is drawn as one: the question, or the group that it belongs to."""
    return ("group", question.group) if question.group else ("question", question.id)
