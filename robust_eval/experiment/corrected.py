"""Metrics corrected by human labels, of a running and of a finished run."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from robust_eval.answer import GREEDY, SAMPLER, SCHEMA, EarlyStopping, read_sampling_metadata
from robust_eval.config.schema import SCHEMAS, register
from robust_eval.error import UserError, first_line
from robust_eval.labels.human_labels import count_labelled, with_human_labels
from robust_eval.labels.label_file import read_labels
from robust_eval.metric.greedy import greedy_correction
from robust_eval.metric.label_correction import corrected_score
from robust_eval.metric.score import Measured, Metric, Score
from robust_eval.question import Question
from robust_eval.report import presentations
from robust_eval.runs.finished_runs import FinishedRun, read_questions, read_run
from robust_eval.runtime.parquet_files import read_parquet
from robust_eval.stats.estimate import Estimate
from robust_eval.tracking.run_folder import ANSWERS, CONFIG, GRADED, LABELS_FILE, read_configuration

log = logging.getLogger(__name__)


def labels_of(file: str | None, folder: Path) -> pa.Table | None:
    """Return the labels in a file, by default that in the run's folder; None without any. UserError if it is broken."""
    run_labels = folder / LABELS_FILE
    if file is None and not run_labels.is_file():
        return None
    return read_labels(Path(file or run_labels))


class Scored(NamedTuple):
    """Scored run that labels can correct.

    ``asked`` and ``kept`` are questions; ``graded`` has the answers of each sampler, those at temperature 0 under
    :data:`~robust_eval.answer.GREEDY`; ``read`` names the sampler whose answers each of the ``metrics`` reads, and
    ``early_stopping`` maps samplers to their early-stopping rules. ``uncorrected`` are the metrics without labels.
    """

    metrics: Mapping[str, Metric]
    asked: Sequence[Question]
    kept: Sequence[Question]
    graded: Mapping[str, pa.Table]
    read: Mapping[str, str]
    early_stopping: Mapping[str, EarlyStopping]
    uncorrected: Mapping[str, Estimate]
    seed: int

    def corrected(self, labels: pa.Table) -> Score | None:
        """Return the metrics that the labels correct, as one score; None if they correct none."""
        number = count_labelled(self.graded, labels)
        if not number:
            log.warning("no metric is corrected: none of the %d labels matches an answer of this run", labels.num_rows)
            return None
        tables = with_human_labels(self.graded, labels)
        corrections = [greedy_correction(self.asked, tables[GREEDY])] if tables[GREEDY].num_rows else []
        for name, sampler in self.read.items():
            measured = Measured(tables[GREEDY], tables[sampler], early_stopping=self.early_stopping.get(sampler))
            corrections.append(self.metrics[name].corrected(self.kept, measured, self.seed))
        score = corrected_score(corrections)
        if score is None:
            return None
        return replace(score, presentation=presentations.corrected(score, corrections, self.uncorrected, number))


class LabelledRun(NamedTuple):
    """Finished run for labels: the ``graded`` answers of all samplers, and the questions by id."""

    folder: Path
    run: FinishedRun
    graded: pa.Table
    questions: Mapping[str, Question]

    @classmethod
    def read(cls, folder: Path) -> "LabelledRun":
        """Read a run from its folder; UserError for an unfinished or damaged run."""
        run = read_run(folder)
        if not (folder / GRADED).is_file():
            raise UserError(f"{folder} has no {GRADED}, which holds the answers to label: name a finished run")
        try:
            graded = read_parquet(folder / GRADED)
        except (OSError, pa.ArrowException) as problem:
            raise UserError(f"{folder / GRADED} cannot be read: {first_line(problem)}") from problem
        lacking = [name for name in (*SCHEMA.names, SAMPLER) if name not in graded.column_names]
        if lacking:
            raise UserError(f"{folder / GRADED} has no column {lacking[0]}, which every run writes: repeat the run")
        return cls(folder, run, graded, {question.id: question for question in read_questions(run)})

    def by_sampler(self) -> dict[str, pa.Table]:
        """Return the graded answers of each sampler, after those at temperature 0, if any."""
        column = self.graded[SAMPLER]
        names = [name for name in column.unique().to_pylist() if name != GREEDY]
        return {name: self.graded.filter(pc.equal(column, name)) for name in (GREEDY, *names)}

    def corrected(self, labels: pa.Table) -> Score | None:
        """Return the metrics that labels correct; see :meth:`Scored.corrected`."""
        metrics, graded = self._metrics(), self.by_sampler()
        samplers = [name for name in graded if name != GREEDY]
        metadata = read_sampling_metadata(self.folder / ANSWERS)
        questions = list(self.questions.values())
        scored = Scored(
            metrics=metrics,
            asked=questions,
            kept=[question for question, is_kept in zip(questions, self.run.kept(), strict=True) if is_kept],
            graded=graded,
            read={name: _source(metric, samplers) for name, metric in metrics.items()},
            early_stopping=metadata.early_stopping if metadata else {},
            uncorrected=self.run.metrics,
            seed=int(self.run.settings["seed"]),
        )
        return scored.corrected(labels)

    def _metrics(self) -> dict[str, Metric]:
        """Return the metrics of the run with its settings, except metrics that are not registered here."""
        register()
        metrics: dict[str, Metric] = {}
        for name, settings in (read_configuration(self.folder / CONFIG).get("metric") or {}).items():
            if name not in SCHEMAS["metric"]:
                log.warning("metric=%s is not registered: its metrics are not corrected", name)
                continue
            try:
                metrics[name] = SCHEMAS["metric"][name](**(settings or {}))
            except (TypeError, ValueError) as problem:
                raise UserError(f"{self.folder / CONFIG}: metric.{name}: {first_line(problem)}") from problem
        return metrics


def _source(metric: Metric, samplers: Sequence[str]) -> str:
    """Return the sampler whose answers a metric read: the first with the metric's axis, or else the first."""
    axes = {name: getattr(SCHEMAS["sampler"].get(name), "axis", None) for name in samplers}
    return next((name for name, axis in axes.items() if axis == metric.axis), samplers[0])
