"""Scoring of a run, and correction of scores by human labels, also in a finished run."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from robust_eval.aggregator.base import Aggregator
from robust_eval.answer import GREEDY, SAMPLER, SCHEMA, EarlyStopping, read_sampling_metadata
from robust_eval.config.schema import SCHEMAS, register
from robust_eval.error import UserError, first_line
from robust_eval.experiment.answer_source import AnswerSource
from robust_eval.experiment.sampling_loop import RunState
from robust_eval.labels.human_labels import count_labelled, count_of_other_replies, with_human_labels
from robust_eval.labels.label_records import read_labels
from robust_eval.metric.greedy import greedy_accuracy, greedy_correction
from robust_eval.metric.label_correction import abstention_rates, corrected_score
from robust_eval.metric.profile_metric import (
    ANSWERS_UNANSWERABLE,
    METHODS,
    METHODS_AT_OWN,
    OPTIONAL_METHODS,
    joins,
    profile,
)
from robust_eval.metric.reliability_metric import ANSWERED_UNANSWERABLE, TrialReliability
from robust_eval.metric.sampler_choice import choose_available_samplers, choose_samplers
from robust_eval.metric.score import Measured, Metric, Score
from robust_eval.question import Question
from robust_eval.report import score_presentation
from robust_eval.runs.finished_runs import FinishedRun, read_questions, read_run
from robust_eval.runtime.parquet_files import read_parquet
from robust_eval.sampler.base import Conditions
from robust_eval.sampler.recorded_answers import RecordedConditions
from robust_eval.stats.estimate import UNDEFINED, Estimate
from robust_eval.tracking.run_folder import ANSWERS, CONFIG, GRADED, LABELS_FILE, read_configuration

log = logging.getLogger(__name__)
UNANSWERABLE = "unanswerable"
"""Name of the score, and of the table of replies, of the questions without an answer in a profile."""


def labels_of(file: str | None, folder: Path) -> pa.Table | None:
    """Return the human labels in a file, by default that in the run's folder, or None. UserError if it is broken."""
    run_labels = folder / LABELS_FILE
    if file is None and not run_labels.is_file():
        return None
    return read_labels(Path(file or run_labels))


