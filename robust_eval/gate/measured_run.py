"""Runs as a gate reads them, with figures and verdicts by question, and the comparability of two."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from robust_eval.answer import CURVES, SAMPLER, HowAsked, how_asked, rows
from robust_eval.error import OutageError, UserError
from robust_eval.runs.finished_runs import KEY, FinishedRun, kept_nothing, read_run
from robust_eval.runtime.files import read_parquet
from robust_eval.runtime.text import printable
from robust_eval.stats.interval import Floats
from robust_eval.tracking.run_folder import ANSWERS, CONFIG, CURVES_FILE, ERROR, GRADED, SUMMARY, TRACKED

COLUMNS = ["question_id", "rewrite", "temperature", "trial", "text", "correct", "outcome", SAMPLER]


@dataclass(frozen=True)
class MeasuredRun:
    """``name`` is what the call calls it, ``graded`` its answers (:data:`COLUMNS`), ``curves`` what the model told of
    accuracies, ``asked`` how the answers were asked for, ``run_id`` the run in MLflow.
    """

    name: str
    folder: Path
    run: FinishedRun
    graded: pa.Table
    curves: pa.Table
    asked: HowAsked | None = None
    run_id: str | None = None
    keys: dict[tuple[str, str], str] = field(default_factory=dict)
    """The right answers, by the id and the text of each question."""

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
        found: dict[str, Counter[str]] = {}
        for sampler, outcome in rows(self.graded, SAMPLER, "outcome"):
            found.setdefault(sampler, Counter())[outcome] += 1
        return found

    def values(self, figure: str, rows: NDArray[np.intp]) -> Floats:
        """Return a figure of the questions in these rows; NaN where it is undefined."""
        if figure not in self.run.question_metrics and self.kept_nothing:
            return np.full(len(rows), np.nan)
        return self.run.values(figure)[rows]


def read_measured(folder: Path, name: str) -> MeasuredRun:
    """Return the run in a folder.

    One that kept no question has not finished, and yet is known: every greedy answer was judged. Raises OutageError
    where another one has not finished, and UserError where there is none, or one that cannot be gated.
    """
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}; name that of a finished run (mlruns/runs/DATE/TIME)")
    knows_nothing = kept_nothing(folder)
    if (folder / CONFIG).is_file() and not (folder / SUMMARY).is_file() and not knows_nothing:
        raise OutageError(f"{name} has not finished{_why(folder)}")
    run = read_run(folder, name, without_summary=knows_nothing)
    if not (folder / GRADED).is_file():
        raise UserError(f"{name} cannot be gated: there is no {GRADED}")
    try:
        graded = read_parquet(folder / GRADED, COLUMNS)
        curves = read_parquet(folder / CURVES_FILE) if (folder / CURVES_FILE).is_file() else CURVES.empty_table()
        asked = how_asked(folder / ANSWERS) if (folder / ANSWERS).is_file() else None
        run_id = (folder / TRACKED).read_text(encoding="utf-8").strip() if (folder / TRACKED).is_file() else None
    except UserError:
        raise
    except (OSError, ValueError, KeyError) as problem:
        raise UserError(f"{name} cannot be read: a file of its answers is damaged") from problem
    keys = dict(zip(run.keys(), run.questions[KEY].to_pylist(), strict=True))
    return MeasuredRun(name, folder, run, graded, curves, asked, run_id, keys)


def _why(folder: Path) -> str:
    """Return what a run that failed wrote down of it."""
    file = folder / ERROR
    if not file.is_file():
        return ""
    first, _, _ = file.read_text(encoding="utf-8", errors="replace").partition("\n")
    return f": {printable(first)[:500]}"


def same_answers(one: MeasuredRun, other: MeasuredRun) -> bool:
    """Tell whether two runs asked the same questions and were answered the same, word for word."""
    return one.keys.keys() == other.keys.keys() and _texts(one) == _texts(other)


def _texts(run: MeasuredRun) -> Counter[tuple[object, ...]]:
    columns = [run.graded[name].to_pylist() for name in COLUMNS if name != "correct"]
    return Counter(tuple(str(value) for value in row) for row in zip(*columns, strict=True))


_ALIKE = ("temperatures", "trials", "selection", "min_confidence", "max_questions", "rewrites")
"""Settings of samplers: the grid, k, the selection."""


def refuse_incomparable(baseline: MeasuredRun, candidate: MeasuredRun) -> list[tuple[str, str]]:
    """Return the questions that both asked, by id and text; UserError names what differs that must not: k, the grid,
    the grader, the selection, how a metric is computed, or the key of a shared question.
    """
    refuse_other_settings(baseline, candidate.run.settings, candidate.name)
    return shared_questions(baseline, candidate.keys, candidate.name)


def shared_questions(baseline: MeasuredRun, keys: Mapping[tuple[str, str], str], name: str) -> list[tuple[str, str]]:
    """Return those of the baseline's questions that a candidate, called ``name``, asks as well. ``keys`` say what is
    right of each of its questions.

    Raises UserError where there is none, or where the key of one differs.
    """
    shared = [question for question in baseline.keys if question in keys]
    if not shared:
        raise UserError(f"{name} cannot be gated by {baseline.name}: they share no question (id and text)")
    for question in shared:
        if baseline.keys[question] != keys[question]:
            raise UserError(
                f"{name} cannot be gated by {baseline.name}: the key of question {question[0]} is "
                f"{_right(keys[question])} and was {_right(baseline.keys[question])}"
            )
    return shared


def refuse_other_settings(baseline: MeasuredRun, other: Mapping[str, Any], name: str) -> None:
    """Raise UserError where settings of a candidate, called ``name``, differ that must agree with the baseline's."""
    one = baseline.run.settings
    for setting in sorted({*_compared(one), *_compared(other)}):
        if one.get(setting) != other.get(setting):
            raise UserError(
                f"{name} cannot be gated by {baseline.name}: {setting} is {_said(other, setting)} and was "
                f"{_said(one, setting)}; measure both alike"
            )


def _compared(settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the settings that must agree."""
    for name in settings:
        group, _, rest = name.partition(".")
        own = rest.partition(".")[2]
        sampled = group == "sampler" and own in _ALIKE
        if sampled or (group == "metric" and own != "d") or group in ("grader", "aggregator") or name == "reader":
            yield name


def _said(settings: Mapping[str, Any], setting: str) -> str:
    return str(settings[setting]) if setting in settings else "not set"


def _right(key: str) -> str:
    """Return a key as a person reads it."""
    try:
        found = json.loads(key)
        choices, correct = found.get("choices"), found.get("correct")
        if choices:
            return f"{choices[correct]!r} of {', '.join(map(str, choices))}"
        return "; ".join(map(str, found.get("answers", []))) or "none"
    except (ValueError, AttributeError, TypeError, IndexError):
        return key
