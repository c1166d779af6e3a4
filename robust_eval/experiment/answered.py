"""Questions and the answers to them, and how those to further questions are added."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from robust_eval.answer import SCHEMA, Answers
from robust_eval.question import Question
from robust_eval.rewriter.base import Rewritten

_Part = TypeVar("_Part", Answers, pa.Table)


class Answered(NamedTuple):
    """Questions and the answers to them, as far as they have come.

    ``rewritten`` are the questions with their rewrites, ``questions`` those of them that the run is about, ``kept``
    those that were selected by their ``greedy`` answers (graded: ``baseline``), ``answers`` those of each sampler to
    them (``graded``).
    """

    rewritten: Rewritten
    questions: Sequence[Question] = ()
    kept: Sequence[Question] = ()
    greedy: pa.Table = SCHEMA.empty_table()
    baseline: pa.Table = SCHEMA.empty_table()
    answers: Mapping[str, Answers] = MappingProxyType({})
    graded: Mapping[str, pa.Table] = MappingProxyType({})


def joined(parts: Sequence[Answered], order: Sequence[Question]) -> Answered:
    """Return all parts as one, the questions and their answers in the ``order`` in which the questions stand there."""
    if len(parts) == 1:
        return parts[0]
    place = {question.id: number for number, question in enumerate(order)}
    ids = pa.array(list(place))

    def questions(found: Iterable[Sequence[Question]]) -> list[Question]:
        return sorted((question for each in found for question in each), key=lambda question: place[question.id])

    def table(found: Iterable[pa.Table]) -> pa.Table:
        whole = pa.concat_tables(found, promote_options="default")
        return whole.take(pc.sort_indices(pc.index_in(whole["question_id"], value_set=ids)))  # which is stable

    def answers(found: Sequence[Answers]) -> Answers:
        return Answers(table(each.table for each in found), table(each.curves for each in found))

    return Answered(
        Rewritten(
            questions(part.rewritten.questions for part in parts),
            table(part.rewritten.found for part in parts),
            table(part.rewritten.replies for part in parts),
        ),
        questions(part.questions for part in parts),
        questions(part.kept for part in parts),
        table(part.greedy for part in parts),
        table(part.baseline for part in parts),
        {name: answers(found) for name, found in _by_sampler(part.answers for part in parts).items()},
        {name: table(found) for name, found in _by_sampler(part.graded for part in parts).items()},
    )


def _by_sampler(parts: Iterable[Mapping[str, _Part]]) -> dict[str, list[_Part]]:
    """Return what each sampler has in the parts; in one whose questions are not kept there is nothing."""
    found: dict[str, list[_Part]] = {}
    for part in parts:
        for name, each in part.items():
            found.setdefault(name, []).append(each)
    return found
