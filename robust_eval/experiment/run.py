"""Run of an experiment: load questions → sample answers → grade them → score the graded table → record."""

import errno
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import DictConfig, OmegaConf

from robust_eval.answer import SCHEMA
from robust_eval.config.checks import composed_as_run
from robust_eval.config.config import Config
from robust_eval.error import UserError
from robust_eval.experiment.answer_source import SampledSource, answer_source
from robust_eval.experiment.load import load
from robust_eval.experiment.models import Models
from robust_eval.experiment.plan import check_plan
from robust_eval.experiment.run_record import (
    DeferredRun,
    answer_differences,
    exact_curves_of,
    locked,
    record_result,
    record_start,
    run_labels,
    run_name,
    write_verdicts,
)
from robust_eval.experiment.sampling_loop import SamplingLoop
from robust_eval.experiment.schedule import QuestionScheduler, SequentialScheduler
from robust_eval.experiment.scoring import UNANSWERABLE, Scoring, labels_of
from robust_eval.metric.label_correction import NAME as CORRECTED
from robust_eval.question import Question, fingerprint
from robust_eval.report.score_presentation import present
from robust_eval.runtime.console import heartbeat, silence_tqdm
from robust_eval.runtime.process import Stopwatch
from robust_eval.runtime.versions import origin
from robust_eval.store.base import Entries, NoStore
from robust_eval.tracking.base import Run
from robust_eval.tracking.flat_settings import flat, resolved_values
from robust_eval.tracking.result import Result
from robust_eval.tracking.run_folder import ANSWERS

log = logging.getLogger(__name__)


class FinishedExperiment(NamedTuple):
    """Result of an experiment's run, the size of its store in words, and for a repeated run a sentence on the
    differences between its answers and the earlier ones.
    """

    result: Result
    store_size: str
    answer_differences: str | None


def run(
    config: Config,
    composed: DictConfig,
    folder: Path,
    swept: str | None = None,
    repeated: Path | None = None,
    make_schedule: Callable[[Sequence[Question]], QuestionScheduler] | None = None,
) -> FinishedExperiment:
    """Run one experiment; write its answers, tables, figures and report into ``folder`` and the tracker.

    ``composed`` is Hydra's configuration, for the record; ``swept`` are the overrides of a job of a sweep. With
    ``repeated``, the folder of an earlier run, all answers are sampled anew and compared with the earlier ones.
    ``make_schedule`` makes the schedule of the questions; the default takes all, or as many as ``target_half_width``
    needs. Raises UserError for mistakes of the user; a run with requests is then recorded as failed. Raises
    NothingKeptError, after writing the status of the questions, if none is kept.
    """
    name = ", ".join(filter(None, (f"{config.model.name} on {config.dataset.name}", swept)))
    mlruns = Path(config.paths.mlruns)
    tracking, engine = config.tracking, config.engine
    store = config.store if repeated is None else NoStore()
    composed = composed_as_run(composed, config)
    settings = flat(OmegaConf.to_container(composed, resolve=True))
    watch = Stopwatch()
    silence_tqdm()
    with locked(folder, composed), heartbeat(lambda: f"{name}: still running"), ExitStack() as recorded:

        def start(labels: Mapping[str, object]) -> Run:
            with watch.stage("tracking"):
                record = recorded.enter_context(tracking.run(run_name(labels, swept), mlruns))
                record_start(settings, labels, composed, folder, record)
            return record

        deferred_run = DeferredRun(start, run_labels(settings))
        try:
            with store.open() as entries, engine.open():
                result = _measure(config, name, settings, entries, folder, deferred_run, watch, make_schedule)
                size = entries.size()
            record_result(result, folder, deferred_run.record)
        except KeyboardInterrupt:
            log.warning("stopped; %s", store.again())
            raise
        except OSError as problem:
            if not _is_of_run(problem, (folder, mlruns)):  # but of a user's function or object
                raise
            reason = f"{problem.filename or folder}: {os.strerror(problem.errno) if problem.errno else problem}"
            raise UserError(f"{reason}; {store.again()}") from problem
        same = None
        if repeated is not None:
            same = answer_differences(repeated / ANSWERS, folder / ANSWERS)
            deferred_run.record.tags({"repeated": str(repeated), "repeated.answers": same})
    return FinishedExperiment(result, size, same)


def _is_of_run(problem: OSError, folders: Sequence[Path]) -> bool:
    """Return True for the error of a full or broken disk, and of a file in the folders of a run."""
    if problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
        return True
    file = Path(str(problem.filename)).resolve()
    return problem.filename is not None and any(file.is_relative_to(folder.resolve()) for folder in folders)


