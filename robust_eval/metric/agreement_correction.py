"""How right raters are, corrected by the labels that people gave to some answers (docs/methods.md, §5)."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from robust_eval.metric.agreement_presentation import FIGURES
from robust_eval.metric.label_correction import add_corrected_curve, as_estimate, corrected_figure, corrected_share
from robust_eval.metric.metric_spec import point
from robust_eval.metric.score import PERSON_WHOLE, Correction
from robust_eval.question import Question
from robust_eval.stats.reliability import QuestionRobustness

CORRECTED = ("accuracy", "plurality", "difficulty", "worst", "best")
DECLARED = tuple(
    corrected_figure(figure, f"agreement.corrected.{name}")
    for figure in FIGURES
    for name in CORRECTED
    if figure.name == f"agreement.{name}"
)
WHOLE = ("plurality", "worst", "best")
"""Figures of a question for which all of its raters must be labelled."""
LEAST_QUESTIONS = 2
"""Questions that are labelled whole, without which nothing is known of how these figures scatter."""
NOT_WHOLE = "needs questions of which every answer is labelled (label --by question)"


def rater_correction(
    questions: Sequence[Question],
    graded: pa.Table,
    by_grader: Sequence[tuple[float, QuestionRobustness]],
    by_people: Sequence[tuple[float, QuestionRobustness]],
) -> Correction:
    """Return the corrected figures by temperature.

    ``by_grader`` and ``by_people`` hold the figures of each question at each temperature, the latter where all its
    raters are labelled; NaN elsewhere.
    """
    found = Correction(declared=DECLARED)
    original = np.asarray((graded["rewrite"].to_numpy() == 0) & (graded["trial"].to_numpy() == 0))
    add_corrected_curve(found, "agreement.corrected.accuracy", "agreement.accuracy", questions, graded, chosen=original)
    add_corrected_curve(found, "agreement.corrected.difficulty", "agreement.difficulty", questions, graded)
    for name in WHOLE:
        curve = {}
        for (t, judged), (_, people) in zip(by_grader, by_people, strict=True):
            one, other = getattr(judged, name), getattr(people, name)
            labelled = int(np.count_nonzero(~np.isnan(one) & ~np.isnan(other)))
            if labelled < LEAST_QUESTIONS:
                found.uncorrected[point(f"agreement.{name}", t)] = NOT_WHOLE
                continue
            corrected = point(f"agreement.corrected.{name}", t)
            curve[t] = as_estimate(corrected_share(one, other, questions))
            found.of[corrected], found.labels[corrected] = point(f"agreement.{name}", t), labelled
        if curve:
            found.curves[f"agreement.corrected.{name}"] = curve
    return found


def labelled_whole(graded: pa.Table) -> pa.Table:
    """Return the answers with what people say of them as the verdict, where their question is labelled whole; no
    verdict elsewhere.
    """
    whole = graded[PERSON_WHOLE].to_pylist()
    right = pa.array([None if label in (None, -1) else bool(label) for label in whole], pa.bool_())
    return graded.set_column(graded.schema.get_field_index("correct"), "correct", right)
