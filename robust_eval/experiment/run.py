"""Load questions → sample answers → grade them → score the graded table → record the run."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import DictConfig, OmegaConf

from robust_eval.answer import GREEDY, gathered, write_parquet
from robust_eval.config.config import Config
from robust_eval.dataset.base import Dataset
from robust_eval.error import UserError
from robust_eval.experiment.answered import Answered
from robust_eval.experiment.answering import answering
from robust_eval.experiment.asking import Asking
from robust_eval.experiment.beginning import Beginning
from robust_eval.experiment.corrected import labels_of
from robust_eval.experiment.folder import owned
from robust_eval.experiment.load import Loaded, load
from robust_eval.experiment.models import Models
from robust_eval.experiment.output import curves_of, describe, leave_knowledge, report, run_name
from robust_eval.experiment.plan import check_plan
from robust_eval.experiment.reproduction import compared
from robust_eval.experiment.score import score
from robust_eval.experiment.until import Takes, Taking
from robust_eval.metric.answer_sources import sources
from robust_eval.metric.score import Score
from robust_eval.question import Question, fingerprint
from robust_eval.rewriter.base import Rewritten
from robust_eval.runtime.console import silence_tqdm
from robust_eval.runtime.process import Stopwatch, origin
from robust_eval.store.base import Entries, NoStore
from robust_eval.tracking.base import Run
from robust_eval.tracking.result import Result
from robust_eval.tracking.run_folder import ANSWERS, GRADED, VERDICTS
from robust_eval.tracking.settings import flat, found_besides

log = logging.getLogger(__name__)


class Finished(NamedTuple):
    """An experiment that has ended: its ``result``, what the ``store`` holds now, and where an earlier run was
    repeated, how its ``answers`` compare with those of then.
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
    takes: Callable[[Sequence[Question]], Takes] | None = None,
) -> Finished:
    """Run one experiment. Its answers, tables, figures and report lie in ``folder`` afterwards, and in the tracker.

    ``composed`` is the configuration as Hydra composed it, for the record. ``swept`` are the overrides of a job of a
    sweep. Where ``repeated`` names the folder of an earlier run, everything is asked anew and compared with the answers
    there. ``takes`` says which of the questions are taken, and when; by default all are, or as many as ``until``
    needs. Raises UserError for what a user can mend; the tracker then shows the run as failed. A run that fails before
    anything was asked leaves nothing; one that keeps no question raises NothingKeptError, and leaves what is known of
    each (:func:`robust_eval.experiment.output.leave_knowledge`).
    """
    name = ", ".join(filter(None, (f"{config.model.name} on {config.dataset.name}", swept)))
    mlruns = Path(config.paths.mlruns)
    tracking, engine = config.tracking, config.engine
    store = config.store if repeated is None else NoStore()
    settings = flat(OmegaConf.to_container(composed, resolve=True))
    watch = Stopwatch()
    silence_tqdm()
    with owned(folder, composed), ExitStack() as recorded:

        def start() -> Run:
            with watch.stage("tracking"):
                record = recorded.enter_context(tracking.run(run_name(settings, swept), mlruns))
                describe(settings, composed, folder, record)
            return record

        begin = Beginning(start)
        try:
            with store.open() as entries, engine.open():
                result = _measure(config, name, settings, entries, folder, begin, watch, takes)
                size = entries.size()
            report(result, folder, begin())
        except KeyboardInterrupt:
            log.warning("stopped; %s", store.again())
            raise
        except OSError as problem:
            reason = f"{problem.filename or folder}: {os.strerror(problem.errno) if problem.errno else problem}"
            raise UserError(f"{reason}; {store.again()}") from problem
        same = None
        if repeated is not None:
            same = compared(repeated / ANSWERS, folder / ANSWERS)
            begin().tags({"repeated": str(repeated), "repeated.answers": same})
    return Finished(result, size, same)


def _measure(
    config: Config,
    name: str,
    settings: dict[str, Any],
    entries: Entries,
    folder: Path,
    begin: Beginning,
    watch: Stopwatch,
    takes: Callable[[Sequence[Question]], Takes] | None,
) -> Result:
    """Load, sample, grade, score. The run begins when a model is first asked, or greedy answers are found.

    Questions are taken all at once, in blocks until the figures that ``until`` names are known, or as ``takes`` says.
    """
    with watch.stage("questions"):
        loaded = load(config)
        labels = labels_of(config, folder)
    models = Models(config, entries, watch, begin)
    config = models.judging(config)
    source = answering(config, models.measured)
    conditions = source.conditions()
    read = sources(config.metric, conditions)
    check_plan(config, loaded.questions, models.writer, source, watch)

    asking = Asking(config, loaded.questions, source, models, read, begin, folder, watch)
    taking: Takes = takes(asking.questions) if takes else Taking(config.until, asking.questions, config.seed)
    answered, scores, digest = Answered(Rewritten([])), dict[str, Score](), ""
    while not asking.full and (block := taking.next(scores)):
        rewritten = asking.rewrite(block)
        if not taking.left:
            models.release_writer()
        whole = asking.questions if taking.left else rewritten.questions
        digest = digest or _identified(config.dataset, loaded, whole, begin)
        answered = asking.answer(rewritten)
        write_parquet(gathered({GREEDY: answered.baseline, **answered.graded}), folder / GRADED)
        with watch.stage("scoring"):
            scores = score(config, answered, read, conditions, source.undecided, labels)
        if said := taking.in_words(scores):
            log.info("until: %s", said)
    if not answered.kept:
        if scores:
            leave_knowledge(answered.questions, scores, folder, begin())
        asking.refuse_nothing(answered)
    scores = taking.reported(scores)
    models.release_writer()
    if models.found and not models.asked:
        log.info("the run is complete in the store: nothing was asked, and the model was not loaded")

    if config.grader.uses_model:
        write_parquet(config.grader.verdict_table(), folder / VERDICTS)
    described = models.description() | source.identity() | loaded.description(digest) | _described(config, scores)
    begin().parameters(found_besides(settings, described))
    return Result(
        name=name,
        description=settings | described,
        asked=answered.questions,
        kept=answered.kept,
        rewritten=answered.rewritten,
        baseline=answered.baseline,
        graded=answered.graded,
        curves=curves_of(answered.answers),
        sources={metric: sampler for metric, sampler in read.items() if metric in scores},
        scores=scores,
        tokenizer=models.measured.config.tokenizer_file(),
        prompts_asked=models.asked,
        prompts_found=models.found,
        watch=watch,
        unasked=len(taking.left),
        origin=origin(begin().run_id),
    )


def _identified(dataset: Dataset, loaded: Loaded, questions: Sequence[Question], begin: Beginning) -> str:
    """Return the fingerprint of the data, after which they are logged, and recorded when the run begins."""
    digest = fingerprint(questions, loaded.whole.edition)
    log.info("data set %s: %s", dataset.name, loaded.in_words(digest))
    begin.then(lambda record: record.dataset(dataset.name, dataset.source, questions, digest))
    return digest


def _described(config: Config, scores: Mapping[str, Score]) -> dict[str, Any]:
    """Return what grader and aggregator say of themselves, and why figures are undefined."""
    return {
        **{f"loaded.grader.{name}": value for name, value in config.grader.description().items()},
        **{f"loaded.aggregator.{name}": value for name, value in config.aggregator.description().items()},
        **{f"undefined.{name}": why for each in scores.values() for name, why in each.reasons.items()},
    }
