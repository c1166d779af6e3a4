"""Settings in which runs differ, their meaning for a comparison, and runs that differ in none or in scoring alone."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from robust_eval.runs.finished_runs import FinishedRun
from robust_eval.runtime.text import enumerated
from robust_eval.tracking.flat_settings import setting_value, settings_that_count

_SCORING = ("metric", "metric.", "grader.", "reader.", "aggregator.", "question_types", "labels")
"""Prefixes of the settings that determine scores, and not answers."""
_COUNT_SETTINGS = ("*.trials", "*.rewrites")
"""Patterns of the settings for the number of answers to each question."""
_TRUNCATION = (
    *("preset", "top_k", "top_p", "min_p", "top_a", "top_n_sigma", "tfs_z", "typical", "typical_p"),
    *("epsilon_cutoff", "eta_cutoff"),
)
"""Last names of the settings of a model that truncate the sampling distribution."""
TRUNCATED = "truncation removes the tail that high temperatures draw from, so the runs do not measure the same thing."
_CAUTIONS = {
    "Servers differ": ("model.base_url",),
    "The restriction of replies to letters differs": ("*.structured",),
    "Prompts differ": ("model.prompt_style", "model.chat_template.*", "*.prompts"),
    "Data types differ": ("model.dtype",),
    "Length limits differ": ("*.max_new_tokens", "model.max_completion_tokens"),
}
"""Other settings that move metrics by themselves: a statement, and patterns of their names."""

Differing = Mapping[str, Sequence[Any]]
"""Settings in which runs differ, with the value of each run; None if it has no such setting."""


class Contrast(NamedTuple):
    """Contrast of two runs' settings: ``kind`` is repeated | seed | truncated | scored | number | other."""

    kind: str
    settings: Differing

    @property
    def rescored(self) -> bool:
        """True if the two runs score answers differently, whatever else differs."""
        return any(name.startswith(_SCORING) for name in self.settings)

    @property
    def words(self) -> str:
        """Settings of a contrast with both values: "metric.frs.d=1 and 5"."""
        return listed(self.settings)


def listed(settings: Differing) -> str:
    """Return settings with their different values: "metric.frs.d=1, 2 and 5"."""
    words = {name: dict.fromkeys(setting_value(name, value) for value in values) for name, values in settings.items()}
    return "; ".join(f"{name}={enumerated(values, 'and')}" for name, values in words.items())


def contrast(one: FinishedRun, other: FinishedRun) -> Contrast:
    """Return the contrast of two runs: the settings that differ, and the kind of difference.

    Answers are the same if no setting differs that determines them, and all shared greedy answers agree.
    """
    settings = differing([one, other])
    if cut := truncation(settings):
        return Contrast("truncated", cut)
    if not settings:
        return Contrast("repeated", settings)
    if set(settings) == {"seed"}:
        return Contrast("seed", settings)
    if all(name.startswith(_SCORING) for name in settings):
        shared = one.greedy.keys() & other.greedy.keys()
        same = all(one.greedy[name].text == other.greedy[name].text for name in shared)
        return Contrast("scored" if same else "other", settings)
    if all(_matches(name, _COUNT_SETTINGS) for name in settings):
        return Contrast("number", settings)
    return Contrast("other", settings)


def truncation(settings: Differing) -> Differing:
    """Return those of the differing settings that truncate the sampling distribution."""
    cut = {name: values for name, values in settings.items() if name.startswith("model.")}
    return {name: values for name, values in cut.items() if name.rpartition(".")[2] in _TRUNCATION}


def differing(runs: Sequence[FinishedRun]) -> dict[str, list[Any]]:
    """Return the settings in which not all of the runs agree."""
    settings = [settings_that_count(run.settings) for run in runs]
    names = dict.fromkeys(name for each in settings for name in each)
    values = {name: [each.get(name) for each in settings] for name in names}
    return {name: setting_values for name, setting_values in values.items() if len(set(map(str, setting_values))) > 1}


