"""Load questions → sample answers → grade them → score the graded table → record the run."""

import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import Timeout
from omegaconf import DictConfig, OmegaConf

from robust_eval.aggregator.base import Aggregator
from robust_eval.aggregator.text import EqualText
from robust_eval.answer import GREEDY, gathered, write_parquet
from robust_eval.config.repeatable import repeatable
from robust_eval.config.schema import Config
from robust_eval.dataset.base import Dataset
from robust_eval.engine.base import Engine
from robust_eval.error import UserError
from robust_eval.experiment.answering import Asked, Collection, Recorded
from robust_eval.experiment.beginning import Beginning
from robust_eval.experiment.plan import Stage, check, in_words, plan
from robust_eval.experiment.reproduction import compared
from robust_eval.grader.base import Grader
from robust_eval.metric.answer_sources import sources
from robust_eval.metric.greedy import greedy_accuracy
from robust_eval.metric.profile import METHODS, profile
from robust_eval.metric.score import Measured, Metric
from robust_eval.question import fingerprint
from robust_eval.question_type.classifier import with_types
from robust_eval.record.result import Result, write_summary
from robust_eval.record.run_folder import ANSWERS, CONFIG, ERROR, GRADED, LOG, QUESTIONS, SUMMARY
from robust_eval.record.settings import flat
from robust_eval.record.tracking import Run, Tracking
from robust_eval.report.figures import save_figures
from robust_eval.report.mlflow_tables import run_note, run_tables
from robust_eval.report.page import write_page
from robust_eval.report.terminal import print_job, print_summary
from robust_eval.rewriter.base import Rewriter
from robust_eval.runtime.environment import environment
from robust_eval.runtime.locks import kept_lock
from robust_eval.runtime.stopwatch import Stopwatch
from robust_eval.sampler.recorded_answers import RecordedAnswers
from robust_eval.store.base import Entries, NoStore, Store
from robust_eval.store.stored_model import StoredModel

log = logging.getLogger(__name__)


def run(
    config: Config, composed: DictConfig, folder: Path, swept: str | None = None, repeated: Path | None = None
) -> Result:
    """Run one experiment. Its answers, tables, figures and report lie in ``folder`` afterwards, and in the tracker.

    ``composed`` is the configuration as Hydra composed it, for the record. A job of a sweep has the overrides ``swept``
    to itself, and says little, because the sweep shows the figures of all. Where the configuration is that of an
    earlier run, in the folder ``repeated``, everything is asked anew and compared with what came then. Raises UserError
    for what a person can mend; the tracker then shows the run as failed, unless nothing was asked: then it leaves
    nothing.
    """
    name = ", ".join(filter(None, (f"{config.model.name} on {config.dataset.name}", swept)))
    mlruns = Path(config.paths.mlruns)
    tracking: Tracking = config.tracking
    store: Store = config.store if repeated is None else NoStore()
    engine: Engine = config.engine
    settings = flat(OmegaConf.to_container(composed, resolve=True))
    watch = Stopwatch()
    with _owned(folder, composed), ExitStack() as recorded:

        def start() -> Run:
            with watch.stage("tracking"):
                record = recorded.enter_context(tracking.run(name, mlruns))
                _describe(settings, composed, folder, record)
            return record

        begin = Beginning(start)
        try:
            with store.open() as entries, engine.open():
                result = _measure(config, name, settings, entries, folder, begin, watch)
                size = entries.size()
            _report(result, folder, begin())
        except KeyboardInterrupt:
            log.warning("stopped; %s", store.again())
            raise
        except OSError as problem:
            reason = f"{problem.filename or folder}: {os.strerror(problem.errno) if problem.errno else problem}"
            raise UserError(f"{reason}; {store.again()}") from problem
        if repeated is not None:
            same = compared(repeated / ANSWERS, folder / ANSWERS)
            begin().tags({"repeated": str(repeated), "repeated.answers": same})
    if swept is None:
        print_summary(result, folder, size, tracking.command(mlruns))
    else:
        print_job(result, folder)
    if repeated is not None:
        log.info("compared with %s: %s", repeated, same)
    return result


