"""Run as input of a gate: its figures by question and all answers with their verdicts."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from robust_eval.answer import CURVES, SAMPLER, SamplingMetadata, read_sampling_metadata, rows
from robust_eval.error import OutageError, UserError
from robust_eval.runs.finished_runs import KEY, FinishedRun, kept_nothing, read_run
from robust_eval.runtime.files import read_parquet
from robust_eval.runtime.text import printable
from robust_eval.stats.interval import Floats
from robust_eval.tracking.run_folder import ANSWERS, CONFIG, CURVES_FILE, ERROR, GRADED, SUMMARY, TRACKED

COLUMNS = ["question_id", "rewrite", "temperature", "trial", "text", "correct", "outcome", SAMPLER]


@dataclass(frozen=True)
class MeasuredRun:
    """Run with its ``name`` on the command line, ``graded`` answers (:data:`COLUMNS`), and id in MLflow.

    ``curves`` are the accuracies from the model.
    """

    name: str
    folder: Path
    run: FinishedRun
    graded: pa.Table
    curves: pa.Table
    sampling_metadata: SamplingMetadata | None = None
    run_id: str | None = None
    keys: dict[tuple[str, str], str] = field(default_factory=dict)
    """Keys, by the id and the text of each question."""

    @property
    def model(self) -> str:
        """Name of its model."""
        return str(self.run.settings["model.name"])

    @property
    def kept_nothing(self) -> bool:
        """True if no question was kept: metrics of kept questions are then undefined."""
        return not self.run.kept().any()

    def outcomes(self) -> dict[str, Counter[str]]:
        """Count the outcomes of the greedy answers, and of those of each sampler."""
        counts: dict[str, Counter[str]] = {}
        for sampler, outcome in rows(self.graded, SAMPLER, "outcome"):
            counts.setdefault(sampler, Counter())[outcome] += 1
        return counts

    def values(self, figure: str, rows: NDArray[np.intp]) -> Floats:
        """Return a figure of the questions in these rows; NaN if undefined."""
        if figure not in self.run.question_metrics and self.kept_nothing:
            return np.full(len(rows), np.nan)
        return self.run.values(figure)[rows]


def read_measured(folder: Path, name: str) -> MeasuredRun:
    """Return the run in a folder.

    A run that kept no question has not finished, but its greedy answers are judged. Raises OutageError if another run
    has not finished, and UserError if there is none, or one that cannot be gated.
    """
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}; name that of a finished run (mlruns/runs/DATE/TIME)")
    knows_nothing = kept_nothing(folder)
    if (folder / CONFIG).is_file() and not (folder / SUMMARY).is_file() and not knows_nothing:
        raise OutageError(f"{name} has not finished{_failure_reason(folder)}")
    run = read_run(folder, name, without_summary=knows_nothing)
    if not (folder / GRADED).is_file():
        raise UserError(f"{name} cannot be gated: there is no {GRADED}")
    try:
        graded = read_parquet(folder / GRADED, COLUMNS)
        curves = read_parquet(folder / CURVES_FILE) if (folder / CURVES_FILE).is_file() else CURVES.empty_table()
        metadata = read_sampling_metadata(folder / ANSWERS) if (folder / ANSWERS).is_file() else None
        run_id = (folder / TRACKED).read_text(encoding="utf-8").strip() if (folder / TRACKED).is_file() else None
    except UserError:
        raise
    except (OSError, ValueError, KeyError) as problem:
        raise UserError(f"{name} cannot be read: a file of its answers is damaged") from problem
    keys = dict(zip(run.keys(), run.questions[KEY].to_pylist(), strict=True))
    return MeasuredRun(name, folder, run, graded, curves, metadata, run_id, keys)


def _failure_reason(folder: Path) -> str:
    """Return the reason that a failed run recorded."""
    file = folder / ERROR
    if not file.is_file():
        return ""
    sentence, _, _ = file.read_text(encoding="utf-8", errors="replace").partition("\n")
    return f": {printable(sentence)[:500]}"


def same_answers(one: MeasuredRun, other: MeasuredRun) -> bool:
    """Return whether two runs have the same questions and the same answers, word for word."""
    return one.keys.keys() == other.keys.keys() and _texts(one) == _texts(other)


def _texts(run: MeasuredRun) -> Counter[tuple[object, ...]]:
    columns = [run.graded[name].to_pylist() for name in COLUMNS if name != "correct"]
    return Counter(tuple(str(value) for value in row) for row in zip(*columns, strict=True))