def _measure(
    config: Config,
    name: str,
    settings: dict[str, Any],
    entries: Entries,
    folder: Path,
    deferred_run: DeferredRun,
    watch: Stopwatch,
    make_schedule: Callable[[Sequence[Question]], QuestionScheduler] | None,
) -> Result:
    """Load, sample, grade and score. The run starts with the first request, or the first cached greedy answers."""
    with watch.stage("questions"):
        loaded = load(config.dataset, config.grader, config.question_types)
        labels = labels_of(config.labels, folder)
    seed, by_target = config.seed, config.target_half_width
    models = Models(config, entries, watch, deferred_run.start)
    reply_grader, aggregator = models.with_judge()
    source, metrics = answer_source(config, models.measured, reply_grader)
    if isinstance(source, SampledSource):
        deferred_run.labels |= {"method": "+".join(metrics), "sampler": "+".join(source.samplers)}
    scoring = Scoring.of(metrics, source, seed, labels)
    aggregators = scoring.aggregators(aggregator)
    check_plan(loaded.questions, config.rewriter, models.writer, source, aggregators, bool(by_target), watch)
    rewriter, questions = config.rewriter.within(models.writer.temperatures), loaded.questions
    if not rewriter.asks:  # recorded rewrites are added to all questions at once
        with watch.stage("rewriting"):
            questions = rewriter.rewrite(questions, models.writer, seed).questions
    loop = SamplingLoop(
        questions=questions,
        source=source,
        reply_grader=reply_grader,
        rewriter=rewriter,
        models=models,
        aggregators=aggregators,
        seed=seed,
        deferred_run=deferred_run,
        folder=folder,
        watch=watch,
    )
    schedule: QuestionScheduler = (make_schedule or partial(SequentialScheduler, by_target, seed=seed))(questions)
    digest = fingerprint(questions, loaded.original.edition)
    log.info("data set %s: %s", config.dataset.name, loaded.in_words(digest))
    deferred_run.then(lambda run: run.dataset(config.dataset.name, config.dataset.source, questions, digest))
    state, scores = loop.run(schedule, scoring.scores)
    with watch.stage("scoring"):  # of the reported intervals
        uncorrected = {name: estimate for each in scores.values() for name, estimate in each.metrics().items()}
        corrected = scoring.corrected(state.questions, state.kept, state.all_graded, uncorrected)
    if corrected is not None:
        scores[CORRECTED] = corrected
    graded_unanswerable = SCHEMA.empty_table()
    if isinstance(source, SampledSource) and source.unanswerable is not None:
        with watch.stage("sampling"):
            answers = source.answers_to_unanswerable()
        with watch.stage("grading"):
            graded_unanswerable = reply_grader.grade(source.unanswerable.questions, answers.table)
        scores[UNANSWERABLE] = scoring.unanswerable(source.unanswerable.questions, graded_unanswerable)
    scores = {name: present(score, state.questions) for name, score in scores.items()}
    if models.cache_hits and not models.prompts_asked:
        log.info("all answers are in the store: no request was sent, and the model was not loaded")
    write_verdicts(reply_grader.grader, folder)
    metadata = models.description() | source.description() | loaded.description(digest)
    parts = [("loaded.grader", reply_grader.grader.description()), ("loaded.aggregator", aggregator.description())]
    parts += [("undefined", score.reasons) for score in scores.values()]
    metadata |= {f"{prefix}.{name}": value for prefix, values in parts for name, value in values.items()}
    deferred_run.record.parameters(resolved_values(settings, metadata))
    unasked_reason, limit = schedule.end_reason, source.max_questions
    if len(state.kept) == limit:
        unasked_reason = (f"sampler.max_questions={limit}", "Raise sampler.max_questions to ask more.")
    return Result(
        name=name,
        description=settings | metadata,
        questions=state.questions,
        kept=state.kept,
        rewritten=state.rewritten,
        graded_baseline=state.graded_baseline,
        graded_by_sampler=state.graded_by_sampler,
        graded_unanswerable=graded_unanswerable,
        exact_curves=exact_curves_of(state.answers_by_sampler),
        sampler_of={metric: sampler for metric, sampler in scoring.sampler_of.items() if metric in scores},
        estimator_of={sampler: each.estimator for sampler, each in scoring.conditions.items()},
        scores=scores,
        tokenizer=config.model.tokenizer_file(),
        prompts_asked=models.prompts_asked,
        cache_hits=models.cache_hits,
        watch=watch,
        unasked=len(schedule.left),
        unasked_reason=unasked_reason,
        origin=origin(deferred_run.record.run_id),
        served_names=models.served(),
    )
