"""The protocol of aggregators, and the vote that they share."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from robust_eval.answer import NO_ANSWER, NO_REPLY, rows
from robust_eval.grader.base import Grader
from robust_eval.model.base import Request
from robust_eval.question import Question

ENSEMBLE = "ensemble"
"""The column that marks the answer voted for, of each question at each temperature."""


class Aggregator(Protocol):
    """A way of telling which answers mean the same; a dataclass whose fields are its configuration."""

    @property
    def asks(self) -> bool:
        """Whether it asks the judge."""
        return False

    def aggregate(self, questions: Sequence[Question], graded: pa.Table) -> pa.Table:
        """Give answers that mean the same one label, and add the column :data:`ENSEMBLE`; return the new table."""

    def asking(self, grader: Grader) -> "Aggregator":
        """Return the aggregator, which may ask the judge of this ``grader``."""
        return self

    def most_asked(self, questions: Sequence[Question], graded: pa.Table) -> list[tuple[Request, int]]:
        """Return what the judge may be asked of these answers: of each question the first request, and how many there
        are at most. By default it is asked nothing.
        """
        return []

    def description(self) -> dict[str, Any]:
        """Return the settings that the last aggregation used, for the record of the run."""


class Answer(NamedTuple):
    """One rater's answer to a question."""

    rewrite: int
    trial: int
    row: int
    label: str
    text: str


Rank = Callable[[Sequence[tuple[Question, str]]], Sequence[float]]
"""Scores (question, answer) pairs by how well the answer fits the question; higher is better."""


def with_votes(questions: Sequence[Question], graded: pa.Table, rank: Rank) -> pa.Table:
    """Mark the ensemble answer of each question at each temperature (docs/methods.md, §2).

    The ensemble answer is the best-ranked answer of the plurality label. A tie goes to the label of the original
    question's answer (its first trial with a label), if that is among the tied ones, else to the label with the
    best-ranked answer. Answers without a label have no vote. ``rank`` is called at most once, with the answers that can
    win; a question whose candidates share one text needs no rank.
    """
    by_id = {question.id: question for question in questions}
    ballots: dict[tuple[str, float], _Ballot] = defaultdict(_Ballot)
    columns = ("question_id", "temperature", "rewrite", "trial", "label", "text", "outcome")
    for row, (question_id, temperature, rewrite, trial, label, text, outcome) in enumerate(rows(graded, *columns)):
        if label is not None and outcome not in NO_REPLY and outcome not in NO_ANSWER:
            ballots[question_id, temperature].add(Answer(rewrite, trial, row, label, text))
    candidates = [(question_id, ballot.candidates()) for (question_id, _), ballot in ballots.items()]
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


class _Ballot:
    """The votes of one question at one temperature: the number for each label, and the first answer of each text."""

    def __init__(self) -> None:
        self._votes: Counter[str] = Counter()
        self._firsts: dict[tuple[str, str], Answer] = {}

    def add(self, answer: Answer) -> None:
        """Count an answer."""
        self._votes[answer.label] += 1
        first = self._firsts.setdefault((answer.label, answer.text), answer)
        if answer < first:
            self._firsts[answer.label, answer.text] = answer

    def candidates(self) -> list[Answer]:
        """Return the answers of the winning label, or of all tied labels if none is the original question's."""
        most = max(self._votes.values())
        winners = {label for label, count in self._votes.items() if count == most}
        first = min(self._firsts.values())
        if first.rewrite == 0 and first.label in winners:
            winners = {first.label}
        return [answer for answer in self._firsts.values() if answer.label in winners]
