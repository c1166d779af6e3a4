"""What every aggregator can be asked, and the vote that they share."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from robust_eval.answer import NO_ANSWER, NO_REPLY, rows
from robust_eval.question import Question

ENSEMBLE = "ensemble"
"""The column that marks, of each question at each temperature, the answer that was voted for."""


class Aggregator(Protocol):
    """A way of telling which answers mean the same; a dataclass whose fields are its configuration."""

    def aggregate(self, questions: Sequence[Question], graded: pa.Table) -> pa.Table:
        """The graded table with one label for answers that mean the same, and the column :data:`ENSEMBLE`."""

    def description(self) -> dict[str, Any]:
        """What the last aggregation used, for the record."""


class Answer(NamedTuple):
    """One rater's answer to a question."""

    rewrite: int
    trial: int
    row: int
    label: str
    text: str


Rank = Callable[[Sequence[tuple[Question, str]]], Sequence[float]]
"""How well each of some answers fits the question beside it; the higher, the better."""


def with_votes(questions: Sequence[Question], graded: pa.Table, rank: Rank) -> pa.Table:
    """Mark the ensemble answer of each question at each temperature (docs/methods.md, §2).

    It is the best-ranked answer of the plurality label. Of labels with equally many votes that of the original
    question's answer (its first trial that has a label) wins, if it is among them, else the one with the best-ranked
    answer. Answers without a label have no vote. The rank is asked once, of what can win alone, and not at all where
    that has one text.
    """
    by_id = {question.id: question for question in questions}
    votes: dict[tuple[str, float], list[Answer]] = {}
    columns = ("question_id", "temperature", "rewrite", "trial", "label", "text", "outcome")
    for row, (question_id, temperature, rewrite, trial, label, text, outcome) in enumerate(rows(graded, *columns)):
        if label is not None and outcome not in NO_REPLY and outcome not in NO_ANSWER:
            votes.setdefault((question_id, temperature), []).append(Answer(rewrite, trial, row, label, text))
    candidates = [(question_id, _candidates(answers)) for (question_id, _), answers in votes.items()]
    pairs: dict[tuple[str, str], None] = {}
    for question_id, answers in candidates:
        texts = dict.fromkeys((question_id, answer.text) for answer in answers)
        if len(texts) > 1:
            pairs |= texts
    ranks = rank([(by_id[question_id], text) for question_id, text in pairs]) if pairs else []
    fit = dict(zip(pairs, ranks, strict=True))
    elected = [False] * graded.num_rows
    for question_id, answers in candidates:
        best = min((-fit.get((question_id, answer.text), 0.0), answer) for answer in answers)
        elected[best[1].row] = True
    return graded.append_column(ENSEMBLE, pa.array(elected, pa.bool_()))


def _candidates(answers: Sequence[Answer]) -> list[Answer]:
    """The answers that can win: those of the label that does, or of several that do if none is the original's."""
    counts = Counter(answer.label for answer in answers)
    most = max(counts.values())
    originals = sorted(answer for answer in answers if answer.rewrite == 0)
    winners = {label for label, count in counts.items() if count == most}
    if originals and originals[0].label in winners:
        winners = {originals[0].label}
    return [answer for answer in answers if answer.label in winners]