@dataclass(frozen=True)
class Scoring:
    """Scoring of a run: its metrics, and the sampler of the answers that each of them scores.

    ``conditions`` and ``early_stopping`` map samplers to the conditions of their answers and to their early-stopping
    rules. Human ``labels`` correct some of the metrics. ``profile_sentence`` is set for a profile that leaves something
    out because the model lacks it, ``at_own_temperature`` for a profile at the model's own temperature.
    """

    metrics: Mapping[str, Metric]
    sampler_of: Mapping[str, str]
    conditions: Mapping[str, Conditions]
    early_stopping: Mapping[str, EarlyStopping]
    seed: int
    labels: pa.Table | None = None
    profile_sentence: str = ""
    at_own_temperature: bool = False

    @classmethod
    def of(
        cls, metrics: Mapping[str, Metric], source: AnswerSource, seed: int, labels: pa.Table | None = None
    ) -> "Scoring":
        """Return the scoring of the answers of a source."""
        conditions = source.conditions()
        return cls(
            metrics,
            choose_samplers(metrics, conditions),
            conditions,
            source.early_stopping,
            seed,
            labels,
            source.profile_sentence,
            source.at_own_temperature,
        )

    def aggregators(self, aggregator: Aggregator) -> dict[str, Aggregator]:
        """Return the aggregator of each sampler whose labels a scored metric reads."""
        return {self.sampler_of[name]: aggregator for name, metric in self.metrics.items() if metric.needs_clusters}

    def scores(self, state: RunState) -> dict[str, Score]:
        """Score the answers of a run by its metrics.

        The greedy accuracy is that of all questions; metrics score the kept ones. A metric whose sampler asked nothing,
        because no question has choices, has no score.
        """
        kept, baseline, graded = state.kept, state.graded_baseline, state.graded_by_sampler

        def measured(sampler: str) -> Measured:
            estimator, rule = self.conditions[sampler].estimator, self.early_stopping.get(sampler)
            return Measured(baseline, graded[sampler], state.answers_by_sampler[sampler].exact_curves, estimator, rule)

        sampler_of = {name: sampler for name, sampler in self.sampler_of.items() if kept and sampler in graded}
        scores = {
            name: self.metrics[name].score(kept, measured(sampler), self.seed) for name, sampler in sampler_of.items()
        }
        for name, result in scores.items():
            if not isinstance(result, Score):
                raise UserError(f"metric={name}: score() must return a Score, not a {type(result).__name__}")
            for key, values in result.by_question.items():
                if len(values) != len(result.question_ids):
                    raise UserError(
                        f"metric={name}: {key} has {len(values)} values, but its Score has {len(result.question_ids)} "
                        "question_ids"
                    )
        if joins(sampler_of, METHODS_AT_OWN if self.at_own_temperature else METHODS):
            scores = {"profile": profile(kept, scores, self.seed, self.profile_sentence), **scores}
            joined = [name for name in (*METHODS, *OPTIONAL_METHODS) if name in sampler_of]
            if not self.at_own_temperature and len(joined) < len(METHODS) + len(OPTIONAL_METHODS):
                log.info("the profile combines %d methods: %s", len(joined), ", ".join(joined))
        elif sampler_of.keys() >= {*METHODS} and len(graded) > 1:
            log.info("no profile: %s", ", ".join(f"metric={name} reads {part}" for name, part in sampler_of.items()))
        if baseline.num_rows:  # recorded answers need not have any
            scores[GREEDY] = greedy_accuracy(state.questions, baseline)
        return scores

    def unanswerable(self, questions: Sequence[Question], graded: pa.Table) -> Score:
        """Return the share of answers among the graded replies to the unanswerable questions of a profile."""
        measured = TrialReliability().score(questions, Measured(graded.slice(0, 0), graded), self.seed)
        share = measured.values.get(ANSWERED_UNANSWERABLE.name, UNDEFINED)  # no reply came
        replies = graded.select(["question_id", "temperature", "trial", "text", "outcome"])
        with_reply = measured.n(ANSWERED_UNANSWERABLE.name)
        return Score(
            values={ANSWERS_UNANSWERABLE.name: share},
            of_questions={} if with_reply is None else {ANSWERS_UNANSWERABLE.name: with_reply},
            tables={UNANSWERABLE: replies},
            specs=[ANSWERS_UNANSWERABLE],
        )

    def corrected(
        self,
        asked: Sequence[Question],
        kept: Sequence[Question],
        graded: Mapping[str, pa.Table],
        uncorrected: Mapping[str, Estimate],
    ) -> Score | None:
        """Return as one score the metrics that the labels correct; None if they correct none, or there are none.

        It has its presentation already, because that also shows the ``uncorrected`` metrics.

        ``asked`` and ``kept`` are questions, ``graded`` the answers of each sampler, those at temperature 0 under
        :data:`~robust_eval.answer.GREEDY`.
        """
        labels = self.labels
        if labels is None:
            return None
        number = count_labelled(graded, labels)
        if not number:
            log.warning("no metric is corrected: none of the %d labels matches an answer of this run", labels.num_rows)
            return None
        if mismatched := count_of_other_replies(graded, labels):
            log.warning(
                "%d of %d labels are ignored: this run's replies to the same question at the same temperature "
                "and trial have a different text",
                *(mismatched, len(labels)),
            )
        tables = with_human_labels(graded, labels, asked)
        corrections = [greedy_correction(asked, tables[GREEDY])] if tables[GREEDY].num_rows else []
        for name, sampler in self.sampler_of.items():
            if sampler in tables:
                estimator, rule = self.conditions[sampler].estimator, self.early_stopping.get(sampler)
                measured = Measured(tables[GREEDY], tables[sampler], estimator=estimator, early_stopping=rule)
                corrections.append(self.metrics[name].corrected(kept, measured, self.seed))
        corrections.append(abstention_rates(asked, tables.values()))
        score = corrected_score(corrections)
        if score is None:
            return None
        return replace(score, presentation=score_presentation.corrected(score, corrections, uncorrected, number))


class LabelledRun(NamedTuple):
    """Finished run to score with labels: the ``graded`` answers of all samplers, and the questions by id."""

    folder: Path
    run: FinishedRun
    graded: pa.Table
    questions: Mapping[str, Question]

    @classmethod
    def read(cls, folder: Path) -> "LabelledRun":
        """Read a run to score with labels from its folder; UserError for an unfinished or damaged run."""
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
        """Return the labelled run's graded answers of each sampler, after those at temperature 0, if any."""
        column = self.graded[SAMPLER]
        names = [name for name in column.unique().to_pylist() if name != GREEDY]
        return {name: self.graded.filter(pc.equal(column, name)) for name in (GREEDY, *names)}

    def conditions(self) -> dict[str, RecordedConditions]:
        """Return the conditions of the labelled run's answers of each sampler, but those at temperature 0."""
        metadata, tables = read_sampling_metadata(self.folder / ANSWERS), self.by_sampler()
        recorded = metadata.conditions if metadata else {}
        return {name: RecordedConditions(name, tables[name], recorded.get(name)) for name in tables if name != GREEDY}

    def corrected(self, labels: pa.Table) -> Score | None:
        """Return the labelled run's metrics that labels correct; see :meth:`Scoring.corrected`."""
        metrics, graded, conditions = self._metrics(), self.by_sampler(), self.conditions()
        metadata = read_sampling_metadata(self.folder / ANSWERS)
        sampler_of = choose_available_samplers(metrics, conditions)
        scoring = Scoring(
            metrics={name: metrics[name] for name in sampler_of},
            sampler_of=sampler_of,
            conditions=conditions,
            early_stopping=metadata.early_stopping if metadata else {},
            seed=int(self.run.settings["seed"]),
            labels=labels,
        )
        asked = list(self.questions.values())
        kept = [question for question, is_kept in zip(asked, self.run.kept(), strict=True) if is_kept]
        return scoring.corrected(asked, kept, graded, self.run.metrics)

    def _metrics(self) -> dict[str, Metric]:
        """Return the labelled run's metrics with its settings, except those that are not registered here."""
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
