"""What every aggregator can be asked, and the vote that they share."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

from robust_eval.answer import NO_ANSWER, NO_REPLY, rows
from robust_eval.question import Question

ENSEMBLE = "ensemble"
"""The column that marks, of each question at each temperature, the answer that was voted for."""


class Aggregator(Protocol):
    """A way of telling which answers mean the same; a dataclass whose fields are its configuration."""

    def aggregate(self, questions: Sequence[Question], graded: pa.Table) -> pa.Table:
        """The graded table with one label for answers that mean the same, and the column :data:`ENSEMBLE`."""


class Answer(NamedTuple):
    """One rater's answer to a question."""

    rewrite: int
    trial: int
    row: int
    label: str
    text: str


Rank = Callable[[Question, Sequence[str]], Sequence[float]]
"""How well each of some answers fits a question; the higher, the better."""


def with_votes(questions: Sequence[Question], graded: pa.Table, rank: Rank) -> pa.Table:
    """Mark the ensemble answer of each question at each temperature (METHODS §2, "Aggregator").

    It is the best-ranked answer of the plurality label. Of labels with equally many votes that of the original
    question's answer (its first trial that has a label) wins, if it is among them, else the one with the best-ranked
    answer. Answers without a label have no vote.
    """
    by_id = {question.id: question for question in questions}
    votes: dict[tuple[str, float], list[Answer]] = {}
    columns = ("question_id", "temperature", "rewrite", "trial", "label", "text", "outcome")
    for row, (question_id, temperature, rewrite, trial, label, text, outcome) in enumerate(rows(graded, *columns)):
        if label is not None and outcome not in NO_REPLY and outcome not in NO_ANSWER:
            votes.setdefault((question_id, temperature), []).append(Answer(rewrite, trial, row, label, text))
    elected = [False] * graded.num_rows
    for (question_id, _), answers in votes.items():
        elected[_elected(by_id[question_id], answers, rank).row] = True
    return graded.append_column(ENSEMBLE, pa.array(elected, pa.bool_()))


def _elected(question: Question, answers: Sequence[Answer], rank: Rank) -> Answer:
    counts = Counter(answer.label for answer in answers)
    most = max(counts.values())
    originals = sorted(answer for answer in answers if answer.rewrite == 0)
    winners = {label for label, count in counts.items() if count == most}
    if originals and originals[0].label in winners:
        winners = {originals[0].label}
    candidates = [answer for answer in answers if answer.label in winners]
    texts = list(dict.fromkeys(answer.text for answer in candidates))
    fit = dict(zip(texts, rank(question, texts) if len(texts) > 1 else [0.0], strict=True))
    return max(candidates, key=lambda answer: (fit[answer.text], -answer.rewrite, -answer.trial))
