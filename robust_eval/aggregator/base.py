"""Protocol of aggregators, their common vote, and the aggregator by equal text."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from robust_eval.answer import NO_ANSWER, NO_REPLY, filtered, has_outcome, rows
from robust_eval.grader.base import Grader
from robust_eval.model.base import Request
from robust_eval.question import Question

ENSEMBLE = "ensemble"
"""Column that marks the elected answer of each question at each temperature."""


class Aggregator(Protocol):
    """Base class of aggregators, which cluster equivalent answers; a dataclass whose fields are its configuration."""

    @property
    def uses_judge(self) -> bool:
        """True if the aggregator asks the judge."""
        return False

    def aggregate(self, questions: Sequence[Question], graded: pa.Table) -> pa.Table:
        """Return the table with one label for equivalent answers, and with the column :data:`ENSEMBLE`."""

    def with_judge(self, grader: Grader) -> "Aggregator":
        """Return the aggregator with the judge of this ``grader``."""
        return self

    def max_comparisons(self, questions: Sequence[Question], graded: pa.Table) -> list[tuple[Request, int]]:
        """Return the first request to the judge for each question, with the maximum number of requests; by default
        none.
        """
        return []

    def description(self) -> dict[str, Any]:
        """Return the metadata of the last aggregation, for the record of the run."""


class Answer(NamedTuple):
    """Answer of one rater to a question, for an aggregator's vote."""

    rewrite: int
    trial: int
    row: int
    label: str
    text: str


Rank = Callable[[Sequence[tuple[Question, str]]], Sequence[float]]
"""Function that scores the fit of answers in (question, answer) pairs; higher is better."""


def with_votes(questions: Sequence[Question], graded: pa.Table, rank: Rank) -> pa.Table:
    """Mark the ensemble answer of each question at each temperature by majority vote (docs/methods.md, §2).

    The ensemble answer is the best-ranked answer of the plurality label. A tie goes to the label of the original
    question's answer (its first trial with a label), if that is among the tied ones, else to the label with the
    best-ranked answer. Answers without a label have no vote. ``rank`` is called at most once, with the answers that can
    win; a question whose candidates share one text needs no rank.
    """
    by_id = {question.id: question for question in questions}
    candidates = [(question_id, _candidates(answers)) for question_id, answers in _first_answers(graded)]
    pairs: dict[tuple[str, str], None] = {}
    for question_id, answers in candidates:
        texts = dict.fromkeys((question_id, answer.text) for answer in answers)
        if len(texts) > 1:
            pairs |= texts
    ranks = rank([(by_id[question_id], text) for question_id, text in pairs]) if pairs else []
    fit = dict(zip(pairs, ranks, strict=True))
    elected = np.zeros(graded.num_rows, dtype=bool)
    for question_id, answers in candidates:
        best = min((-fit.get((question_id, answer.text), 0.0), answer) for answer in answers)
        elected[best[1].row] = True
    return graded.append_column(ENSEMBLE, pa.array(elected))


def _first_answers(graded: pa.Table) -> Iterator[tuple[str, list[tuple[Answer, int]]]]:
    """Yield each question, once a temperature, with the first answer of each label and text, and the votes for it."""
    keys = ["question_id", "temperature", "label", "text"]
    has_vote = pc.and_(graded["label"].is_valid(), pa.array(~has_outcome(graded, (*NO_REPLY, *NO_ANSWER))))
    table = graded.select([*keys, "rewrite", "trial"])
    table = filtered(table.append_column("row", pa.array(np.arange(graded.num_rows))), has_vote)
    by_place = np.lexsort((table["trial"], table["rewrite"]))
    table = table.append_column("place", pa.array(np.argsort(by_place)))
    groups = table.group_by(keys).aggregate([("place", "min"), ("place", "count"), ("row", "min")]).sort_by("row_min")
    rewrite, trial, row = (table[name].to_numpy()[by_place] for name in ("rewrite", "trial", "row"))
    conditions: dict[tuple[str, float], int] = {}
    number = [conditions.setdefault(key, len(conditions)) for key in rows(groups, "question_id", "temperature")]
    groups = groups.take(np.argsort(number, kind="stable"))
    in_order = rows(groups, *keys, "place_min", "place_count")
    for (question_id, _), group in groupby(in_order, key=itemgetter(0, 1)):
        yield (
            question_id,
            [
                (Answer(int(rewrite[place]), int(trial[place]), int(row[place]), label, text), count)
                for *_, label, text, place, count in group
            ],
        )


def _candidates(answers: Sequence[tuple[Answer, int]]) -> list[Answer]:
    """Return the answers with the label that wins the vote, or with any tied one if none is the original question's."""
    votes = Counter[str]()
    for answer, number in answers:
        votes[answer.label] += number
    highest = max(votes.values())
    winners = {label for label, count in votes.items() if count == highest}
    first, _ = min(answers)
    if first.rewrite == 0 and first.label in winners:
        winners = {first.label}
    return [answer for answer, _ in answers if answer.label in winners]


@dataclass
class EqualText(Aggregator):
    """Aggregator by equal text (aggregator=text): the grader's labels are unchanged, and no model is needed."""

    def aggregate(self, questions: Sequence[Question], graded: pa.Table) -> pa.Table:
        """Aggregate by equal text: the first answer with the winning label is elected. See :class:`Aggregator`."""
        return with_votes(questions, graded, lambda pairs: [0.0] * len(pairs))

    def description(self) -> dict[str, Any]:
        """Return nothing: the aggregator by equal text uses no model."""
        return {}
