"""A metric of one's own, which the package does not know."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robust_eval.metric.metric_spec import DETAIL, ComparisonView, MetricSpec
from robust_eval.metric.score import Measured, Metric, Score, grid, question_groups
from robust_eval.question import Question
from robust_eval.stats.interval import SHARE

HELD = MetricSpec(
    "held",
    "questions answered right every time",
    limits=SHARE,
    more_is_better=True,
    short="right every time",
    of_question="right every time",
    comparison=ComparisonView(),
)
BELOW = MetricSpec(
    "held.below{}",
    "right every time below t = {}",
    limits=SHARE,
    more_is_better=True,
    shown=DETAIL,
    explained="What is right below t is right at every temperature before it.",
    comparison=ComparisonView(number="temperature", companion="held.length", note="Read it with the length."),
)
LENGTH = MetricSpec("held.length", "length of the question", unit="characters", form=".0f", shown="run")


@dataclass
class Held(Metric):
    """The share of questions that are answered right every time, by temperature."""

    axis = "temperature"

    def score(self, questions: Sequence[Question], measured: Measured, seed: int) -> Score:
        score = Score(question_ids=[question.id for question in questions], specs=[HELD, BELOW, LENGTH])
        answers = grid(score.question_ids, measured.graded)
        held = np.where(answers.replies > 0, answers.correct == answers.replies, np.nan)
        score.add_curve(HELD.name, held, answers.temperatures, question_groups(questions))
        for place, t in enumerate(answers.temperatures.tolist()[1:], 1):
            score.add_mean(BELOW.name.format(f"{t:g}"), held[:, :place].min(axis=1), question_groups(questions))
        score.add_mean(LENGTH.name, np.array([len(question.text) for question in questions], dtype=float), None)
        return score
