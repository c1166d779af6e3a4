"""Selection of the questions of a source, their order, and their scenario."""

import hashlib
import heapq
import json
import logging
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from robust_eval.dataset.record import (
    DUPLICATE_ID,
    NO_ANSWER,
    NO_CHOICES,
    NO_CONTEXT,
    TOO_MANY_CHOICES,
    Unusable,
    listed,
)
from robust_eval.error import UserError
from robust_eval.question import LETTERS, Question, Scenario, seeded_rank
from robust_eval.runtime.text import number

log = logging.getLogger(__name__)


class Questions(list[Question]):
    """Selected questions of a data set, in their order, with metadata.

    ``edition`` names the edition of the data (hub, subset, split, revision; empty for a file), ``unusable`` has the
    number of unusable records by reason.

    >>> Questions([Question("1", "What is the capital of Italy?", ("Rome",))], "", {"no answer": 2}).description()
    {'unusable.no_answer': 2}
    """

    def __init__(self, questions: Iterable[Question], edition: str, unusable: Mapping[str, int]) -> None:
        super().__init__(questions)
        self.edition = edition
        self.unusable = unusable

    def description(self) -> dict[str, Any]:
        """Return the selected questions' metadata for the record, under flat names."""
        counts = {f"unusable.{reason.replace(' ', '_')}": number for reason, number in self.unusable.items()}
        return counts | ({"edition": self.edition} if self.edition else {})


@dataclass(kw_only=True)
class Selection(ABC):
    """Base of all data sets: a source of questions and of unusable records, and the selection among them.

    A question without an id gets one from its content, the same in every run, on every machine, and from every copy of
    the data. A subclass defines ``source`` and ``read``. ValueError for a setting out of range.

    >>> class Capitals(Selection):
    ...     source = "capitals"
    ...     def read(self):
    ...         yield Question("", "What is the capital of Italy?", ("Rome",))
    >>> [question.answers for question in Capitals(name="capitals").load()]
    [('Rome',)]
    """

    name: str
    """Name of the data set in logs, tables and the tracker."""
    limit: int | None = None
    """Maximum number of questions: the first ones, or with shuffle a random sample; null: all."""
    shuffle: bool = False
    """Shuffle the questions with the seed. A larger limit then includes the questions of a smaller one."""
    shuffle_choices: bool = False
    """Shuffle the choices of each question with the seed, in the same way in every run."""
    seed: int = 0
    """Seed of both shuffles. It is independent of the seed of the run: runs with other seeds ask the same questions."""
    scenario: str | None = None
    """extractive (the question with its context), multiple_choice, or abstractive (only the question); null: depends
    on the fields of the question."""
    max_invalid_fraction: float = 0.05
    """Maximum share of records without a valid question."""

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit must be at least 1, not {self.limit}")
        if self.scenario is not None and self.scenario not in tuple(Scenario):
            raise ValueError(f"scenario must be {', '.join(Scenario)} or null, not {self.scenario}")
        if not 0 <= self.max_invalid_fraction <= 1:
            raise ValueError(f"max_invalid_fraction must be between 0 and 1, not {self.max_invalid_fraction}")

    @property
    @abstractmethod
    def source(self) -> str:
        """The source of the selected questions, for the record."""

    @abstractmethod
    def read(self) -> Iterator[Question | Unusable]:
        """Yield a question, or the reason why it is unusable, for each record of the source."""

    def edition(self) -> str:
        """Return the edition of the data; empty if their content identifies it."""
        return ""

    def load(self) -> Questions:
        """Return the selected questions; UserError if there are none, or too many records are unusable.

        The whole source is read, so that the share of unusable records does not depend on the limit.
        """
        tally = _Tally()
        usable = self._usable(tally)
        if self.shuffle:
            chosen = heapq.nsmallest(self.limit, usable, self._rank) if self.limit else sorted(usable, key=self._rank)
        else:
            chosen = list(islice(usable, self.limit))
            deque(usable, maxlen=0)  # the others are only counted
        tally.check(self)
        if not chosen:
            raise UserError(f"the data set {self.name} is empty: {self.source} contains no questions")
        if self.limit and len(chosen) < self.limit:
            log.warning("dataset.limit=%d: %s has %d questions", self.limit, self.name, len(chosen))
        if letters := Counter(LETTERS[question.correct] for question in chosen if question.correct is not None):
            shares = ", ".join(
                f"{letter} {number(letters[letter] / letters.total(), '.0%')}" for letter in sorted(letters)
            )
            log.info("positions of the right choices in %s: %s", self.name, shares)
        return Questions(chosen, self.edition(), dict(sorted(tally.reasons.items())))

    def _usable(self, tally: "_Tally") -> Iterator[Question]:
        """Yield the usable questions, each with an id: the first with each id of the source, and all without one."""
        ids: Counter[str] = Counter()
        records = self.read()
        if not isinstance(records, Iterable):
            raise UserError(f"{type(self).__qualname__}.read() must yield questions, not return {records!r:.60}")
        for record in records:
            tally.records += 1
            try:
                if isinstance(record, Unusable):
                    raise record
                if not isinstance(record, Question):
                    raise UserError(f"{type(self).__qualname__}.read() must yield questions, not {record!r:.60}")
                if len(record.choices) > len(LETTERS):
                    raise Unusable(TOO_MANY_CHOICES)
                name = record.id or _content_id(record)
                if ids[name] and record.id:
                    earlier = f"{record.id!r} is already the id of an earlier record; ids must be unique"
                    raise Unusable(DUPLICATE_ID, found=earlier)
                question = self._presented(replace(record, id=f"{name}-{ids[name] + 1}" if ids[name] else name))
            except Unusable as problem:
                tally.add(problem)
                continue
            ids[name] += 1
            yield question

    def _rank(self, question: Question) -> bytes:
        return seeded_rank(self.seed, question.id)

    def _presented(self, question: Question) -> Question:
        """Return a question in the selected scenario, with its choices shuffled if the settings require it."""
        if self.shuffle_choices and question.choices and question.correct is not None:
            indices = range(len(question.choices))
            order = sorted(indices, key=lambda index: seeded_rank(self.seed, question.id, str(index)))
            shuffled = tuple(question.choices[index] for index in order)
            question = replace(question, choices=shuffled, correct=order.index(question.correct))
        return question if self.scenario is None else _in_scenario(question, Scenario(self.scenario))


