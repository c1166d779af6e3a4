"""How much a model knows, before any pressure: the accuracy of its greedy answers to all questions asked."""

from collections.abc import Sequence

import pyarrow as pa

from robust_eval.metric.score import Score, grid, question_groups
from robust_eval.question import Question


def greedy_accuracy(asked: Sequence[Question], baseline: pa.Table, seed: int) -> Score:
    """Share of right greedy answers by the grader's verdict (``accuracy.greedy``); NaN where nothing has a gold answer.

    A question is kept for the temperatures only if its greedy answer passes the sampler's selection as well, which may
    be stricter.
    """
    score = Score(question_ids=[question.id for question in asked])
    accuracy = grid(score.question_ids, baseline, [0.0]).accuracy[:, 0]
    score.add_share("accuracy.greedy", accuracy, question_groups(asked), seed)
    return score
