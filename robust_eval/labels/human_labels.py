"""Human labels and a grader's verdicts on the same answers, and the agreement of graders and labellers."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from robust_eval.answer import ABSTAINED, rows
from robust_eval.labels.label_records import LABEL_VALUES, RIGHT, UNCLEAR, Record, label_places, place_of
from robust_eval.labels.labelling import ANSWER, QUESTION
from robust_eval.metric.grader_agreement import Agreement
from robust_eval.metric.score import HUMAN_ABSTENTION, HUMAN_LABEL, HUMAN_LABEL_WEIGHT, HUMAN_LABEL_WHOLE, verdicts
from robust_eval.question import Question
from robust_eval.stats.agreement import cohen_kappa


def with_human_labels(
    graded: Mapping[str, pa.Table], labels: pa.Table, questions: Collection[Question] = ()
) -> dict[str, pa.Table]:
    """Return the graded tables of each sampler with their human labels (:data:`HUMAN_LABEL` and the other columns).

    An abstention is wrong, but right if the question has no answer. Annotators who never use the label say nothing
    about abstentions: they labelled them wrong. Where several people labelled an answer, the label that more than half
    of them gave counts. An answer has no label where there is no such majority, or where it says unclear. An answer
    drawn from a stratum weighs the size of the stratum over the number of its labels. A table takes its labels from one
    sample, the one that has most of them: answers drawn, whole questions, or what somebody else chose.
    """
    unanswerable = {question.id for question in questions if question.is_unanswerable}
    by_place, by_text = _votes(labels, list(graded), unanswerable)
    return {name: _with_columns(name, table, by_place, by_text) for name, table in graded.items()}


def count_labelled(graded: Mapping[str, pa.Table], labels: pa.Table) -> int:
    """Return the number of answers of a run with a human label, unclear ones included."""
    by_place, by_text = _votes(labels, list(graded), ())
    return sum(
        place in by_place or (place[1], text) in by_text
        for name, table in graded.items()
        for place, text in _places(name, table)
    )


def count_of_other_replies(graded: Mapping[str, pa.Table], labels: pa.Table) -> int:
    """Return the number of labels of single answers that are ignored because the run's reply there has another text."""
    by_place = {place[:-1]: place[-1] for name, table in graded.items() for place, _ in _places(name, table)}
    number = 0
    for label in labels.to_pylist():
        texts = [
            (by_place[place[:-1]], place[-1]) for place in label_places(label, list(graded)) if place[:-1] in by_place
        ]
        number += bool(texts) and all(reply != text for reply, text in texts)
    return number


class _Votes:
    """Human labels of one answer from all labellers, and the sampling method of the answer."""

    def __init__(self, label: Mapping[str, Any]) -> None:
        self.method, self.stratum, self.size = label["drawn"], label["stratum"], label["stratum_size"]
        self.right: dict[str, float | None] = {}
        self.abstained: dict[str, float | None] = {}

    def add(self, label: Mapping[str, Any], is_unanswerable: bool, uses_abstained: bool) -> None:
        """Add a person's label to the votes, or replace an earlier one."""
        name, value = label["labeller"], label["label"]
        is_right = value == RIGHT or (value == ABSTAINED and is_unanswerable)
        abstained = is_right if is_unanswerable else value == ABSTAINED
        self.right[name] = None if value == UNCLEAR else float(is_right)
        if uses_abstained:
            self.abstained[name] = None if value == UNCLEAR else float(abstained)


def _majority(votes: Mapping[str, float | None]) -> float:
    """Return the vote of more than half of the labellers; NaN without one, and where it is None."""
    if not votes:
        return np.nan
    vote, number = Counter(votes.values()).most_common(1)[0]
    return vote if vote is not None and 2 * number > len(votes) else np.nan


_VotesByPlace = dict[tuple[str, ...], dict[str | None, _Votes]]
_VotesByText = dict[tuple[str, str], _Votes]


def _votes(labels: pa.Table, samplers: list[str], unanswerable: Collection[str]) -> tuple[_VotesByPlace, _VotesByText]:
    by_place: _VotesByPlace = {}
    by_text: _VotesByText = {}
    records = labels.to_pylist()
    use_abstained = {label["labeller"] for label in records if label["label"] == ABSTAINED}
    for label in records:
        places = label_places(label, samplers)
        of_label = [by_place.setdefault(place, {}).setdefault(label["drawn"], _Votes(label)) for place in places]
        if not places:
            of_label = [by_text.setdefault((label["question_id"], label["text"]), _Votes(label))]
        for votes in of_label:
            votes.add(label, label["question_id"] in unanswerable, label["labeller"] in use_abstained)
    return by_place, by_text


