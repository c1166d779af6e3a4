"""The questions of a run as a table for people: what is said of each, and which are shown where they are too many."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from robust_eval.metric.figure import HEADLINE, curve_and_temperature, nearest_to_one, point
from robust_eval.metric.presentation import Column
from robust_eval.metric.score import Score
from robust_eval.report.question_sample import sample
from robust_eval.report.question_status import standings
from robust_eval.tracking.result import Result


def number_columns(result: Result) -> list[Column]:
    """Return the figures of each question asked, in its order, as the metrics show them."""
    place = {question.id: row for row, question in enumerate(result.asked)}
    columns = []
    for score in result.scores.values():
        rows = [place[question_id] for question_id in score.question_ids]
        for column in _headline(score) if score.presentation.columns is None else score.presentation.columns:
            numbers = np.full(len(result.asked), np.nan)
            numbers[rows] = column.numbers
            columns.append(replace(column, numbers=numbers))
    return columns


def _headline(score: Score) -> Iterator[Column]:
    """Yield a column for each headline figure that is a mean over questions; of a curve the one nearest to t = 1."""
    curves = {point(name, nearest_to_one(curve)): name for name, curve in score.curves.items() if curve}
    for name, numbers in score.by_question.items():
        about = score.about(name)
        if about and about.shown == HEADLINE and (name in curves or not curve_and_temperature(name)):
            yield Column(curves.get(name, name), about.of_question or about.label, about.words, numbers)


def word_columns(result: Result) -> dict[str, list[str]]:
    """Return what is said of every question in words: ``status``, ``type`` and ``category``; those that are empty
    throughout are left out.
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
    """Return all questions if they are not more than ``most``; otherwise a sample of all kinds (:func:`standings`), and
    of each of both ends and the middle of the first column.
    """
    kinds = standings(result)
    values = columns[0].numbers if columns else np.full(len(kinds), np.nan)
    rows = sample(kinds, values, most).tolist()
    shown, there = Counter(kinds[row] for row in rows), Counter(kinds)
    return Chosen(rows, {kind: (shown[kind], number) for kind, number in there.most_common()})


def as_data(column: Column, chosen: Sequence[int]) -> dict[str, Any]:
    """Return the column of the chosen questions for a page; "Infinity" and null are what JSON has no numbers for."""
    numbers = column.numbers[list(chosen)].tolist()
    return {
        "name": column.name,
        "label": column.label,
        "about": column.about,
        "digits": column.digits,
        "levels": list(column.levels),
        "ofKnown": column.of_known,
        "numbers": [None if np.isnan(value) else "Infinity" if np.isinf(value) else value for value in numbers],
    }
