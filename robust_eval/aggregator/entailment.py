"""Aggregator by mutual entailment, by a model of natural language inference or a judge.

Kuhn, Gal, Farquhar, "Semantic Uncertainty: Linguistic Invariances for Uncertainty Estimation in Natural Language
Generation", ICLR 2023, algorithm 1 (docs/methods.md, §2).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

import pyarrow as pa

from robust_eval.aggregator.base import Aggregator, with_votes
from robust_eval.answer import ABSTENTION, rows, with_columns
from robust_eval.error import UserError
from robust_eval.grader.base import Grader
from robust_eval.model.base import Request
from robust_eval.model.local.sentences import entailed
from robust_eval.question import Question
from robust_eval.runtime.text import first_line
from robust_eval.store.stored_model import NotStoredError

JUDGE = "judge"
"""Value of ``model`` for the judge of the run."""
Same = Callable[[Sequence[tuple[Question, str, str]]], Sequence[bool]]
"""Function that returns True for each pair of equivalent answers to a question."""


@dataclass
class Entailment(Aggregator):
    """aggregator=entailment: an answer joins the first cluster whose first answer it entails and is entailed by."""

    model: str
    """Natural language inference model: a folder or a hub id of a cross-encoder with a label "entailment"; judge:
    the model of grader=judge."""

    def __post_init__(self) -> None:
        if not self.model:
            raise ValueError("model must name a natural language inference cross-encoder: a folder or a hub id")
        self._pairs = self._unsure = 0
        self._grader: Grader | None = None

    @property
    def uses_judge(self) -> bool:
        return self.model == JUDGE

    def with_judge(self, grader: Grader) -> "Entailment":
        other = copy(self)
        other._grader = grader
        return other

    def aggregate(self, questions: Sequence[Question], graded: pa.Table) -> pa.Table:
        """Aggregate by entailment; see :class:`robust_eval.aggregator.base.Aggregator`.

        Distinct labels of the grader are compared, the most frequent first, each by the question and the first line of
        an answer with the label. Letters are unchanged. The first answer with the winning label is elected.
        """
        names = clustered(list(_forms(questions, graded)), self._mean_the_same)
        labels = [names.get((name, label), label) for name, label in rows(graded, "question_id", "label")]
        relabelled = with_columns(graded, {"label": labels})
        return with_votes(questions, relabelled, lambda pairs: [0.0] * len(pairs))

    def max_comparisons(self, questions: Sequence[Question], graded: pa.Table) -> list[tuple[Request, int]]:
        """Return the first request for each question with the maximum number of them, as if no answers were equivalent.

        Questions whose comparisons are all in the store are omitted.
        """
        if not self.uses_judge or self._grader is None:
            return []
        pending = []
        for forms in _forms(questions, graded):
            try:
                clustered([forms], self._mean_the_same)
            except NotStoredError:
                first, second, *_ = forms.texts.values()
                (request,) = self._grader.comparison_requests([(forms.question, first, second)])
                pending.append((request, len(forms.texts) * (len(forms.texts) - 1)))
        return pending

    def _mean_the_same(self, pairs: Sequence[tuple[Question, str, str]]) -> list[bool]:
        """Return True for each pair that entails one another; the reverse is tested only if the first holds."""
        self._pairs += len(pairs)
        one_way = self._entailed(pairs)
        held = [pair for pair, holds in zip(pairs, one_way, strict=True) if holds]
        other_way = iter(self._entailed([(question, two, one) for question, one, two in held]) if held else ())
        return [holds and next(other_way) for holds in one_way]

    def _entailed(self, pairs: Sequence[tuple[Question, str, str]]) -> list[bool]:
        if not self.uses_judge:
            return entailed(self.model, [(f"{q.text} {one}", f"{q.text} {other}") for q, one, other in pairs])
        if self._grader is None:
            raise UserError("aggregator.model=judge needs the judge of a run")
        verdicts = self._grader.are_equivalent(pairs)
        self._unsure += verdicts.count(None)
        return [bool(same) for same in verdicts]

    def description(self) -> dict[str, Any]:
        """Return the numbers of compared pairs, and of those without a verdict, which count as different."""
        return {"pairs": self._pairs, "unsure": self._unsure}


class DistinctLabels(NamedTuple):
    """Distinct labels of the answers to a question, the most frequent first, with an answer for each."""

    question: Question
    texts: Mapping[str, str]


def clustered(forms: Sequence[DistinctLabels], same: Same) -> dict[tuple[str, str], str]:
    """Return the name of each label's cluster by entailment, by question: its first, and so its most frequent, label.

    In each round, one call compares the next label of every question with the heads of its clusters.
    """
    names: dict[tuple[str, str], str] = {}
    heads: list[list[str]] = [[] for _ in forms]
    for labels in zip_longest(*(each.texts for each in forms)):
        due = [each for each in zip(forms, labels, heads, strict=True) if each[1] is not None]
        pairs = [(each.question, each.texts[head], each.texts[label]) for each, label, firsts in due for head in firsts]
        verdicts = iter(same(pairs) if pairs else ())
        for each, label, firsts in due:
            equivalent = [head for head in firsts if next(verdicts)]
            if not equivalent:
                firsts.append(label)
            names[each.question.id, label] = next(iter(equivalent), label)
    return names


def _forms(questions: Sequence[Question], graded: pa.Table) -> Iterator[DistinctLabels]:
    """Yield the distinct labels of each question without choices whose answers have two or more."""
    free = {question.id: question for question in questions if not question.choices}
    counts: dict[str, Counter[str]] = {}
    texts: dict[tuple[str, str], str] = {}
    for question_id, label, text, answer in rows(graded, "question_id", "label", "text", "answer"):
        if question_id in free and label not in (None, ABSTENTION):
            counts.setdefault(question_id, Counter())[label] += 1
            texts.setdefault((question_id, label), first_line(answer or text))
    for question_id, of_question in counts.items():
        if len(of_question) > 1:
            order = sorted(of_question, key=lambda label: (-of_question[label], len(label), label))
            yield DistinctLabels(free[question_id], {label: texts[question_id, label] for label in order})
