"""Load questions → sample answers → grade them → score the graded table → record the run."""

import contextlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from omegaconf import DictConfig, OmegaConf

from robust_eval.answer import AnswerLog, read_log, write_parquet
from robust_eval.config import Config
from robust_eval.dataset.base import Dataset
from robust_eval.engine.base import Engine
from robust_eval.environment import environment
from robust_eval.error import UserError
from robust_eval.grader.base import Grader
from robust_eval.metric.score import Measured, Metric
from robust_eval.model.base import LanguageModel
from robust_eval.prompt.prompt import refuse_exemplars
from robust_eval.question import fingerprint
from robust_eval.report.figures import save_figures
from robust_eval.report.page import write_page
from robust_eval.report.terminal import print_summary
from robust_eval.result import Result, write_summary
from robust_eval.sampler.base import Sampler
from robust_eval.stopwatch import Stopwatch
from robust_eval.tracking import Run, Tracking

log = logging.getLogger(__name__)


def run(config: Config, composed: DictConfig, folder: Path) -> Result:
    """Run one experiment. Its answers, tables, figures and report lie in ``folder`` afterwards, and in the tracker.

    ``composed`` is the configuration as Hydra composed it, for the record. Raises UserError for what a person can mend;
    the tracker then shows the run as failed, and the answers that had come lie in ``folder``.
    """
    name = f"{config.model.name} on {config.dataset.name}"
    mlruns = Path(config.paths.mlruns)
    tracking: Tracking = config.tracking
    with tracking.run(name, mlruns) as record:
        try:
            settings = _describe(composed, folder, record)
            result = _measure(config, name, settings, folder, record)
            _report(result, folder, record)
        except OSError as problem:
            reason = f"{problem.filename or folder}: {problem.strerror or problem}"
            raise UserError(f"{reason}; what was sampled until then is in {folder}") from problem
        finally:
            _keep_answers(folder)
    print_summary(result, folder, tracking.command(mlruns))
    return result


def _keep_answers(folder: Path) -> None:
    """Turn the log of a run that failed into a table; where that cannot be written, the log stays as it is."""
    log_file = folder / "answers.arrows"
    if log_file.is_file():
        with contextlib.suppress(OSError):
            write_parquet(read_log(log_file), folder / "answers.parquet")
            log_file.unlink()


def _describe(composed: DictConfig, folder: Path, record: Run) -> dict[str, Any]:
    """Write down the configuration, which is returned flat, and the environment."""
    surroundings = environment()
    settings = flat(OmegaConf.to_container(composed, resolve=True))
    (folder / "config.yaml").write_text(OmegaConf.to_yaml(composed, resolve=True), encoding="utf-8")
    (folder / "environment.json").write_text(json.dumps(surroundings, indent=2) + "\n", encoding="utf-8")
    record.parameters(settings)
    record.tags(surroundings)
    return settings


def _measure(config: Config, name: str, settings: dict[str, Any], folder: Path, record: Run) -> Result:
    """Load, sample, grade, score."""
    watch = Stopwatch()
    dataset: Dataset = config.dataset
    grader: Grader = config.grader
    engine: Engine = config.engine
    metrics: dict[str, Metric] = config.metric
    sampler: Sampler
    (sampler,) = config.sampler.values()
    with watch.stage("questions"):
        questions = dataset.load()
    digest = fingerprint(questions)
    record.dataset(dataset.name, dataset.file, questions, digest)
    log.info("data set %s: %d questions, fingerprint %s", dataset.name, len(questions), digest[:12])
    refuse_exemplars(questions)
    unusable = grader.unusable_aliases(questions)
    if unusable:
        log.warning("accepted answers that normalise to nothing are left out: %s", ", ".join(sorted(unusable)))

    sampler.requests(sampler.candidates(questions), grader, config.seed)  # says before loading what it cannot ask for
    with watch.stage("model"):
        engine.prepare()
        model: LanguageModel = config.model.load()

    wanted = max(metric.top_logprobs for metric in metrics.values())
    with AnswerLog(folder / "answers.arrows") as arriving:
        with watch.stage("baseline"):
            greedy = engine.run(model, sampler.baseline(questions, config.seed, wanted), arriving, "greedy answers")
            baseline = grader.grade(questions, greedy.table)
            kept = sampler.select(questions, baseline, config.seed)
        log.info("greedy answers: %d of %d questions kept", len(kept), len(questions))
        with watch.stage("sampling"):
            answers = engine.run(model, sampler.requests(kept, grader, config.seed), arriving, "sampled answers")
    write_parquet(pa.concat_tables([greedy.table, answers.table]), folder / "answers.parquet")
    if answers.curves.num_rows:
        write_parquet(answers.curves, folder / "curves.parquet")
    (folder / "answers.arrows").unlink()  # all of it is in the tables now

    with watch.stage("grading"):
        graded = grader.grade(kept, answers.table)
        write_parquet(pa.concat_tables([baseline, graded]), folder / "graded.parquet")
    with watch.stage("scoring"):
        measured = Measured(baseline, graded, answers.curves, sampler.estimator)
        scores = {key: metric.score(kept, measured, config.seed) for key, metric in metrics.items()}
    loaded = {f"loaded.{name}": value for name, value in model.description().items()}
    loaded |= {"loaded.dataset.fingerprint": digest, "loaded.dataset.unusable_aliases": sum(unusable.values())}
    record.parameters(loaded)
    return Result(name, settings | loaded, questions, kept, baseline, graded, scores, watch)


def _report(result: Result, folder: Path, record: Run) -> None:
    """Write tables, figures, summary and page into the folder, and all of it into the tracker."""
    with result.watch.stage("report"):
        for score in result.scores.values():
            for name, table in score.tables.items():
                write_parquet(table, folder / f"{name}.parquet")
        figures = save_figures(result, folder / "figures")
        write_page(result, figures, folder / "report.html")
    write_summary(result, folder / "summary.json")
    record.scores(list(result.scores.values()), result.counts())
    record.folder(folder)


def flat(tree: Any, prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, keys joined by dots: ``{"a": {"b": 1}}`` is ``{"a.b": 1}``."""
    if not isinstance(tree, Mapping):
        return {prefix.removesuffix("."): tree}
    return {key: value for name, child in tree.items() for key, value in flat(child, f"{prefix}{name}.").items()}
