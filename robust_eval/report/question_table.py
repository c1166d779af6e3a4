"""Questions of a run as a table for people: columns, sample, and index."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robust_eval.metric.metric_spec import HEADLINE, curve_and_temperature, nearest_to_one, point
from robust_eval.metric.presentation import Column
from robust_eval.metric.score import Score
from robust_eval.report.run_summary import category_name, type_name
from robust_eval.runs.question_status import question_statuses
from robust_eval.runtime.text import cut, packed, printable_lines
from robust_eval.stats.interval import Floats
from robust_eval.tracking.result import Result


def number_columns(result: Result) -> list[Column]:
    """Return the question table's columns of metrics over all questions, in their order."""
    row_of = {question.id: row for row, question in enumerate(result.questions)}
    columns = []
    for score in result.scores.values():
        rows = [row_of[question_id] for question_id in score.question_ids]
        for column in _default_columns(score) if score.presentation.columns is None else score.presentation.columns:
            numbers = np.full(len(result.questions), np.nan)
            numbers[rows] = column.numbers
            columns.append(replace(column, numbers=numbers))
    return columns


def _default_columns(score: Score) -> Iterator[Column]:
    """Yield a column of the question table for each headline metric that is a mean over questions; of a curve the point
    nearest to t = 1.
    """
    curves = {point(name, nearest_to_one(curve)): name for name, curve in score.curves.items() if curve}
    for name, numbers in score.by_question.items():
        spec = score.spec(name)
        if spec and spec.shown == HEADLINE and (name in curves or not curve_and_temperature(name)):
            yield Column(curves.get(name, name), spec.of_question or spec.label, spec.words, numbers)


def word_columns(result: Result) -> dict[str, list[str]]:
    """Return the word columns ``status``, ``type`` and ``category`` of the question table, without empty ones."""
    categories = [question.category for question in result.questions]
    columns = {
        "status": question_statuses(result),
        "type": [question.type and type_name(question.type) for question in result.questions],
        "category": [category_name(each, categories) for each in categories],
    }
    return {name: values for name, values in columns.items() if any(values)}


@dataclass(frozen=True)
class Chosen:
    """Questions of the table that a page shows in full: their ``rows``, in the order asked, and by status the number
    shown and the total.
    """

    rows: Sequence[int]
    kinds: Mapping[str, tuple[int, int]]


def chosen(result: Result, columns: Sequence[Column], limit: int, always: Collection[str] = ()) -> Chosen:
    """Return all questions of the table up to ``limit``, or else a sample of all statuses (:func:`question_statuses`),
    and of each from both ends and the middle of the first column, besides the questions with ids in ``always``.
    """
    statuses = question_statuses(result)
    values = columns[0].numbers if columns else np.full(len(statuses), np.nan)
    needed = [row for row, question in enumerate(result.questions) if question.id in always]
    rows = sorted({*sample(statuses, values, limit).tolist(), *needed})
    selected_counts, counts = Counter(statuses[row] for row in rows), Counter(statuses)
    return Chosen(rows, {kind: (selected_counts[kind], number) for kind, number in counts.most_common()})


def as_data(column: Column, chosen: Sequence[int]) -> dict[str, Any]:
    """Return a column with its numbers for the chosen questions, as data for a page; ∞ and NaN become "Infinity" and
    null.
    """
    numbers = column.numbers[list(chosen)].tolist()
    return {
        "name": column.name,
        "label": column.label,
        "about": column.description,
        "digits": column.digits,
        "levels": list(column.levels),
        "ofKnown": column.of_known,
        "numbers": [None if np.isnan(value) else "Infinity" if np.isinf(value) else value for value in numbers],
    }


def sample(statuses: Sequence[str], values: Floats, limit: int) -> NDArray[np.intp]:
    """Sample the rows of at most ``limit`` questions, of all statuses, in their order; the sample is deterministic.

    Each status has an equal share of the limit; what a small one does not need goes to the larger ones. Of a status
    with more questions than its share, a third have its lowest ``values`` (n,), a third its highest, and the rest are
    at even distances between them, undefined values (NaN) included; ties break at random.

    >>> sample(["kept", "kept", "wrong", "kept", "kept"], np.array([0.4, 0.1, np.nan, 0.2, 0.3]), 4).tolist()
    [0, 1, 2, 3]
    """
    random = np.random.default_rng(0)
    members = {status: np.flatnonzero(np.array(statuses) == status) for status in sorted(set(statuses))}
    shares: dict[str, int] = {}
    by_size = sorted(members, key=lambda status: len(members[status]))
    for number, status in enumerate(by_size):  # the smallest first, each up to an equal share of the rest
        shares[status] = min(len(members[status]), (limit - sum(shares.values())) // (len(by_size) - number))
    rows = [_sampled(random.permutation(rows), values, shares[status]) for status, rows in members.items()]
    return np.sort(np.concatenate(rows)) if rows else np.zeros(0, dtype=np.intp)


def _sampled(rows: NDArray[np.intp], values: Floats, number: int) -> NDArray[np.intp]:
    ranked = rows[np.argsort(values[rows], kind="stable")]  # undefined values come last
    defined = len(rows) - int(np.isnan(values[rows]).sum())
    ends = min(number, defined) // 3
    between = np.concatenate([ranked[ends : defined - ends], ranked[defined:]])
    middle = between[np.arange(number - 2 * ends) * len(between) // max(number - 2 * ends, 1)]
    return np.concatenate([ranked[:ends], middle, ranked[defined - ends : defined]])


INDEX_LIMIT = 8_000_000
"""Maximum characters of the compressed index in a page: 100,000 questions take 3 to 7 million."""
TEXT = 400
"""Maximum characters of the text of a selected question."""
TEXTS = (TEXT, 100, 50, 0)
"""Characters of the texts of the others: the first of these with which the index fits into the limit."""


class Index(NamedTuple):
    """Question index of a page: compressed ``data``, the maximum characters of ``texts``, and True if it has all
    questions, not only the selected ones.
    """

    data: str
    texts: int
    is_complete: bool


def question_index(result: Result, selected: Sequence[int], headline: Column | None) -> Index:
    """Return the question index: id, text, word columns and headline metric of every question.

    If it is too large, questions that are not ``selected`` have shortened texts or are left out.
    """
    every = range(len(result.questions))
    for texts in TEXTS:
        data = packed(_index(result, every, set(selected), texts, headline))
        if len(data) <= INDEX_LIMIT:
            return Index(data, texts, True)
    return Index(packed(_index(result, selected, set(selected), TEXT, headline)), TEXT, False)


def _index(
    result: Result, rows: Sequence[int], selected: set[int], texts: int, headline: Column | None
) -> dict[str, Any]:
    questions = [result.questions[row] for row in rows]
    return {
        "shown": [index for index, row in enumerate(rows) if row in selected],
        "ids": [printable_lines(question.id) for question in questions],
        "texts": [
            cut(question.title, TEXT) if row in selected else printable_lines(question.title[:texts])
            for row, question in zip(rows, questions, strict=True)
        ],
        "words": {name: _coded([values[row] for row in rows]) for name, values in word_columns(result).items()},
        "headline": as_data(headline, rows)["numbers"] if headline else [],
    }


def _coded(values: Sequence[str]) -> list[list[Any]]:
    """Return a column of the question index as [the distinct values, the index of each value among them]."""
    codes = {value: code for code, value in enumerate(dict.fromkeys(values))}
    return [[printable_lines(value) for value in codes], [codes[value] for value in values]]
