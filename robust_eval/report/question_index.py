"""The index of all questions of a run, by which a page finds those that it does not show in full."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from robust_eval.metric.presentation import Column
from robust_eval.report.compressed import packed
from robust_eval.report.question_details import cut
from robust_eval.report.question_table import as_data, word_columns
from robust_eval.runtime.text import printable_lines
from robust_eval.tracking.result import Result

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
