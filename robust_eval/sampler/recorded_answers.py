"""Recorded answers: a file that is graded and scored like the answers of a run."""

import hashlib
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from robust_eval.answer import (
    GREEDY,
    SAMPLER,
    Answers,
    EarlyStopping,
    SamplingMetadata,
    read_sampling_metadata,
    temperatures_of,
)
from robust_eval.dataset.answer_file import COLUMNS, AnswerFile, groups
from robust_eval.error import UserError
from robust_eval.prompt.arrangement import read_arrangement
from robust_eval.prompt.pushback import read_pushback
from robust_eval.prompt.reasoning_budget import read_reasoning
from robust_eval.question import Question
from robust_eval.runtime.text import enumerated, excerpt
from robust_eval.sampler.base import ORDER, REASONING, TURN, NothingKeptError, ordered_answers
from robust_eval.sampler.known_facts import SELECTIONS

log = logging.getLogger(__name__)


@dataclass
class RecordedAnswers:
    """Recorded answers: a file with an answer a row, as the source of a run's answers.

    Its baseline answers are those at temperature 0, or those of the sampler ``greedy``: the most frequent answers of a
    model without temperature 0.
    """

    file: str
    """Parquet, CSV, TSV or JSON Lines, by its suffix; ``answers.parquet`` of any run is such a file."""
    columns: Any = None
    """Map from column names to those in the file, for example {text: reply}; null: the file uses these names."""
    temperature: float | None = None
    """Temperature of all answers in a file without a temperature column; .nan: the model's default."""
    selection: str = "none"
    """Selection of questions. exact_match: the answer at temperature 0 equals an accepted answer; contains: the
    grader finds it right; none: all questions are kept."""

    baseline_name = "recorded"
    max_questions = None
    profile_sentence = ""
    at_own_temperature = False

    def __post_init__(self) -> None:
        self.columns = {} if self.columns is None else self.columns
        if not isinstance(self.columns, dict) or not all(isinstance(name, str) for name in self.columns.values()):
            raise ValueError(f"columns must be a mapping such as {{text: reply}}, not {self.columns}")
        if unknown := [name for name in self.columns if name not in COLUMNS]:
            raise ValueError(f"columns must be among {', '.join(COLUMNS)}, not {unknown[0]}")
        if len(set(self.columns.values())) < len(self.columns):
            raise ValueError(f"columns must name each column of the file only once, not {self.columns}")
        if self.temperature is not None and not (0 < self.temperature < math.inf or math.isnan(self.temperature)):
            raise ValueError(f"temperature must be finite and above 0, not {self.temperature:g}")
        if self.selection not in SELECTIONS:
            raise ValueError(f"selection must be {enumerated(SELECTIONS)}, not {self.selection}")

    def conditions(self) -> dict[str, "RecordedConditions"]:
        """Return the conditions of the recorded answers of each sampler in the file."""
        recorded = {} if self.metadata is None else self.metadata.conditions
        by_sampler = self._by_sampler()
        return {name: RecordedConditions(name, answers, recorded.get(name)) for name, answers in by_sampler.items()}

    def check(self, metric: str, top_logprobs: int) -> None:
        """Raise UserError if a metric needs ``top_logprobs`` of each recorded greedy token, and the file has none."""
        logprobs = self._baseline()["top_logprobs"]
        if top_logprobs and logprobs.null_count == len(logprobs):
            raise UserError(
                f"metric={metric} needs a greedy answer (temperature 0) with top_logprobs to each fact, but "
                f"{self.file} has none: add them, or choose another metric"
            )

    def description(self) -> dict[str, Any]:
        """Return the hash of the file of recorded answers, for the record."""
        with open(self.file, "rb") as content:
            return {"identity.answers.sha256": hashlib.file_digest(content, "sha256").hexdigest()}

    @property
    def metadata(self) -> SamplingMetadata | None:
        """Sampling metadata of the recorded answers; None for a file of no run."""
        return read_sampling_metadata(Path(self.file))

    @property
    def early_stopping(self) -> Mapping[str, EarlyStopping]:
        """Early-stopping rule of each sampler of the recorded answers, if it had one."""
        metadata = self.metadata
        return {} if metadata is None else metadata.early_stopping

    def check_questions(self, questions: Sequence[Question]) -> None:
        """Raise UserError if a recorded answer belongs to none of a data set's ``questions``."""
        ids = self._answers["question_id"]
        is_question = pc.is_in(ids, value_set=pa.array([question.id for question in questions], pa.string()))
        foreign = ids.filter(pc.invert(is_question))
        if len(foreign):
            raise self._file.refuse(
                pc.index(is_question, False).as_py(),
                f"{foreign[0].as_py()!r} is not the id of a question in the data set ({len(foreign.unique())} of the "
                f"{len(ids.unique())} ids in this file are not); set dataset to the questions that were answered",
            )

    def usable_questions(self, questions: Sequence[Question]) -> list[Question]:
        """Return the questions with a recorded answer."""
        ids_in_file = set(self._answers["question_id"].unique().to_pylist())
        with_answers = [question for question in questions if question.id in ids_in_file]
        if len(with_answers) < len(questions):
            log.warning("%s: %d questions without answers are left out", self.file, len(questions) - len(with_answers))
        return with_answers

    def candidates(self, questions: Sequence[Question]) -> list[Question]:
        """Return all questions: their answers are recorded."""
        return list(questions)

    def baseline(self, questions: Sequence[Question]) -> pa.Table:
        """Return the recorded baseline answers to these questions, possibly none."""
        return ordered_answers(questions, self._baseline().drop_columns(SAMPLER))

    def select(self, questions: Sequence[Question], baseline: pa.Table) -> list[Question]:
        """Return the questions with recorded answers of every sampler and a right greedy answer, by ``selection``."""
        ids_by_sampler = [set(answers["question_id"].unique().to_pylist()) for answers in self._by_sampler().values()]
        selected = set.intersection(*ids_by_sampler)
        if left_out := len(set.union(*ids_by_sampler) - selected):
            log.warning(
                "%s: %d questions that lack answers from at least one sampler are left out", self.file, left_out
            )
        if self.selection != "none":
            right = baseline["exact" if self.selection == "exact_match" else "correct"].fill_null(False)
            selected &= set(baseline["question_id"].filter(right).to_pylist())
        if not selected:
            raise NothingKeptError(
                f"none of the questions has a right answer at temperature 0 "
                f"(selection={self.selection}) and answers from every sampler in {self.file}; "
                "sampler.recorded.selection=none needs no right answer"
            )
        return [question for question in questions if question.id in selected]

    def answers(self, questions: Sequence[Question], baseline: pa.Table | None = None) -> dict[str, Answers]:
        """Return the recorded answers to these questions of each sampler in the file, without the baseline."""
        by_sampler = self._by_sampler().items()
        return {name: Answers(ordered_answers(questions, table)) for name, table in by_sampler}

    @property
    def _file(self) -> AnswerFile:
        return AnswerFile(Path(self.file), self.columns)

    def _by_sampler(self) -> dict[str, pa.Table]:
        """Return the recorded answers of each sampler without the baseline, in the order of their first ones."""
        sampled = self._answers.filter(pc.field(SAMPLER) != GREEDY)
        names = sampled[SAMPLER].unique().to_pylist()
        return {name: sampled.filter(pc.equal(sampled[SAMPLER], name)).drop_columns(SAMPLER) for name in names}

    def _baseline(self) -> pa.Table:
        return self._answers.filter(pc.field(SAMPLER) == GREEDY)

    @cached_property
    def _answers(self) -> pa.Table:
        """All recorded answers, in the order of the file, which is read once. UserError where they cannot be scored."""
        try:
            Path(self.file).stat()
        except OSError as problem:
            raise UserError(f"sampler.recorded.file: {self.file} cannot be read: {problem.strerror}") from problem
        table = self._file.read(self.temperature)
        for row, form in enumerate(table["form"].to_pylist()):
            if form and not any(read(form) for read in _FORMS):
                raise self._file.refuse(
                    row,
                    f"{self.columns.get('form', 'form')!r} must be the order and form of choices ('choices CAB', "
                    "'choices ABC as numbers'), a pushback ('turn 1, doubt: Are you sure?') or a reasoning budget "
                    f"('trace 0, budget 64'), not {excerpt(form)}",
                )
        baseline = pc.equal(table[SAMPLER], GREEDY).to_numpy(zero_copy_only=False)
        if baseline.all():
            raise UserError(
                f"{self.file} contains only baseline answers (temperature 0, or sampler {GREEDY}), which are not "
                "scored: add others"
            )
        first = np.zeros(len(baseline), dtype=bool)
        first[np.unique(groups(baseline, table["question_id"]), return_index=True)[1]] = True
        other = baseline & ((table["rewrite"].to_numpy() > 0) | ~first)
        if other.any():
            raise self._file.refuse(
                int(np.argmax(other)),
                f"a question must have only one baseline answer (temperature 0, or sampler {GREEDY}; rewrite 0): "
                "remove the others",
            )
        if self.selection != "none" and not baseline.any():
            raise UserError(
                f"sampler.recorded.selection={self.selection} needs answers at temperature 0, but {self.file} has "
                "none: set sampler.recorded.selection=none"
            )
        return table