@contextmanager
def _owned(folder: Path, composed: DictConfig) -> Iterator[None]:
    """Hold the folder of a run; UserError where another run has it, or had it with another configuration.

    Where the run has not begun when it ends, the folder goes: it holds nothing but what was logged.
    """
    lock = kept_lock(folder.with_name(f"{folder.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout as problem:
        raise UserError(f"a run is going on in {folder}; give this one another folder (hydra.run.dir)") from problem
    try:
        file = folder / CONFIG
        if file.is_file() and file.read_text(encoding="utf-8") != repeatable(composed):
            raise UserError(f"{folder} holds a run with another configuration; give this one another (hydra.run.dir)")
        yield
    finally:
        if {path.name for path in folder.iterdir()} <= {LOG}:
            (folder / LOG).unlink(missing_ok=True)
            with suppress(OSError):
                folder.rmdir()
        Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()


def _describe(settings: dict[str, Any], composed: DictConfig, folder: Path, record: Run) -> None:
    """Write down the configuration and the environment."""
    surroundings = environment()
    for left in (ERROR, SUMMARY):  # of the same run before: it has not finished yet
        (folder / left).unlink(missing_ok=True)
    (folder / CONFIG).write_text(repeatable(composed), encoding="utf-8")
    (folder / "environment.json").write_text(json.dumps(surroundings, indent=2) + "\n", encoding="utf-8")
    record.parameters(settings)
    record.tags(surroundings)


def _measure(
    config: Config,
    name: str,
    settings: dict[str, Any],
    entries: Entries,
    folder: Path,
    begin: Beginning,
    watch: Stopwatch,
) -> Result:
    """Load, sample, grade, score. The run begins when a model is first asked, or greedy answers are found."""
    dataset: Dataset = config.dataset
    grader: Grader = config.grader
    metrics: dict[str, Metric] = config.metric
    rewriter: Rewriter = config.rewriter
    aggregator: Aggregator = config.aggregator
    with watch.stage("questions"):
        whole = dataset.load()
        questions, typed = with_types(whole, config.question_types)
    unusable = grader.unusable_aliases(questions)
    if unusable:
        log.warning("accepted answers that normalise to nothing are left out: %s", ", ".join(sorted(unusable)))
    model, writer = _models(config, entries, watch, begin)
    same = writer is model
    collection = _collection(config, model)
    conditions = collection.conditions()
    read = sources(metrics, conditions)
    if isinstance(collection, Asked):
        collection.asked(questions)  # what is wrong with them is said before rewrites are asked for
        if writer.config.remote or model.config.remote:
            with watch.stage("planning"):
                stages = plan(questions, rewriter, writer, collection, grader, config.seed)
                check(stages)
            log.info("to be asked: %s", in_words(stages))
    with watch.stage("rewriting"):
        rewritten = rewriter.rewrite(questions, writer, config.seed)
        questions = rewritten.questions
        if rewritten.replies.num_rows:
            begin.then(lambda _: write_parquet(rewritten.replies, folder / "rewriting.parquet"))
            begin.then(lambda _: write_parquet(rewritten.found, folder / "rewrites.parquet"))
    loaded = {} if same else _described("rewriter.", writer)
    asked, found = (0, 0) if same else (writer.asked, writer.found)
    del writer  # its weights make room
    digest = fingerprint(questions, whole.edition)
    recorded = list(questions)
    begin.then(lambda record: record.dataset(dataset.name, dataset.source, recorded, digest))
    left_out = "".join(f", {number:,} {reason}" for reason, number in whole.unusable.items())
    log.info("data set %s: %d questions, fingerprint %s%s", dataset.name, len(questions), digest[:12], left_out)

    questions = collection.asked(questions)
    candidates = collection.candidates(questions)
    with watch.stage("baseline"):
        greedy = collection.baseline(candidates)
        record = begin()
        write_parquet(gathered({GREEDY: greedy}), folder / ANSWERS)
        baseline = grader.grade(candidates, greedy)
        kept = collection.select(candidates, baseline)
    log.info("%s answers: %d of %d questions kept", collection.greedy, len(kept), len(candidates))
    with watch.stage("sampling"):
        answers = collection.answers(kept)
    asked, found = asked + model.asked, found + model.found
    if found and not asked:
        log.info("the run is complete in the store: nothing was asked, and the model was not loaded")
    tables = {sampler: answered.table for sampler, answered in answers.items()}
    curves = {sampler: answered.curves for sampler, answered in answers.items() if answered.curves.num_rows}
    write_parquet(gathered({GREEDY: greedy, **tables}), folder / ANSWERS)
    if curves:
        write_parquet(gathered(curves), folder / "curves.parquet")

    with watch.stage("grading"):
        meanings = {read[key] for key, metric in metrics.items() if metric.reads_labels}
        graded = {
            sampler: (aggregator if sampler in meanings else EqualText()).aggregate(kept, grader.grade(kept, table))
            for sampler, table in tables.items()
        }
        write_parquet(gathered({GREEDY: baseline, **graded}), folder / GRADED)
    with watch.stage("scoring"):
        scores = {
            key: metric.score(
                kept,
                Measured(
                    baseline,
                    graded[read[key]],
                    answers[read[key]].curves,
                    conditions[read[key]].estimator,
                    answers[read[key]].uncurved,
                ),
                config.seed,
            )
            for key, metric in metrics.items()
        }
        if len({read[metric] for metric in METHODS if metric in read}) == len(METHODS):  # each has answers of its own
            scores = {"profile": profile(kept, scores, config.seed), **scores}
        elif len(read) == len(METHODS) and len(tables) > 1:
            log.info("no profile: %s", ", ".join(f"metric={metric} reads {part}" for metric, part in read.items()))
        if baseline.num_rows:  # recorded answers need not have any
            scores["greedy"] = greedy_accuracy(questions, baseline, config.seed)
    loaded |= _described("", model) | collection.identity()
    loaded |= {f"loaded.aggregator.{name}": value for name, value in aggregator.description().items()}
    loaded |= {f"loaded.dataset.{name}": value for name, value in whole.description().items()}
    loaded |= {"loaded.dataset.fingerprint": digest, "loaded.dataset.unusable_aliases": sum(unusable.values())}
    loaded |= {f"loaded.{name}": value for name, value in typed.items()}
    loaded |= {f"undefined.{name}": why for score in scores.values() for name, why in score.reasons.items()}
    record.parameters(loaded)
    return Result(
        name,
        settings | loaded,
        questions,
        kept,
        rewritten,
        baseline,
        graded,
        curves,
        read,
        scores,
        model.config.tokenizer_file(),
        asked,
        found,
        watch,
    )


def stages_of(config: Config) -> list[Stage]:
    """What a run with this configuration would ask, stage by stage; nothing is asked."""
    dataset: Dataset = config.dataset
    store: Store = config.store
    with store.open() as entries:
        model, writer = _models(config, entries, Stopwatch(), begin=lambda: None)
        collection = _collection(config, model)
        if not isinstance(collection, Asked):
            return []  # it reads answers that are there
        return plan(dataset.load(), config.rewriter, writer, collection, config.grader, config.seed)


def _models(
    config: Config, entries: Entries, watch: Stopwatch, begin: Callable[[], object]
) -> tuple[StoredModel, StoredModel]:
    """The model that is measured, and the one that writes rewrites, which may be the same."""
    model = StoredModel(config.model, config.engine, entries, watch, begin=begin)
    other = config.rewriter.model
    if other is None or other == config.model:
        return model, model
    return model, StoredModel(other, config.engine, entries, watch, begin=begin)


def _collection(config: Config, model: StoredModel) -> Collection:
    (first, *_) = config.sampler.values()
    if isinstance(first, RecordedAnswers):
        return Recorded(first)
    wanted = max(metric.top_logprobs for metric in config.metric.values())
    return Asked(config.sampler, model, config.grader, config.seed, wanted)


def _described(prefix: str, model: StoredModel) -> dict[str, Any]:
    """What a model was when it was last asked, for the record."""
    loaded = {f"loaded.{prefix}{name}": value for name, value in model.description().items()}
    return loaded | {f"identity.{prefix}{name}": value for name, value in model.identity.items()}


def _report(result: Result, folder: Path, record: Run) -> None:
    """Write tables, figures, summary and page into the folder, and all of it into the tracker."""
    with result.watch.stage("report"):
        for score in result.scores.values():
            for name, table in score.tables.items():
                write_parquet(table, folder / f"{name}.parquet")
        write_parquet(result.by_question(), folder / QUESTIONS)
        figures = save_figures(result, folder / "figures")
        write_page(result, figures, folder / "report.html")
    write_summary(result, folder / SUMMARY)
    record.scores(list(result.scores.values()), result.counts())
    record.folder(folder)
    record.note(run_note(result))
    record.tables(run_tables(result))
