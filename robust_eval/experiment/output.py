"""What a run writes into its folder and into the tracker."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from omegaconf import DictConfig

from robust_eval.answer import (
    GREEDY,
    Answers,
    SamplingMetadata,
    concat_by_sampler,
    with_sampling_metadata,
    write_parquet,
)
from robust_eval.config.repeatable import repeatable
from robust_eval.metric.score import Score
from robust_eval.question import Question
from robust_eval.report.figures import save_figures
from robust_eval.report.mlflow_tables import run_note, run_tables
from robust_eval.report.page import write_page
from robust_eval.rewriter.base import Rewritten
from robust_eval.runtime.process import environment
from robust_eval.tracking.base import Run
from robust_eval.tracking.result import Result, by_question, write_summary
from robust_eval.tracking.run_folder import (
    ANSWERS,
    CONFIG,
    CURVES_FILE,
    ERROR,
    LOADED,
    QUESTIONS,
    REPORT,
    SUMMARY,
    TRACKED,
)
from robust_eval.tracking.settings import SEVERAL, decided, effective

COUNTED = (
    *("questions.asked", "questions.kept", "prompts.asked", "prompts.found"),
    *("replies.came", "replies.cut", "replies.uncertain"),
)
"""The counts by which people look for runs."""


def run_name(settings: Mapping[str, object], swept: str | None) -> str:
    """Return what a run is called in a tracker: the method, the model, the data set, and what was swept."""
    words = told(settings)
    return ", ".join(filter(None, (*(str(words[name]) for name in ("method", "model", "dataset")), swept)))


def describe(settings: dict[str, Any], composed: DictConfig, folder: Path, record: Run) -> None:
    """Write down the configuration and the environment."""
    surroundings = environment()
    for left in (ERROR, SUMMARY, QUESTIONS):  # of the same run before: it has not finished yet
        (folder / left).unlink(missing_ok=True)
    (folder / CONFIG).write_text(repeatable(composed), encoding="utf-8")
    (folder / "environment.json").write_text(json.dumps(surroundings, indent=2) + "\n", encoding="utf-8")
    record.leave_id(folder / TRACKED)
    record.parameters(decided(settings) | told(settings))
    record.tags(surroundings)


def told(settings: Mapping[str, object]) -> dict[str, object]:
    """Return the settings by which people look for runs, under the names that they have for them."""
    chosen = {
        group: "+".join(dict.fromkeys(name.split(".")[1] for name in settings if name.startswith(f"{group}.")))
        for group in SEVERAL
    }
    found: dict[str, object] = {"method": chosen["metric"], "sampler": chosen["sampler"]}
    found |= {name: settings.get(f"{name}.name") for name in ("model", "dataset")}
    return found | ({"d": settings["metric.frs.d"]} if "metric.frs.d" in settings else {})


def write_rewrites(rewritten: Rewritten, folder: Path) -> None:
    """Write what a model replied when it was asked for rewrites, and what became of each; nothing where none was."""
    if rewritten.replies.num_rows:
        write_parquet(rewritten.replies, folder / "rewriting.parquet")
        write_parquet(rewritten.found, folder / "rewrites.parquet")


def write_answers(greedy: pa.Table, answers: Mapping[str, Answers], asked: SamplingMetadata, folder: Path) -> None:
    """Write the answers of all samplers, with how they were asked for, and accuracy curves where a model gave them."""
    table = concat_by_sampler({GREEDY: greedy, **{name: each.table for name, each in answers.items()}})
    write_parquet(with_sampling_metadata(table, asked), folder / ANSWERS)
    if curves := curves_of(answers):
        write_parquet(concat_by_sampler(curves), folder / CURVES_FILE)


def curves_of(answers: Mapping[str, Answers]) -> dict[str, pa.Table]:
    """Return the accuracy curves by sampler, of those samplers that have any."""
    return {name: each.curves for name, each in answers.items() if each.curves.num_rows}


def leave_knowledge(questions: Sequence[Question], scores: Mapping[str, Score], folder: Path, record: Run) -> None:
    """Write what is known of questions of which none is kept: whether each greedy answer is right.

    The run has not finished, so there is no summary; a gate reads this (:mod:`robust_eval.gate.measured_run`).
    """
    write_parquet(by_question(questions, [], scores), folder / QUESTIONS)
    record.folder(folder)


def report(result: Result, folder: Path, record: Run) -> None:
    """Write tables, figures, summary and page into the folder, and all of it into the tracker."""
    with result.watch.stage("report"):
        for score in result.scores.values():
            for name, table in score.tables.items():
                write_parquet(table, folder / f"{name}.parquet")
        write_parquet(result.by_question(), folder / QUESTIONS)
        figures = save_figures(result, folder / "figures")
        write_page(result, figures, folder / REPORT)
    (folder / LOADED).write_text(json.dumps(effective(result.description), indent=2) + "\n", encoding="utf-8")
    write_summary(result, folder)
    counts = result.counts()
    record.scores(list(result.scores.values()), {name: counts[name] for name in COUNTED})
    record.folder(folder)
    record.note(run_note(result))
    record.tables(run_tables(result))