def _in_scenario(question: Question, scenario: Scenario) -> Question:
    if scenario is Scenario.MULTIPLE_CHOICE:
        if not question.choices:
            raise Unusable(NO_CHOICES)
        return replace(question, context="")
    if scenario is Scenario.EXTRACTIVE and not question.context:
        raise Unusable(NO_CONTEXT)
    accepted = question.answers
    if not accepted and question.correct is not None:
        accepted = (question.choices[question.correct],)
    if not accepted:
        raise Unusable(NO_ANSWER)
    context = question.context if scenario is Scenario.EXTRACTIVE else ""
    return replace(question, answers=accepted, choices=(), correct=None, context=context)


def _content_id(question: Question) -> str:
    """Return sixteen hexadecimal digits of the content of a question, the same in every copy of the data."""
    content = [
        *(question.text, question.category, question.context, sorted(question.answers)),
        *(question.choices, question.correct),
    ]
    return hashlib.sha256(json.dumps(content, ensure_ascii=False).encode()).hexdigest()[:16]


@dataclass
class _Tally:
    """Tally of a selection: number of records, and of the unusable ones by reason."""

    records: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)
    """Number of the first record with each reason, from 1, and its wrong content."""
    columns: tuple[Any, ...] = ()
    """Columns of the first unusable record."""

    def add(self, problem: Unusable) -> None:
        if not self.reasons:
            self.columns = problem.columns
        self.reasons[problem.reason] += 1
        self.first.setdefault(problem.reason, f"record {self.records:,}" + (problem.found and f": {problem.found}"))

    def check(self, dataset: Selection) -> None:
        """Warn of a selection's unusable records; UserError if there are too many."""
        unusable = self.reasons.total()
        if not unusable:
            return
        reasons = ", ".join(
            f"{count:,} × {reason} ({'the first is ' if count > 1 else ''}{self.first[reason]})"
            for reason, count in self.reasons.most_common()
        )
        are, the = "is" if unusable == 1 else "are", "the " if self.records > 1 else ""
        sentence = f"{unusable:,} of {the}{self.records:,} records of {dataset.source} {are} unusable: {reasons}"
        if unusable > dataset.max_invalid_fraction * self.records or unusable == self.records:
            columns = f"; the first has the columns {listed(self.columns)}" if self.columns else ""
            raise UserError(
                f"{sentence}{columns}; fix the records, or raise dataset.max_invalid_fraction "
                f"(now {dataset.max_invalid_fraction:g})"
            )
        log.warning("excluded: %s", sentence)
