"""The scores of inspect_ai's samples as graded answers, which our metrics read."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from inspect_ai.scorer import SampleScore

from robust_eval.aggregator.text import EqualText
from robust_eval.answer import answer_table
from robust_eval.error import UserError
from robust_eval.harness.own_mark import MARK, marked_question
from robust_eval.inspect_tasks.marked_samples import PLANNED
from robust_eval.inspect_tasks.scoring import mark_in, temperature_in
from robust_eval.metric.score import Measured, grid
from robust_eval.question import Question
from robust_eval.stats.frs import breaking_temperature
from robust_eval.stats.interval import Floats


class ScoredAnswers:
    """The graded answers of a task; with ``known``, to the questions alone whose greedy answer is right."""

    def __init__(self, scores: Sequence[SampleScore], known: bool = False) -> None:
        marks = {(mark := mark_in(score.sample_metadata))["question"]["id"]: mark for score in scores}
        whole = answer_table([_row(score) for score in scores])
        greedy = pc.equal(whole["temperature"], 0)
        self.baseline = whole.filter(greedy)
        right = self.baseline.filter(self.baseline["correct"])["question_id"].to_pylist()
        self.questions: list[Question] = [
            marked_question(mark["question"], f"question {name}")
            for name, mark in marks.items()
            if not known or name in right
        ]
        self.planned: list[float] = next(iter(marks.values()))[PLANNED]
        sampled = pc.and_(pc.invert(greedy), pc.is_in(whole["question_id"], pa.array(self.ids, pa.string())))
        self.graded = EqualText().aggregate(self.questions, whole.filter(sampled))

    @property
    def ids(self) -> list[str]:
        """The ids of the questions."""
        return [question.id for question in self.questions]

    @property
    def measured(self) -> Measured:
        """What a metric scores."""
        return Measured(self.baseline, self.graded)

    def breaking(self, threshold: float) -> Floats:
        """Return (n,) where each fact breaks on the grid that was planned (:func:`breaking_temperature`)."""
        return breaking_temperature(grid(self.ids, self.graded, self.planned).accuracy, self.planned, threshold)


def _row(score: SampleScore) -> dict[str, Any]:
    row = (score.score.metadata or {}).get(MARK)
    if row is None:
        raise UserError("these scores hold no answers: make the task with a scorer of robust_eval, graded(by=yours)")
    return {**row, "temperature": temperature_in(row)}
