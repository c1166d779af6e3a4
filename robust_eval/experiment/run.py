"""Load questions → sample answers → grade them → score the graded table → record the run."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from omegaconf import DictConfig, OmegaConf

from robust_eval.answer import GREEDY, EarlyStopping, concat_by_sampler, write_parquet
from robust_eval.config.config import Config
from robust_eval.dataset.selection import Selection
from robust_eval.error import UserError
from robust_eval.experiment.corrected import Scored, labels_of
from robust_eval.experiment.load import Loaded, load
from robust_eval.experiment.models import Models
from robust_eval.experiment.plan import asking_judge, check_plan
from robust_eval.experiment.run_record import (
    DeferredRun,
    compared,
    curves_of,
    describe,
    owned,
    report,
    run_name,
    write_question_status,
)
from robust_eval.experiment.sampling_loop import RunState, SampledSource, SamplingLoop, answer_source, clustered_by
from robust_eval.experiment.schedule import QuestionScheduler, SequentialScheduler
from robust_eval.metric.answer_sources import sources
from robust_eval.metric.greedy import greedy_accuracy
from robust_eval.metric.label_correction import NAME as CORRECTED
from robust_eval.metric.profile import METHODS, OPTIONAL_METHODS, profile
from robust_eval.metric.score import Measured, Metric, Score
from robust_eval.question import Question, fingerprint
from robust_eval.report.presentations import present
from robust_eval.rewriter.base import Rewritten
from robust_eval.runtime.console import heartbeat, silence_tqdm
from robust_eval.runtime.process import Stopwatch, origin
from robust_eval.sampler.base import Conditions
from robust_eval.store.base import Entries, NoStore
from robust_eval.tracking.base import Run
from robust_eval.tracking.flat_settings import flat, resolved_values
from robust_eval.tracking.result import Result
from robust_eval.tracking.run_folder import ANSWERS, GRADED, VERDICTS

log = logging.getLogger(__name__)


class FinishedExperiment(NamedTuple):
    """Finished experiment: its ``result``, the size of the ``store`` in words, and for a repeated run the comparison of
    its ``answers`` with the earlier ones.
    """

    result: Result
    store: str
    answers: str | None


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
    settings = flat(OmegaConf.to_container(composed, resolve=True))
    watch = Stopwatch()
    silence_tqdm()
    with owned(folder, composed), heartbeat(lambda: f"{name}: still running"), ExitStack() as recorded:

        def start() -> Run:
            with watch.stage("tracking"):
                record = recorded.enter_context(tracking.run(run_name(settings, swept), mlruns))
                describe(settings, composed, folder, record)
            return record

        deferred_run = DeferredRun(start)
        try:
            with store.open() as entries, engine.open():
                result = _measure(config, name, settings, entries, folder, deferred_run, watch, make_schedule)
                size = entries.size()
            report(result, folder, deferred_run())
        except KeyboardInterrupt:
            log.warning("stopped; %s", store.again())
            raise
        except OSError as problem:
            reason = f"{problem.filename or folder}: {os.strerror(problem.errno) if problem.errno else problem}"
            raise UserError(f"{reason}; {store.again()}") from problem
        same = None
        if repeated is not None:
            same = compared(repeated / ANSWERS, folder / ANSWERS)
            deferred_run().tags({"repeated": str(repeated), "repeated.answers": same})
    return FinishedExperiment(result, size, same)


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
    models = Models(config.model, config.rewriter, config.grader, config.engine, entries, watch, deferred_run)
    grader, aggregator = models.with_judge(config.grader, config.aggregator, config.seed)
    reply_grader, metrics = replace(config.reply_grader, grader=grader), config.metric
    source = answer_source(config.recorded, config.sampler, metrics, models.measured, reply_grader, config.seed)
    profile_sentence = ""
    if isinstance(source, SampledSource):
        metrics, profile_sentence = {**source.metrics}, source.profile
    conditions = source.conditions()
    read = sources(metrics, conditions)
    comparing, may_end_early = asking_judge(aggregator, metrics, conditions), bool(config.target_half_width)
    check_plan(loaded.questions, config.rewriter, models.writer, source, comparing, may_end_early, watch)

    loop = SamplingLoop(
        questions=loaded.questions,
        source=source,
        reply_grader=reply_grader,
        rewriter=config.rewriter,
        models=models,
        clusters=clustered_by(aggregator, metrics, read),
        seed=config.seed,
        deferred_run=deferred_run,
        folder=folder,
        watch=watch,
    )
    by_target = partial(SequentialScheduler, config.target_half_width, seed=config.seed)
    schedule: QuestionScheduler = (make_schedule or by_target)(loop.questions)
    scored = partial(score, metrics, config.seed, read, conditions, source.early_stopping, labels, profile_sentence)
    identified = partial(_identified, config.dataset, loaded, deferred_run)
    state, scores, digest = _sample(loop, schedule, scored, identified)
    if not state.kept:
        if scores:
            write_question_status(state.questions, scores, folder, deferred_run())
        loop.raise_if_none_selected(state)
    scores = schedule.reported(scores)
    models.release_writer()
    if models.cache_hits and not models.asked:
        log.info("all answers are in the store: nothing was asked, and the model was not loaded")

    if grader.uses_model:
        write_parquet(grader.verdict_table(), folder / VERDICTS)
    described = models.description() | source.identity() | loaded.description(digest)
    described |= {f"loaded.grader.{name}": value for name, value in grader.description().items()}
    described |= {f"loaded.aggregator.{name}": value for name, value in aggregator.description().items()}
    described |= {f"undefined.{name}": reason for each in scores.values() for name, reason in each.reasons.items()}
    deferred_run().parameters(resolved_values(settings, described))
    return Result(
        name=name,
        description=settings | described,
        asked=state.questions,
        kept=state.kept,
        rewritten=state.rewritten,
        baseline=state.baseline,
        graded=state.graded,
        curves=curves_of(state.answers),
        sources={metric: sampler for metric, sampler in read.items() if metric in scores},
        scores=scores,
        tokenizer=models.measured.config.tokenizer_file(),
        prompts_asked=models.asked,
        cache_hits=models.cache_hits,
        watch=watch,
        unasked=len(schedule.left),
        origin=origin(deferred_run().run_id),
        served_names=models.served(),
    )


def _sample(
    loop: SamplingLoop,
    schedule: QuestionScheduler,
    scored: Callable[[RunState], dict[str, Score]],
    identified: Callable[[Sequence[Question]], str],
) -> tuple[RunState, dict[str, Score], str]:
    """Sample, grade and score block by block until the schedule ends.

    Return the state of the run, its scores and the fingerprint of the data, which ``identified`` records.
    """
    state, scores, digest = RunState(Rewritten([])), dict[str, Score](), ""
    while not loop.full and (block := schedule.next(scores)):
        rewritten = loop.rewrite(block)
        if not schedule.left:
            loop.models.release_writer()
        digest = digest or identified(loop.questions if schedule.left else rewritten.questions)
        state = loop.answer(rewritten)
        write_parquet(concat_by_sampler({GREEDY: state.baseline, **state.graded}), loop.folder / GRADED)
        with loop.watch.stage("scoring"):
            scores = scored(state)
        if progress := schedule.in_words(scores):
            log.info("target_half_width: %s", progress)
    return state, scores, digest


def _identified(dataset: Selection, loaded: Loaded, deferred_run: DeferredRun, questions: Sequence[Question]) -> str:
    """Return the fingerprint of the data; log it now, and record it when the run starts."""
    digest = fingerprint(questions, loaded.original.edition)
    log.info("data set %s: %s", dataset.name, loaded.in_words(digest))
    deferred_run.then(lambda record: record.dataset(dataset.name, dataset.source, questions, digest))
    return digest


def score(
    metrics: Mapping[str, Metric],
    seed: int,
    read: Mapping[str, str],
    conditions: Mapping[str, Conditions],
    early_stopping: Mapping[str, EarlyStopping],
    labels: pa.Table | None,
    profile_sentence: str,
    state: RunState,
) -> dict[str, Score]:
    """Score the answers of a run with each metric.

    ``read`` maps metrics to the sampler of their answers, ``early_stopping`` samplers to their early-stopping rules.
    The greedy accuracy is that of all questions; metrics score the kept ones. A metric whose sampler asked nothing,
    because no question has choices, has no score. Human ``labels`` add the score of the metrics that they correct.
    ``profile_sentence`` is set for a profile without temperatures.
    """
    kept, baseline = state.kept, state.baseline

    def measured(sampler: str) -> Measured:
        sampled, graded = state.answers[sampler], state.graded[sampler]
        return Measured(baseline, graded, sampled.curves, conditions[sampler].estimator, early_stopping.get(sampler))

    read = {name: sampler for name, sampler in read.items() if kept and sampler in state.answers}
    scores = {name: metrics[name].score(kept, measured(sampler), seed) for name, sampler in read.items()}
    methods = METHODS[1:] if profile_sentence else METHODS
    if len({read[metric] for metric in methods if metric in read}) == len(methods):  # each has separate answers
        scores = {"profile": profile(kept, scores, seed, profile_sentence), **scores}
        joined = [name for name in (*METHODS, *OPTIONAL_METHODS) if name in read]
        if not profile_sentence and len(joined) < len(METHODS) + len(OPTIONAL_METHODS):
            log.info("the profile is of %d methods: %s", len(joined), ", ".join(joined))
    elif read.keys() >= {*METHODS} and len(state.graded) > 1:
        log.info("no profile: %s", ", ".join(f"metric={metric} reads {part}" for metric, part in read.items()))
    scores = {name: present(each, kept) for name, each in scores.items()}
    if baseline.num_rows:  # recorded answers need not have any
        scores[GREEDY] = present(greedy_accuracy(state.questions, baseline), state.questions)
    if labels is not None and kept:
        graded = {GREEDY: baseline, **state.graded}
        uncorrected = {name: estimate for each in scores.values() for name, estimate in each.metrics().items()}
        scored = Scored(metrics, state.questions, kept, graded, read, early_stopping, uncorrected, seed)
        if (corrected := scored.corrected(labels)) is not None:
            scores[CORRECTED] = corrected
    return scores
