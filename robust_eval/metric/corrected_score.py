"""All that labels say of a run, as one score: each figure beside what it is corrected by them."""

import math
from collections.abc import Mapping, Sequence

from robust_eval.metric.estimate import Estimate, interval
from robust_eval.metric.figure import Figure, at_words, curve_and_temperature, declared
from robust_eval.metric.judged import labels_to_halve
from robust_eval.metric.presentation import PaperTable, Presentation
from robust_eval.metric.score import Correction, Score
from robust_eval.runtime.text import number

NAME = "corrected"
"""What the score is called among those of a run."""
HEADER = ("figure", "by the grader", "95 % interval", "corrected", "95 % interval", "labels", "labels to halve it")


def corrected_score(corrections: Sequence[Correction], figures: Mapping[str, Estimate], labels: int) -> Score | None:
    """Return what some ``corrections`` found as a score; None where no label was of an answer that counts.

    ``figures`` are those of the run under their flat names, which are shown beside them, and ``labels`` says how many
    answers have one.
    """
    score = Score()
    declarations: list[Figure] = []
    for each in corrections:
        score.values |= each.values
        score.curves |= each.curves
        declarations += each.declared
    score.declared = declarations
    found = score.figures()
    if all(math.isnan(estimate.value) for estimate in found.values()):
        return None
    of = {name: of for each in corrections for name, of in each.of.items()}
    number_of = {name: count for each in corrections for name, count in each.labels.items()}
    rows = [
        _row(name, declarations, found[name], figures.get(of[name], Estimate(math.nan)), number_of[name])
        for name in score.telling().figures()
        if name in of and not math.isnan(found[name].value)
    ]
    title = f"Corrected for the errors of the grader, by the labels of {labels:,} answers"
    lacking: dict[str, list[str]] = {}
    for each in corrections:
        for name, why in each.uncorrected.items():
            lacking.setdefault(why, []).append(name)
    claims = [f"uncorrected {', '.join(names)}: {why}" for why, names in lacking.items()]
    tables = [PaperTable(title, HEADER, rows)]
    score.presentation = Presentation("Corrected by labels", columns=[], tables=tables, notes=claims, tables_alone=True)
    return score


def _row(name: str, declarations: Sequence[Figure], corrected: Estimate, plain: Estimate, labels: int) -> list[str]:
    about = declared(name, declarations)
    form, label = (about.form, about.label.rpartition(",")[0]) if about else (".3f", name)
    at = curve_and_temperature(name)
    halve = labels_to_halve(labels, corrected.high - corrected.low, plain.high - plain.low)
    return [
        label + (f" {at_words(at[1])}" if at else ""),
        number(plain.value, form),
        interval(plain),
        number(corrected.value, form),
        interval(corrected),
        f"{labels:,}",
        "" if math.isnan(halve) else "more questions" if math.isinf(halve) else f"{halve:,}",
    ]
