"""Answers of a finished run, in the order of an export."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple

from robust_eval.answer import GREEDY, NO_REPLY, SAMPLER, SamplingMetadata, read_sampling_metadata, temperature_name
from robust_eval.experiment.scoring import LabelledRun
from robust_eval.interop.export_mark import mark_of
from robust_eval.prompt.arrangement import read_arrangement
from robust_eval.prompt.pushback import form_of_all
from robust_eval.question import LETTERS, Question
from robust_eval.runtime.text import printable
from robust_eval.stats.estimate import Estimate
from robust_eval.tracking.flat_settings import settings_that_count
from robust_eval.tracking.run_folder import ANSWERS


class ConditionAnswers(NamedTuple):
    """Answers of a finished run to a question under a condition: rows of ``graded.parquet``, by trial."""

    question: Question
    sampler: str
    rewrite: int
    temperature: float
    rows: list[dict[str, Any]]
    name: str
    """Unique name in printable characters; for the first condition of a question, its id."""

    @property
    def wording(self) -> str:
        """Text of the question as sent: its own, or that of its rewrite if the run has it."""
        is_recorded = 0 < self.rewrite <= len(self.question.rewrites)
        return self.question.rewrites[self.rewrite - 1] if is_recorded else self.question.title

    @property
    def arranged(self) -> Question:
        """The question with its choices in the order shown."""
        arrangement = read_arrangement(self.rows[0]["form"])
        return self.question if arrangement is None else arrangement.of(self.question)

    def mark(self, metadata: SamplingMetadata) -> dict[str, Any]:
        """Return the mark of the answers for an export, without the sampler if they are greedy."""
        sampler = None if self.sampler == GREEDY else self.sampler
        return mark_of(self.question, self.rewrite, self.temperature, sampler, metadata)


@dataclass(frozen=True)
class FinishedAnswers:
    """Answers of a finished run, read from its folder."""

    labelled: LabelledRun
    metadata: SamplingMetadata

    @classmethod
    def read(cls, folder: Path) -> "FinishedAnswers":
        """Read a run's answers to export; UserError where it has not finished, or is damaged."""
        labelled = LabelledRun.read(folder)
        file = folder / ANSWERS
        metadata = read_sampling_metadata(file) if file.is_file() else None
        lines = labelled.run.settings.get("model.prompt_style") != "chat"
        return cls(labelled, SamplingMetadata(lines, {}) if metadata is None else metadata)

    @property
    def model(self) -> str:
        """Name of the model of a finished run."""
        return str(self.labelled.run.settings["model.name"])

    @property
    def task(self) -> str:
        """Name of the data set of a finished run, the task of an export."""
        return str(self.labelled.run.settings["dataset.name"])

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the finished run that results depend on, flat."""
        return settings_that_count(self.labelled.run.settings)

    @cached_property
    def metrics(self) -> dict[str, Estimate]:
        """The finished run's declared metrics with a finite value, each with its interval if that is finite."""
        run = self.labelled.run
        finite = {name: one for name, one in run.metrics.items() if run.spec(name) and math.isfinite(one.value)}
        return {name: one if math.isfinite(one.high) else Estimate(one.value) for name, one in finite.items()}

    @cached_property
    def conditions(self) -> list[ConditionAnswers]:
        """The answers of the run under each condition: by question in the order of the run, greedy answers first."""
        questions = self.labelled.questions
        position = {question_id: number for number, question_id in enumerate(questions)}
        rows_by_condition: dict[tuple[str, str, int, str], list[dict[str, Any]]] = {}
        for row in self.labelled.graded.sort_by("trial").to_pylist():
            key = (row["question_id"], row[SAMPLER], row["rewrite"], temperature_name(row["temperature"]))
            rows_by_condition.setdefault(key, []).append(row)
        # in the order of the run: some metrics read the first sampler that they can
        samplers = list(dict.fromkeys([GREEDY, *self.labelled.graded[SAMPLER].unique().to_pylist()]))

        def order(condition: tuple[str, str, int, str]) -> tuple[Any, ...]:
            question_id, sampler, rewrite, _ = condition
            t = rows_by_condition[condition][0]["temperature"]
            return position[question_id], samplers.index(sampler), math.inf if t != t else t, rewrite

        names: set[str] = set()
        conditions: list[ConditionAnswers] = []
        for condition in sorted(rows_by_condition, key=order):
            (question_id, sampler, rewrite, t), rows = condition, rows_by_condition[condition]
            name = printable(question_id)
            if conditions and conditions[-1].question.id == question_id:
                form = form_of_all(rows[0]["form"]) if rows[0]["form"] else f"rewrite {rewrite}"
                name += f" t={t}" + (f" {form}" if rewrite else "") + (f" {sampler}" if len(samplers) > 2 else "")
            numbered = chain([name], (f"{name} ({number})" for number in count(2)))  # ids may be equal when printable
            name = next(each for each in numbered if each not in names)
            names.add(name)
            conditions.append(
                ConditionAnswers(questions[question_id], sampler, rewrite, rows[0]["temperature"], rows, name)
            )
        return conditions

    def by_question(self) -> Iterator[tuple[str, dict[str, float]]]:
        """Yield each metric of a finished run that is a mean over questions, and its defined values by question."""
        run = self.labelled.run
        ids = run.questions["question_id"].to_pylist()
        for metric in run.question_metrics:
            values = zip(ids, run.values(metric), strict=True)
            yield metric, {name: float(value) for name, value in values if value == value}

    @property
    def enumerated(self) -> bool:
        """True if the answers of the run are weighted by their probabilities."""
        return any(each.estimator == "exact" for each in self.labelled.conditions().values())


def right_answers(question: Question) -> list[str]:
    """Return the accepted answers to a question, or the letter of the right choice."""
    if question.choices:
        return [] if question.correct is None else [LETTERS[question.correct]]
    return list(question.answers)


def verdict(row: dict[str, Any]) -> float | None:
    """Return the verdict on an answer: 1 for right, 0 for wrong, None without a reply or a verdict."""
    return None if row["correct"] is None or row["outcome"] in NO_REPLY else float(row["correct"])
