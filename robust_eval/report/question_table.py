"""The questions of a run as a table for people: what is said of each, and which are shown where they are too many."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robust_eval.metric.metric_spec import HEADLINE, curve_and_temperature, nearest_to_one, point
from robust_eval.metric.presentation import Column
from robust_eval.metric.score import Score
from robust_eval.report.compressed import packed
from robust_eval.report.question_details import cut
from robust_eval.runs.question_status import standings
from robust_eval.runtime.text import printable_lines
from robust_eval.stats.interval import Floats
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


def sample(kinds: Sequence[str], values: Floats, most: int) -> NDArray[np.intp]:
    """Return rows of at most ``most`` questions of every kind, in their order; always the same of the same questions.

    Each kind has the same number of places, and what a small one leaves free the larger ones share. Of a kind that has
    to be cut a third of the places goes to its lowest ``values`` (n,), a third to its highest, and the rest to
    questions spread evenly over those between, undefined values (NaN) among them; equal values are taken at random.

    >>> sample(["kept", "kept", "wrong", "kept", "kept"], np.array([0.4, 0.1, np.nan, 0.2, 0.3]), 4).tolist()
    [0, 1, 2, 3]
    """
    random = np.random.default_rng(0)
    members = {kind: np.flatnonzero(np.array(kinds) == kind) for kind in sorted(set(kinds))}
    places = _places({kind: len(rows) for kind, rows in members.items()}, most)
    taken = [_taken(random.permutation(rows), values, places[kind]) for kind, rows in members.items()]
    return np.sort(np.concatenate(taken)) if taken else np.zeros(0, dtype=np.intp)


def _places(sizes: dict[str, int], most: int) -> dict[str, int]:
    """Return how many of each kind are taken: the smallest kinds first, each the share that is left for it."""
    places: dict[str, int] = {}
    for left, kind in zip(range(len(sizes), 0, -1), sorted(sizes, key=lambda kind: sizes[kind]), strict=True):
        places[kind] = min(sizes[kind], (most - sum(places.values())) // left)
    return places


def _taken(rows: NDArray[np.intp], values: Floats, places: int) -> NDArray[np.intp]:
    ranked = rows[np.argsort(values[rows], kind="stable")]  # undefined values come last
    known = len(rows) - int(np.isnan(values[rows]).sum())
    ends = min(places, known) // 3
    between = np.concatenate([ranked[ends : known - ends], ranked[known:]])
    spread = places - 2 * ends
    middle = between[np.arange(spread) * len(between) // max(spread, 1)]
    return np.concatenate([ranked[:ends], middle, ranked[known - ends : known]])


INDEX_LIMIT = 8_000_000
"""Characters that the index may take of a page, compressed: 100,000 questions take 3 to 7 million."""
TEXT = 400
"""Characters of the text of a question that is shown in full."""
TEXTS = (TEXT, 100, 50, 0)
"""Characters of the texts of the others: the first of these with which the index fits into the limit."""


class Index(NamedTuple):
    """The index as it stands in a page: ``data`` compressed; ``texts`` are the characters of a text that it holds, and
    ``whole`` says whether it holds all questions, or only those that are shown in full.
    """

    data: str
    texts: int
    whole: bool


def question_index(result: Result, shown: Sequence[int], headline: Column | None) -> Index:
    """Id, text, what is said in words, and the headline figure of every question; the questions that are not ``shown``
    with the beginnings of their texts alone, or not at all, where the index would be too large.
    """
    every = range(len(result.asked))
    for texts in TEXTS:
        data = packed(_index(result, every, set(shown), texts, headline))
        if len(data) <= INDEX_LIMIT:
            return Index(data, texts, True)
    return Index(packed(_index(result, shown, set(shown), TEXT, headline)), TEXT, False)


def _index(
    result: Result,
    rows: Sequence[int],
    shown: set[int],
    texts: int,
    headline: Column | None,
) -> dict[str, Any]:
    asked = [result.asked[row] for row in rows]
    return {
        "shown": [place for place, row in enumerate(rows) if row in shown],
        "ids": [printable_lines(question.id) for question in asked],
        "texts": [
            cut(question.title, TEXT) if row in shown else printable_lines(question.title[:texts])
            for row, question in zip(rows, asked, strict=True)
        ],
        "words": {name: _coded([values[row] for row in rows]) for name, values in word_columns(result).items()},
        "headline": as_data(headline, rows)["numbers"] if headline else [],
    }


def _coded(values: Sequence[str]) -> list[list[Any]]:
    """[the different values, the place of each value among them]."""
    places = {value: place for place, value in enumerate(dict.fromkeys(values))}
    return [[printable_lines(value) for value in places], [places[value] for value in values]]
