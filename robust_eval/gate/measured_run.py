"""Runs as a gate reads them, with metrics and verdicts by question, and the comparability of two."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from robust_eval.answer import (
    EXACT_CURVES,
    GREEDY,
    SAMPLER,
    SamplingMetadata,
    has_greedy,
    most_frequent,
    read_sampling_metadata,
    rows,
)
from robust_eval.error import OutageError, UserError
from robust_eval.runs.finished_runs import KEY, FinishedRun, failure_reason, kept_nothing, read_run, trials_by_sampler
from robust_eval.runtime.parquet_files import read_parquet
from robust_eval.stats.interval import Floats
from robust_eval.tracking.run_folder import ANSWERS, CONFIG, CURVES_FILE, GRADED, SUMMARY, TRACKED

COLUMNS = ["question_id", "rewrite", "temperature", "trial", "text", "correct", "outcome", SAMPLER]
_READ = [*COLUMNS, "label", "form", "weight"]


@dataclass(frozen=True)
class MeasuredRun:
    """Run that a gate judges, with its ``name`` on the command line, ``graded`` answers (:data:`COLUMNS`), and id in
    MLflow.

    ``exact_curves`` are the accuracies from the model.
    """

    name: str
    folder: Path
    run: FinishedRun
    graded: pa.Table
    exact_curves: pa.Table
    sampling_metadata: SamplingMetadata | None = None
    run_id: str | None = None

    @cached_property
    def keys(self) -> dict[tuple[str, str], str]:
        """Keys of the gated run's questions, by the id and the text of each."""
        return dict(zip(self.run.keys(), self.run.questions[KEY].to_pylist(), strict=True))

    @property
    def model(self) -> str:
        """Name of the gated run's model."""
        return str(self.run.settings["model.name"])

    @property
    def kept_nothing(self) -> bool:
        """True if the run kept no question: metrics of kept questions are then undefined."""
        return not self.run.kept().any()

    @property
    def has_greedy_answers(self) -> bool:
        """True if the gated run's baseline answers are those at temperature 0."""
        return has_greedy(self.baseline_answers)

    @cached_property
    def baseline_answers(self) -> pa.Table:
        """Baseline answer to each question; without any, the most frequent one of the sampler with most answers."""
        asked = self.graded.filter(pc.equal(self.graded[SAMPLER], GREEDY))
        if asked.num_rows or not self.repeated_by_sampler:
            return asked
        originals = [answers.filter(pc.equal(answers["rewrite"], 0)) for answers in self.repeated_by_sampler.values()]
        answers = max(originals, key=lambda each: each.num_rows)
        return answers.take(most_frequent(answers))

    @cached_property
    def repeated_by_sampler(self) -> dict[str, pa.Table]:
        """Trials of each sampler (:func:`.trials_by_sampler`)."""
        return trials_by_sampler(self.graded)

    @cached_property
    def repeated(self) -> pa.Table:
        """The gated run's answers of :attr:`repeated_by_sampler` in one table."""
        return pa.concat_tables([self.graded.slice(0, 0), *self.repeated_by_sampler.values()])

    def outcomes(self) -> dict[str, Counter[str]]:
        """Count the outcomes of the gated run's greedy answers, and of those of each sampler."""
        counts: dict[str, Counter[str]] = {}
        for sampler, outcome in rows(self.graded, SAMPLER, "outcome"):
            counts.setdefault(sampler, Counter())[outcome] += 1
        return counts

    def values(self, metric: str, rows: NDArray[np.intp]) -> Floats:
        """Return a metric of the questions in these rows; NaN if undefined."""
        if metric not in self.run.question_metrics and self.kept_nothing:
            return np.full(len(rows), np.nan)
        return self.run.values(metric)[rows]


def read_measured(folder: Path, name: str) -> MeasuredRun:
    """Return the measured run in a folder, for a gate.

    A run that kept no question has not finished, but its greedy answers are judged. Raises OutageError if another run
    has not finished, and UserError if there is none, or one that cannot be gated.
    """
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}; name the folder of a finished run (mlruns/runs/DATE/TIME)")
    knows_nothing = kept_nothing(folder)
    if (folder / CONFIG).is_file() and not (folder / SUMMARY).is_file() and not knows_nothing:
        raise OutageError(f"{name} has not finished{failure_reason(folder)}")
    run = read_run(folder, name, without_summary=knows_nothing)
    if not (folder / GRADED).is_file():
        raise UserError(f"{name} cannot be gated: there is no {GRADED}")
    try:
        graded = read_parquet(folder / GRADED, _READ)
        curves = read_parquet(folder / CURVES_FILE) if (folder / CURVES_FILE).is_file() else EXACT_CURVES.empty_table()
        metadata = read_sampling_metadata(folder / ANSWERS) if (folder / ANSWERS).is_file() else None
        run_id = (folder / TRACKED).read_text(encoding="utf-8").strip() if (folder / TRACKED).is_file() else None
    except UserError:
        raise
    except (OSError, ValueError, KeyError) as problem:
        raise UserError(f"{name} cannot be read: a file of its answers is damaged") from problem
    return MeasuredRun(name, folder, run, graded, curves, metadata, run_id)