def _places(name: str, table: pa.Table) -> list[tuple[tuple[str, ...], str]]:
    """Return the place (:func:`place_of`) and the text of each answer. If its choices have another order or form, this
    precedes the text: the same letter is another answer there.
    """
    columns = ("question_id", "rewrite", "temperature", "trial", "text", "form")
    records = rows(table, *columns)
    return [(place_of(name, *place), place[-1] if form is None else f"{form}: {place[-1]}") for *place, form in records]


def _with_columns(name: str, table: pa.Table, by_place: _VotesByPlace, by_text: _VotesByText) -> pa.Table:
    judged = ~np.isnan(verdicts(table))
    places = _places(name, table)
    ids = [place[1] for place, _ in places]
    samples: dict[str | None, list[_Votes | None]] = {}
    for method in {method for votes in by_place.values() for method in votes} | ({None} if by_text else set()):
        sample = [
            (by_place.get(place, {}).get(method) or (by_text.get((place[1], text)) if method is None else None))
            if counts
            else None
            for (place, text), counts in zip(places, judged, strict=True)
        ]
        # where labelling stopped inside a question, what it has is no random part of its answers
        samples[method] = _whole(ids, judged, sample) if method == QUESTION else sample
    none: list[_Votes | None] = [None] * len(ids)
    largest = max(samples.values(), key=lambda sample: sum(votes is not None for votes in sample), default=none)
    person, abstained = (
        np.array([np.nan if votes is None else _majority(getattr(votes, name)) for votes in largest], dtype=float)
        for name in ("right", "abstained")
    )
    complete = max(
        (_whole(ids, judged, sample) for method, sample in samples.items() if method != ANSWER),
        key=lambda sample: len({question for question, votes in zip(ids, sample, strict=True) if votes}),
        default=none,
    )
    labels = [np.nan if votes is None else _majority(votes.right) for votes in complete]
    of_whole = [
        None if votes is None else -1 if np.isnan(label) else int(label)
        for votes, label in zip(complete, labels, strict=True)
    ]
    columns = {
        HUMAN_LABEL: pa.array(person, pa.float64()),
        HUMAN_ABSTENTION: pa.array(abstained, pa.float64()),
        HUMAN_LABEL_WEIGHT: pa.array(_weights(largest, person), pa.float64()),
        HUMAN_LABEL_WHOLE: pa.array(of_whole, pa.int8()),
    }
    for column, values in columns.items():
        table = table.append_column(column, values)
    return table


def _whole(ids: list[str], judged: np.ndarray[Any, Any], sample: list[_Votes | None]) -> list[_Votes | None]:
    """Return the votes of a sample on the questions that have a human label on every answer that counts."""
    incomplete = {q for q, counts, votes in zip(ids, judged, sample, strict=True) if counts and votes is None}
    return [None if question in incomplete else votes for question, votes in zip(ids, sample, strict=True)]


def _weights(sample: list[_Votes | None], person: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return one over the probability with which each human-labelled answer was drawn."""
    clear = Counter(
        votes.stratum for votes, label in zip(sample, person, strict=True) if votes is not None and label == label
    )
    is_weighted = [votes is not None and votes.method == ANSWER and clear[votes.stratum] > 0 for votes in sample]
    return np.array(
        [
            votes.size / clear[votes.stratum] if votes and by_strata else 1.0
            for votes, by_strata in zip(sample, is_weighted, strict=True)
        ]
    )


class LabellerAgreement(NamedTuple):
    """Agreement of two labellers: number of ``replies`` labelled by both, number with the ``same`` label, and Cohen's
    κ.
    """

    first: str
    second: str
    replies: int
    same: int
    kappa: float


def agreements(labels: pa.Table) -> Iterator[LabellerAgreement]:
    """Yield the agreement of each pair of labellers with common replies; every value of a label counts."""
    by_labeller: dict[str, dict[tuple[str, str], str]] = {}
    for label in labels.to_pylist():
        by_labeller.setdefault(label["labeller"], {})[label["question_id"], label["text"]] = label["label"]
    for first, second in combinations(sorted(by_labeller), 2):
        both = by_labeller[first].keys() & by_labeller[second].keys()
        counts = np.zeros((len(LABEL_VALUES), len(LABEL_VALUES)), dtype=int)
        for reply in both:
            counts[LABEL_VALUES.index(by_labeller[first][reply]), LABEL_VALUES.index(by_labeller[second][reply])] += 1
        if both:
            yield LabellerAgreement(first, second, len(both), int(np.trace(counts)), cohen_kappa(counts))


def agreement_on(records: Sequence[Record], verdicts: Mapping[str, bool]) -> Agreement:
    """Return the agreement of a grader with human labels of some records."""
    called_right = [verdicts[record.question.id] for record in records]
    return Agreement.of([record.right for record in records], called_right, [record.weight for record in records])
