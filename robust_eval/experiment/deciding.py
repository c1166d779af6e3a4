"""A candidate is asked its baseline's questions: all of them, or in blocks until the gate is decided."""

from collections.abc import Mapping, Sequence

import numpy as np

from robust_eval.experiment.until import Takes, in_order, unit, whole_units
from robust_eval.gate.decision import Differences, GateSettings, judge, whole
from robust_eval.gate.measured_run import MeasuredRun, shared_questions
from robust_eval.metric.metric_spec import declared
from robust_eval.metric.score import Score
from robust_eval.question import Question
from robust_eval.stats.interval import Floats

FIRST, BLOCK = 30, 10
"""Questions of the first block, and of each later one at least; later ones are a fifth of those before."""


class Deciding(Takes):
    """The questions of the ``baseline``, for a candidate: see :class:`robust_eval.experiment.until.Takes`.

    With ``early``, they come in blocks in an order of the seed, and end as soon as the intervals that hold at any time
    say PASS or FAIL. ``order`` are those taken, by id and text.
    """

    def __init__(
        self, questions: Sequence[Question], baseline: MeasuredRun, settings: GateSettings, early: bool, seed: int
    ) -> None:
        keys = {(question.id, question.title): question.key for question in questions}
        shared = set(shared_questions(baseline, keys, "the candidate"))
        own = [question for question in questions if (question.id, question.title) in shared]
        self._baseline, self._settings, self._early = baseline, settings, early
        self.left = in_order(own, seed) if early else own
        self._unit = {question.id: unit(question) for question in own}
        self._grouped = any(question.group for question in own)
        sizes: dict[tuple[str, str], int] = {}
        for each in self._unit.values():
            sizes[each] = sizes.get(each, 0) + 1
        self._largest = max(sizes.values())
        self.order: list[tuple[str, str]] = []

    def next(self, scores: Mapping[str, Score]) -> list[Question]:
        """Return the next questions; none where the gate is decided, or none is left."""
        if self.order and self._early and whole(judge(self._figures(scores), self._settings.level)) != "INCONCLUSIVE":
            return []
        most = len(self.left) if not self._early else max(BLOCK, len(self.order) // 5) if self.order else FIRST
        block, self.left = whole_units(self.left, most)
        self.order += [(question.id, question.title) for question in block]
        return block

    def in_words(self, scores: Mapping[str, Score]) -> str:
        """Say what is known of the differences; nothing where all questions are asked at once."""
        if not self._early:
            return ""
        said = [
            f"{each.name} {each.difference:+.3f} ({each.low:+.3f} to {each.high:+.3f}) {each.outcome}"
            if each.n
            else f"{each.name} unknown, as no fact is known to both"
            for each in judge(self._figures(scores), self._settings.level)
        ]
        return f"{len(self.order):,} of {len(self.order) + len(self.left):,} questions: {', '.join(said)}"

    def _figures(self, scores: Mapping[str, Score]) -> list[Differences]:
        """Return the figures as far as they are known, in the order in which questions were taken."""
        place = {question_id: row for row, (question_id, _) in enumerate(self.order)}
        groups = np.array([" ".join(self._unit[question_id]) for question_id, _ in self.order])
        rows = {key: row for row, key in enumerate(self._baseline.run.keys())}
        asked = [rows[key] for key in self.order]
        found = []
        for name, margin in self._settings.figures.items():
            score = next((score for score in scores.values() if name in score.by_question), None)
            values: Floats = np.full(len(self.order), np.nan)
            if score is not None:
                for question_id, value in zip(score.question_ids, score.by_question[name].tolist(), strict=True):
                    values[place[question_id]] = value
            about = declared(name, self._baseline.run.declared)
            sign = -1 if about is not None and about.more_is_better is False else 1
            before = self._baseline.run.values(name)[asked]
            own = groups if self._grouped else None
            found.append(Differences(name, name, margin, before, values, own, sign, True, self._largest))
        return found
