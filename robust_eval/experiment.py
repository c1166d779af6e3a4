"""Load questions → sample answers → grade them → score the graded table → record the run."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from omegaconf import DictConfig, OmegaConf

from robust_eval.answer import AnswerLog, write_parquet
from robust_eval.config import Config
from robust_eval.environment import environment
from robust_eval.error import UserError
from robust_eval.question import fingerprint
from robust_eval.report.figures import save_figures
from robust_eval.report.page import write_page
from robust_eval.report.terminal import print_summary
from robust_eval.result import Result, write_summary
from robust_eval.stopwatch import Stopwatch
from robust_eval.tracking import Run

log = logging.getLogger(__name__)


def run(config: Config, composed: DictConfig, folder: Path) -> Result:
    """Run one experiment. Its answers, tables, figures and report lie in ``folder`` afterwards, and in the tracker.

    ``composed`` is the configuration as Hydra composed it, for the record. Raises UserError for what a person can mend;
    the tracker then shows the run as failed, and the answers that had come lie in ``folder/answers.arrows``.
    """
    mlruns = Path(config.paths.mlruns)
    with config.tracking.run(f"{config.model.name} on {config.dataset.name}", mlruns) as record:
        try:
            _describe(composed, folder, record)
            result = _measure(config, folder, record)
            _report(result, folder, record)
        except OSError as problem:
            reason = f"{problem.filename or folder}: {problem.strerror or problem}"
            raise UserError(f"{reason}; what was sampled until then is in {folder}") from problem
    print_summary(result, folder, config.tracking.command(mlruns))
    return result


def _describe(composed: DictConfig, folder: Path, record: Run) -> None:
    """Write down the configuration and the environment."""
    surroundings = environment()
    (folder / "config.yaml").write_text(OmegaConf.to_yaml(composed, resolve=True), encoding="utf-8")
    (folder / "environment.json").write_text(json.dumps(surroundings, indent=2) + "\n", encoding="utf-8")
    record.parameters(flat(OmegaConf.to_container(composed, resolve=True)))
    record.tags(surroundings)


def _measure(config: Config, folder: Path, record: Run) -> Result:
    """Load, sample, grade, score."""
    watch = Stopwatch()
    (sampler,) = config.sampler.values()
    with watch.stage("questions"):
        questions = config.dataset.load()
    digest = fingerprint(questions)
    record.dataset(config.dataset.name, config.dataset.file, questions, digest)
    log.info("data set %s: %d questions, fingerprint %s", config.dataset.name, len(questions), digest[:12])
    if unusable := sum(config.grader.unusable_aliases(questions).values()):
        log.warning("%d accepted answers normalise to nothing and are left out", unusable)

    with watch.stage("model"):
        config.engine.prepare()
        model = config.model.load()
    loaded = model.description()
    description = {f"loaded.{name}": value for name, value in loaded.items()}
    description |= {"loaded.dataset.fingerprint": digest, "loaded.dataset.unusable_aliases": unusable}
    record.parameters(description)
    log.info("model %s: %s on %s", config.model.name, loaded["dtype"], loaded["device"])

    with AnswerLog(folder / "answers.arrows") as arriving:
        with watch.stage("baseline"):
            greedy = config.engine.run(model, sampler.baseline(questions, config.seed), arriving, "greedy answers")
            baseline = config.grader.grade(questions, greedy)
            kept = sampler.select(questions, baseline, config.seed)
        log.info("greedy answers: %d of %d questions kept", len(kept), len(questions))
        with watch.stage("sampling"):
            answers = config.engine.run(model, sampler.requests(kept, config.seed), arriving, "sampled answers")
    write_parquet(pa.concat_tables([greedy, answers]), folder / "answers.parquet")
    (folder / "answers.arrows").unlink()  # all of it is in answers.parquet now

    with watch.stage("grading"):
        graded = config.grader.grade(kept, answers)
        write_parquet(pa.concat_tables([baseline, graded]), folder / "graded.parquet")
    with watch.stage("scoring"):
        scores = {name: metric.score(kept, baseline, graded, config.seed) for name, metric in config.metric.items()}
    name = f"{config.model.name} on {config.dataset.name}"
    return Result(name, description, questions, kept, baseline, graded, scores, watch.seconds)


def _report(result: Result, folder: Path, record: Run) -> None:
    """Write tables, figures, summary and page into the folder, and all of it into the tracker."""
    for score in result.scores.values():
        for name, table in score.tables.items():
            write_parquet(table, folder / f"{name}.parquet")
    figures = save_figures(result, folder / "figures")
    write_summary(result, folder / "summary.json")
    write_page(result, figures, folder / "report.html")
    record.scores(list(result.scores.values()), result.counts())
    record.folder(folder)


def flat(tree: Any, prefix: str = "") -> Mapping[str, Any]:
    """Nested mappings as one, keys joined by dots: ``{"a": {"b": 1}}`` is ``{"a.b": 1}``."""
    if not isinstance(tree, Mapping):
        return {prefix.removesuffix("."): tree}
    return {key: value for name, child in tree.items() for key, value in flat(child, f"{prefix}{name}.").items()}
