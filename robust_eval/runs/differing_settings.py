"""Settings in which runs differ, and their meaning for a comparison."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from robust_eval.runs.finished_runs import FinishedRun, settings_that_count
from robust_eval.runtime.text import enumerated
from robust_eval.tracking.flat_settings import setting_value

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
    settings = [settings_that_count(run) for run in runs]
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
        dict.fromkeys(str(value) for name, value in settings_that_count(run).items() if _matches(name, patterns))
        for run in runs
    ]
    shared = set.intersection(*map(set, values))
    omitted = set[str]() if shared in map(set, values) else shared
    texts = [", ".join(value for value in each if value not in omitted) for each in values]
    return " against ".join(dict.fromkeys(texts)) if all(texts) and len(set(texts)) > 1 else ""


def _matches(setting: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(setting, pattern) for pattern in patterns)