_FORMS = (read_arrangement, read_pushback, read_reasoning)
"""Readers of the column ``form``, one for each kind of condition."""


class RecordedConditions:
    """Conditions of a sampler's recorded answers: axis and estimator as ``recorded`` by the run, else from the answers
    and the sampler's name.
    """

    def __init__(self, name: str, answers: pa.Table, recorded: Sequence[str] | None = None) -> None:
        self.temperatures = temperatures_of(answers)
        weight = answers["weight"].to_numpy()
        same = groups(answers["question_id"], answers["rewrite"], answers["temperature"])
        first = np.unique(same, return_index=True)[1][same]
        drawn = np.allclose(weight, weight[first], rtol=1e-6, atol=0)
        self.estimator = recorded[1] if recorded else "trials" if drawn else "exact"
        max_answers = float(np.bincount(groups(answers["question_id"], answers["temperature"])).max())
        self.repetitions = math.inf if self.estimator == "exact" else max_answers
        rewritten = answers.filter((pc.field("rewrite") > 0) & pc.is_null(pc.field("form"))).num_rows
        axis_of_file = "rewrite" if rewritten else "temperature" if len(self.temperatures) > 1 else "trial"
        forms = answers["form"].unique().to_pylist()
        self.arranges_choices, has_turns, has_reasoning = (any(map(read, forms)) for read in _FORMS)
        arranged = ORDER if self.arranges_choices and not rewritten else None
        axis = TURN if has_turns else REASONING if has_reasoning else arranged or _AXES.get(name, axis_of_file)
        self.axis = recorded[0] if recorded else axis


_AXES = {"temperature_sweep": "temperature", "exact": "temperature", "perturbation": "rewrite", "repetition": "trial"}
"""Axes of the samplers of this package whose answers have no form, by their names in the files of a run."""
