"""Load questions → sample answers → grade them → score the graded table → record the run."""

import logging
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import DictConfig, OmegaConf

from robust_eval.answer import GREEDY, HowAsked, gathered, write_parquet
from robust_eval.config.config import Config
from robust_eval.error import UserError
from robust_eval.experiment.answering import Recorded, answering
from robust_eval.experiment.beginning import Beginning
from robust_eval.experiment.folder import owned
from robust_eval.experiment.grade import grade
from robust_eval.experiment.load import load
from robust_eval.experiment.models import Models
from robust_eval.experiment.output import curves_of, describe, report, write_answers, write_rewrites
from robust_eval.experiment.plan import check_plan
from robust_eval.experiment.reproduction import compared
from robust_eval.experiment.score import score
from robust_eval.metric.answer_sources import sources
from robust_eval.question import fingerprint
from robust_eval.record.result import Result
from robust_eval.record.run_folder import ANSWERS, GRADED
from robust_eval.record.settings import flat
from robust_eval.record.tracking import Run
from robust_eval.runtime.library_bars import no_library_bars
from robust_eval.runtime.stopwatch import Stopwatch
from robust_eval.store.base import Entries, NoStore

log = logging.getLogger(__name__)


class Finished(NamedTuple):
    """An experiment that has ended: its ``result``, what the ``store`` holds now, and where an earlier run was
    repeated, how its ``answers`` compare with those of then.
    """

    result: Result
    store: str
    answers: str | None


def run(
    config: Config, composed: DictConfig, folder: Path, swept: str | None = None, repeated: Path | None = None
) -> Finished:
    """Run one experiment. Its answers, tables, figures and report lie in ``folder`` afterwards, and in the tracker.

    ``composed`` is the configuration as Hydra composed it, for the record. ``swept`` are the overrides of a job of a
    sweep. Where ``repeated`` names the folder of an earlier run, everything is asked anew and compared with the answers
    there. Raises UserError for what a user can mend; the tracker then shows the run as failed. A run that fails before
    anything was asked leaves nothing.
    """
    name = ", ".join(filter(None, (f"{config.model.name} on {config.dataset.name}", swept)))
    mlruns = Path(config.paths.mlruns)
    tracking, engine = config.tracking, config.engine
    store = config.store if repeated is None else NoStore()
    settings = flat(OmegaConf.to_container(composed, resolve=True))
    watch = Stopwatch()
    with owned(folder, composed), no_library_bars(), ExitStack() as recorded:

        def start() -> Run:
            with watch.stage("tracking"):
                record = recorded.enter_context(tracking.run(name, mlruns))
                describe(settings, composed, folder, record)
            return record

        begin = Beginning(start)
        try:
            with store.open() as entries, engine.open():
                result = _measure(config, name, settings, entries, folder, begin, watch)
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
) -> Result:
    """Load, sample, grade, score. The run begins when a model is first asked, or greedy answers are found."""
    with watch.stage("questions"):
        loaded = load(config)
    models = Models(config, entries, watch, begin)
    source = answering(config, models.measured)
    conditions = source.conditions()
    read = sources(config.metric, conditions)
    asked = HowAsked(config.judge.first_line, source.undecided)
    check_plan(config, loaded.questions, models.writer, source, watch)

    with watch.stage("rewriting"):
        rewriter = config.rewriter.within(models.writer.temperatures)
        rewritten = rewriter.rewrite(loaded.questions, models.writer, config.seed)
    models.release_writer()
    digest = fingerprint(rewritten.questions, loaded.whole.edition)
    log.info("data set %s: %s", config.dataset.name, loaded.in_words(digest))
    begin.then(lambda _: write_rewrites(rewritten, folder))
    begin.then(lambda record: record.dataset(config.dataset.name, config.dataset.source, rewritten.questions, digest))

    questions = source.asked(rewritten.questions)
    candidates = source.candidates(questions)
    with watch.stage("baseline"):
        greedy = source.baseline(candidates)
        record = begin()
        write_answers(greedy, {}, asked, folder)
        baseline = config.judge.grade(candidates, greedy)
        kept = source.select(candidates, baseline)
    if greedy.num_rows or isinstance(source, Recorded):
        log.info("%s answers: %d of %d questions kept", source.greedy, len(kept), len(candidates))
    with watch.stage("sampling"):
        answers = source.answers(kept)
    if models.found and not models.asked:
        log.info("the run is complete in the store: nothing was asked, and the model was not loaded")
    write_answers(greedy, answers, asked, folder)

    with watch.stage("grading"):
        graded = grade(config, kept, answers, read)
        write_parquet(gathered({GREEDY: baseline, **graded}), folder / GRADED)
    with watch.stage("scoring"):
        scores = score(config, questions, kept, baseline, graded, answers, read, conditions, source.undecided)
    described = models.description() | source.identity()
    described |= {f"loaded.aggregator.{name}": value for name, value in config.aggregator.description().items()}
    described |= loaded.description(digest)
    described |= {f"undefined.{name}": why for each in scores.values() for name, why in each.reasons.items()}
    record.parameters(described)
    return Result(
        name=name,
        description=settings | described,
        asked=questions,
        kept=kept,
        rewritten=rewritten,
        baseline=baseline,
        graded=graded,
        curves=curves_of(answers),
        sources=read,
        scores=scores,
        tokenizer=models.measured.config.tokenizer_file(),
        prompts_asked=models.asked,
        prompts_found=models.found,
        watch=watch,
    )
