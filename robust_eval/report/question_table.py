"""The questions of a run as a table for people: what is said of each, and which are shown where they are too many."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from robust_eval.metric.score import Floats, nearest_to_one, point
from robust_eval.record.result import Result
from robust_eval.report.question_sample import sample
from robust_eval.report.question_status import standings


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
            max(len(f"{t:g}".partition(".")[2]) for t in score.curves["accuracy"]),
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
    """What is said of every question in words: ``status``, ``type`` and ``category``; those that are empty throughout
    are left out.
    """
    columns = {
        "status": standings(result),
        "type": [question.type for question in result.asked],
        "category": [question.category for question in result.asked],
    }
    return {name: values for name, values in columns.items() if any(values)}


@dataclass(frozen=True)
class Chosen:
    """The questions that a page shows in full: their ``rows``, in the order in which they were asked, and of each kind
    how many are shown and how many there are.
    """

    rows: Sequence[int]
    kinds: Mapping[str, tuple[int, int]]


def chosen(result: Result, columns: Sequence[Column], most: int) -> Chosen:
    """All questions if they are not more than ``most``; otherwise a sample of all kinds (:func:`standings`), and of
    each of both ends and the middle of the first column.
    """
    kinds = standings(result)
    values = columns[0].numbers if columns else np.full(len(kinds), np.nan)
    rows = sample(kinds, values, most).tolist()
    shown, there = Counter(kinds[row] for row in rows), Counter(kinds)
    return Chosen(rows, {kind: (shown[kind], number) for kind, number in there.most_common()})


def as_data(column: Column, chosen: Sequence[int]) -> dict[str, Any]:
    """The column of the chosen questions for a page; "Infinity" and null are what JSON has no numbers for."""
    numbers = column.numbers[list(chosen)].tolist()
    return {
        "name": column.name,
        "label": column.label,
        "about": column.about,
        "digits": column.digits,
        "levels": list(column.levels),
        "numbers": [None if np.isnan(value) else "Infinity" if np.isinf(value) else value for value in numbers],
    }
