"""The questions of a run as a table for people: what is said of each, and which are shown where they are too many."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robust_eval.answer import rows
from robust_eval.metric.score import Floats, nearest_to_one, point
from robust_eval.result import Result

MOST = 2000
"""Questions that a page shows: those at either end where there are more."""


@dataclass(frozen=True)
class Column:
    """What is said of every question asked, in its order.

    ``numbers`` (n,) are NaN where undefined, and inf for a breaking temperature that was not found; ``levels`` are the
    values that they may have, if these are few.
    """

    name: str
    label: str
    about: str
    numbers: Floats
    digits: int = 3
    levels: Sequence[float] = ()


def number_columns(result: Result) -> list[Column]:
    """The figures of each question that its methods allow; the first ones are what a method is about."""
    return [*_temperature(result), *_rewording(result), *_repetition(result)]


def _temperature(result: Result) -> list[Column]:
    if "frs" not in result.scores:
        return []
    score = result.scores["frs"]
    table = score.tables["frs"]
    frs = next(name for name in table.column_names if name.startswith("frs_d"))
    d, k = frs.removeprefix("frs_d"), score.settings["k"]
    breaking = "breaking temperature: the lowest at which the answer is wrong more often than the threshold allows"
    return [
        Column(
            "frs",
            f"FRS (d = {d})",
            "Factual Robustness Score, 0 to 1",
            _placed(result, score.question_ids, table[frs].to_numpy()),
        ),
        Column(
            "entropy",
            "H",
            f"initial entropy of the {k} most probable tokens at each position of the greedy answer, 0 to 1",
            _placed(result, score.question_ids, table["entropy"].to_numpy()),
        ),
        Column(
            "breaking",
            "t_b",
            breaking,
            _placed(result, score.question_ids, table["breaking_temperature"].to_numpy()),
            1,
            sorted(score.curves["accuracy"]),
        ),
    ]


def _rewording(result: Result) -> list[Column]:
    if "agreement" not in result.scores:
        return []
    return [
        _figure(result, "agreement", "agreement.certainty", "agreement H_η", "normalised certainty of all raters"),
        _figure(result, "agreement", "agreement.difficulty", "raters right", "share of the raters that answer right"),
    ]


def _repetition(result: Result) -> list[Column]:
    if "certainty" not in result.scores:
        return []
    return [
        _figure(result, "certainty", "certainty.entropy", "entropy", "entropy of the repeated answers, in nats"),
        _figure(
            result, "certainty", "certainty.error_rate", "error rate", "share of the repeated answers that is wrong"
        ),
    ]


def _figure(result: Result, metric: str, curve: str, label: str, about: str) -> Column:
    """A figure by temperature, at the one nearest to 1."""
    score = result.scores[metric]
    t = nearest_to_one(score.curves[curve])
    values = _placed(result, score.question_ids, score.by_question[point(curve, t)])
    return Column(curve, label, f"{about}, at t = {t:g}", values)


def _placed(result: Result, question_ids: Sequence[str], values: Floats) -> Floats:
    """Values of some questions in the order of those asked; NaN for the others."""
    place = {question.id: row for row, question in enumerate(result.asked)}
    placed = np.full(len(result.asked), np.nan)
    placed[[place[question_id] for question_id in question_ids]] = values
    return placed


def word_columns(result: Result) -> dict[str, list[str]]:
    """What is said of every question in words: ``question``, ``answer`` (the greedy one), ``status``, ``type`` and
    ``category``; those that are empty throughout are left out.
    """
    greedy = dict(rows(result.baseline, "question_id", "text"))
    kept = {question.id for question in result.kept}
    columns = {
        "question": [question.text for question in result.asked],
        "answer": [greedy.get(question.id, "") for question in result.asked],
        "status": ["kept" if question.id in kept else "left out" for question in result.asked],
        "type": [question.type for question in result.asked],
        "category": [question.category for question in result.asked],
    }
    return {name: values for name, values in columns.items() if any(values)}


def shown(result: Result, columns: Sequence[Column], most: int = MOST) -> NDArray[np.intp]:
    """The rows of the questions that a page shows, in the order in which they were asked.

    All of them if they are not more than ``most``. Otherwise those that were kept, and of these the ones at either end
    of the first column; then the first of the others.
    """
    kept_ids = {question.id for question in result.kept}
    kept = np.array([question.id in kept_ids for question in result.asked], dtype=bool)
    if len(kept) <= most:
        return np.arange(len(kept))
    (chosen,) = np.nonzero(kept)
    if len(chosen) > most:
        values = columns[0].numbers[chosen] if columns else np.zeros(len(chosen))
        chosen = chosen[~np.isnan(values)]
        ranked = chosen[np.argsort(values[~np.isnan(values)], kind="stable")]
        half = most // 2
        chosen = np.unique(np.concatenate([ranked[:half], ranked[half - most :]]))
    others = np.setdiff1d(np.arange(len(kept)), chosen)[: most - len(chosen)]
    return np.sort(np.concatenate([chosen, others]))


def as_data(column: Column, chosen: Sequence[int]) -> dict[str, Any]:
    """The column of the chosen questions for a page; "Infinity" and null are what JSON has no numbers for."""
    numbers = column.numbers[list(chosen)].tolist()
    return {
        "name": column.name,
        "label": column.label,
        "about": column.about,
        "digits": column.digits,
        "levels": list(column.levels),
        "numbers": [
            None if np.isnan(value) else "Infinity" if np.isinf(value) else round(value, 4) for value in numbers
        ],
    }
