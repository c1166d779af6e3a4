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
    """Return the labels of a run: those of the file that its settings name, or in its folder; None where there are
    none. UserError where a file cannot be read.
    """
    if file is not None:
        return read_labels(Path(file))
    run_labels = folder / LABELS_FILE
    return read_labels(run_labels) if run_labels.is_file() else None


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
        """Return the metrics that the labels correct, as one score; None where they correct none."""
        number = count_labelled(self.graded, labels)
        if not number:
            log.warning("none of the %d labels matches an answer of this run: nothing is corrected", labels.num_rows)
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
    """A finished run that people label: the ``graded`` answers of each sampler, and the questions asked by their id."""

    folder: Path
    run: FinishedRun
    graded: pa.Table
    questions: Mapping[str, Question]

    @classmethod
    def read(cls, folder: Path) -> "LabelledRun":
        """Read a run from its folder; UserError where it has not finished, or is damaged."""
        run = read_run(folder)
        if not (folder / GRADED).is_file():
            raise UserError(f"{folder} has no {GRADED}, whose answers could be labelled")
        try:
            graded = read_parquet(folder / GRADED)
        except (OSError, pa.ArrowException) as problem:
            raise UserError(f"{folder / GRADED} cannot be read: {first_line(problem)}") from problem
        lacking = [name for name in (*SCHEMA.names, SAMPLER) if name not in graded.column_names]
        if lacking:
            raise UserError(f"{folder / GRADED} has no column {lacking[0]}, which a run writes")
        return cls(folder, run, graded, {question.id: question for question in read_questions(run)})

    def by_sampler(self) -> dict[str, pa.Table]:
        """Return the graded answers of each sampler; those at temperature 0 first, which may be none."""
        column = self.graded[SAMPLER]
        names = [name for name in column.unique().to_pylist() if name != GREEDY]
        return {name: self.graded.filter(pc.equal(column, name)) for name in (GREEDY, *names)}

    def corrected(self, labels: pa.Table) -> Score | None:
        """Return the metrics that labels correct; see :meth:`Scored.corrected`."""
        metrics, graded = self._metrics(), self.by_sampler()
        samplers = [name for name in graded if name != GREEDY]
        asked = read_sampling_metadata(self.folder / ANSWERS) if (self.folder / ANSWERS).is_file() else None
        questions = list(self.questions.values())
        scored = Scored(
            metrics=metrics,
            asked=questions,
            kept=[question for question, own in zip(questions, self.run.kept(), strict=True) if own],
            graded=graded,
            read={name: _source(metric, samplers) for name, metric in metrics.items()},
            early_stopping=asked.early_stopping if asked else {},
            uncorrected=self.run.metrics,
            seed=int(self.run.settings["seed"]),
        )
        return scored.corrected(labels)

    def _metrics(self) -> dict[str, Metric]:
        """Return the metrics of the run with its settings; those that are not known any more are left out."""
        register()
        metrics: dict[str, Metric] = {}
        for name, settings in (read_configuration(self.folder / CONFIG).get("metric") or {}).items():
            if name not in SCHEMAS["metric"]:
                log.warning("metric=%s is not known here: its metrics are not corrected", name)
                continue
            try:
                metrics[name] = SCHEMAS["metric"][name](**(settings or {}))
            except (TypeError, ValueError) as problem:
                raise UserError(f"{self.folder / CONFIG}: metric.{name}: {first_line(problem)}") from problem
        return metrics


def _source(metric: Metric, samplers: Sequence[str]) -> str:
    """Return the sampler whose answers a metric read: the first that varies what it is about, or the first."""
    axes = {name: getattr(SCHEMAS["sampler"].get(name), "axis", None) for name in samplers}
    return next((name for name, axis in axes.items() if axis == metric.axis), samplers[0])