def same_answers(one: MeasuredRun, other: MeasuredRun) -> bool:
    """Return whether the two runs of a gate have the same questions and the same answers, word for word, each with the
    same weight (enumerated letters are the same for every model, with other probabilities), order and form of choices.
    """
    return one.keys.keys() == other.keys.keys() and _texts(one) == _texts(other)


def _texts(run: MeasuredRun) -> Counter[tuple[object, ...]]:
    columns = [run.graded[name].to_pylist() for name in (*COLUMNS, "weight", "form") if name != "correct"]
    return Counter(tuple(str(value) for value in row) for row in zip(*columns, strict=True))


_SAMPLER_SETTINGS = ("temperatures", "trials", "selection", "min_confidence", "max_questions", "rewrites")
"""Compared settings of samplers: the grid, k, the selection."""


def refuse_incomparable(baseline: MeasuredRun, candidate: MeasuredRun) -> list[tuple[str, str]]:
    """Return a gate's shared questions, by id and text; UserError if k, the grid, the grader, the selection, a metric's
    setting, or the key of a shared question differs.
    """
    refuse_other_settings(baseline, candidate.run.settings, candidate.name)
    return shared_questions(baseline, candidate.keys, candidate.name)


def shared_questions(baseline: MeasuredRun, keys: Mapping[tuple[str, str], str], name: str) -> list[tuple[str, str]]:
    """Return the questions that a gate's baseline shares with a candidate called ``name``, with these ``keys``.

    Raises UserError if there is none, or if the key of one differs.
    """
    shared = [question for question in baseline.keys if question in keys]
    if not shared:
        raise UserError(f"{name} cannot be compared with {baseline.name}: they share no questions (id and text)")
    for question in shared:
        if baseline.keys[question] != keys[question]:
            raise UserError(
                f"{name} cannot be compared with {baseline.name}: the accepted answer to question {question[0]} is "
                f"{_key_text(keys[question])}, but was {_key_text(baseline.keys[question])} in the baseline"
            )
    return shared


def refuse_other_settings(baseline: MeasuredRun, other: Mapping[str, Any], name: str) -> None:
    """Raise UserError if a compared setting of a candidate called ``name`` differs from the baseline's."""
    one = baseline.run.settings
    for setting in sorted({*_compared(one), *_compared(other)}):
        if one.get(setting) != other.get(setting):
            problem = _other_option(one, other, setting) or (
                f"{setting} is {_setting_text(other, setting)}, but was {_setting_text(one, setting)} in the baseline; "
                "measure both with the same value"
            )
            raise UserError(f"{name} cannot be compared with {baseline.name}: {problem}")


def _compared(settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the settings that must agree in the runs of a gate."""
    for name in settings:
        group, _, rest = name.partition(".")
        option = rest.partition(".")[2]
        sampled = group == "sampler" and option in _SAMPLER_SETTINGS
        if sampled or (group == "metric" and option != "d") or group in ("grader", "aggregator") or name == "reader":
            yield name


def _other_option(one: Mapping[str, Any], other: Mapping[str, Any], setting: str) -> str:
    """Return a sentence on a metric, or an option of a group, that a setting shows in only one run; else empty."""
    group, _, rest = setting.partition(".")
    if group == "metric":
        prefix = f"metric.{rest.partition('.')[0]}"
        has = [any(f"{each}.".startswith(f"{prefix}.") for each in settings) for settings in (one, other)]
        only = "the baseline" if has[0] else "the candidate"
        return "" if all(has) else f"only {only} has {prefix.replace('.', '=')}; measure both with the same metrics"
    keys, others = ({each for each in settings if each.partition(".")[0] == group} for settings in (one, other))
    if group != "sampler" and keys - others and others - keys:
        return f"they use different options of the group {group}; measure both with the same one"
    return ""


def _setting_text(settings: Mapping[str, Any], setting: str) -> str:
    return str(settings[setting]) if setting in settings else "not set"


def _key_text(key: str) -> str:
    """Return a question's key as text for people."""
    try:
        entries = json.loads(key)
        choices, correct = entries.get("choices"), entries.get("correct")
        if choices:
            return f"{choices[correct]!r} of {', '.join(map(str, choices))}"
        return "; ".join(map(str, entries.get("answers", []))) or "none"
    except (ValueError, AttributeError, TypeError, IndexError):
        return key
