"""How much a model knows, before any pressure: the accuracy of its greedy answers to all questions asked."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from robust_eval.metric.correction import add_corrected_curve, corrected_figure
from robust_eval.metric.figure import Figure
from robust_eval.metric.interval import SHARE
from robust_eval.metric.presentation import Presentation
from robust_eval.metric.score import Correction, Score, grid, question_groups
from robust_eval.question import Question

FIGURE = Figure(
    "accuracy.greedy",
    "accuracy of all greedy answers",
    limits=SHARE,
    more_is_better=True,
    short="greedy accuracy",
    ahead="knows more than",
    measures="knowledge",
)

CORRECTED = "accuracy.greedy_corrected"


def greedy_accuracy(asked: Sequence[Question], baseline: pa.Table, seed: int) -> Score:
    """Return the share of right greedy answers, ``accuracy.greedy``; NaN where nothing has a gold answer.

    A question is kept for the temperatures only if its greedy answer passes the sampler's selection as well, which may
    be stricter.
    """
    presentation = Presentation("Greedy answers", columns=[])
    score = Score([question.id for question in asked], declared=[FIGURE], presentation=presentation)
    accuracy = grid(score.question_ids, baseline).accuracy[:, 0]
    score.add_share(FIGURE.name, accuracy, question_groups(asked), seed)
    if not np.isnan(score.values[FIGURE.name].value):
        presentation.claims = [f"knows {score.formatted(FIGURE.name, '.0%')} of what it was asked"]
    return score


def greedy_correction(asked: Sequence[Question], baseline: pa.Table) -> Correction:
    """Return what labels make of :func:`greedy_accuracy`; ``baseline`` has the columns of the labels."""
    found = Correction(declared=[corrected_figure(FIGURE, CORRECTED)])
    add_corrected_curve(found, CORRECTED, FIGURE.name, asked, baseline)
    for estimates in found.curves.values():  # of the one temperature, 0
        found.values[CORRECTED] = next(iter(estimates.values()))
        found.of, found.labels = {CORRECTED: FIGURE.name}, {CORRECTED: next(iter(found.labels.values()))}
    found.curves = {}
    return found