def cautions(runs: Sequence[FinishedRun]) -> list[str]:
    """Return a sentence for each difference between runs that alone changes metrics."""
    sentences = []
    if numbers := _differing_values(runs, _COUNT_SETTINGS):
        sentences.append(f"The number of answers per question differs ({numbers}), which by itself changes metrics.")
    for statement, patterns in _CAUTIONS.items():
        if values := _differing_values(runs, patterns):
            sentences.append(f"{statement} ({values}): this may explain part of the difference.")
    return sentences


def _differing_values(runs: Sequence[FinishedRun], patterns: Sequence[str]) -> str:
    """Return the contrasting values of the matching settings of any sampler, without those that all runs have; empty if
    all runs agree, or some have none.
    """
    values = [
        dict.fromkeys(
            str(value) for name, value in settings_that_count(run.settings).items() if _matches(name, patterns)
        )
        for run in runs
    ]
    shared = set.intersection(*map(set, values))
    omitted = set[str]() if shared in map(set, values) else shared
    texts = [", ".join(value for value in each if value not in omitted) for each in values]
    return " vs. ".join(dict.fromkeys(texts)) if all(texts) and len(set(texts)) > 1 else ""


def _matches(setting: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(setting, pattern) for pattern in patterns)


def without_repetitions(runs: Sequence[FinishedRun]) -> list[FinishedRun]:
    """Return the runs without those that have the settings and the values of an earlier one."""

    def is_repetition(run: FinishedRun, other: FinishedRun) -> bool:
        names = run.questions.column_names
        same = _key(run) == _key(other) and names == other.questions.column_names
        return same and _equal(run.questions, other.questions, names)

    distinct: list[FinishedRun] = []
    for run in runs:
        if not any(is_repetition(run, other) for other in distinct):
            distinct.append(run)
    return distinct


def merged(runs: Sequence[FinishedRun]) -> list[FinishedRun]:
    """Return the runs, with those that differ in :func:`scoring_settings` alone (FRS: in d) merged into one with all
    scores: they scored the same answers.
    """
    settings = scoring_settings(runs)
    merged_runs: list[FinishedRun] = []
    for run in runs:
        key = _key(run, without=settings)
        for index, other in enumerate(merged_runs):
            shared = [name for name in other.questions.column_names if name in run.questions.column_names]
            if _key(other, without=settings) == key and _equal(run.questions, other.questions, shared):
                merged_runs[index] = _union(other, run)
                break
        else:
            merged_runs.append(run)
    return merged_runs


def scoring_settings(runs: Sequence[FinishedRun]) -> list[str]:
    """Return the settings of the numbers in metric names (FRS: d), in which runs over the same answers may differ."""
    return list(dict.fromkeys(spec.setting for run in runs for spec in run.specs if spec.setting))


def _key(run: FinishedRun, without: Collection[str] = ()) -> dict[str, str]:
    return {name: str(value) for name, value in settings_that_count(run.settings).items() if name not in without}


def _equal(one: pa.Table, other: pa.Table, columns: Sequence[str]) -> bool:
    """Return True if the tables of runs agree in these columns; undefined values are equal."""
    if one.num_rows != other.num_rows:
        return False
    pairs = [(one[name].to_numpy(zero_copy_only=False), other[name].to_numpy(zero_copy_only=False)) for name in columns]
    return all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs)


def _union(one: FinishedRun, other: FinishedRun) -> FinishedRun:
    questions = one.questions
    for name in other.question_metrics:
        if name not in questions.column_names:
            questions = questions.append_column(other.questions.schema.field(name), other.questions[name])
    return replace(
        one,
        questions=questions,
        metrics={**other.metrics, **one.metrics},
        of_questions={**other.of_questions, **one.of_questions},
        specs=[*one.specs, *other.specs],
    )
