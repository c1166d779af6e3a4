"""Single facts that were forgotten, learned, or became less robust. They are listed, and decide nothing."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from robust_eval.answer import NO_ANSWER, NO_REPLY, SAMPLER, rows, temperatures_of
from robust_eval.gate.measured_run import MeasuredRun
from robust_eval.runtime.text import number
from robust_eval.stats.interval import Floats
from robust_eval.stats.significance import permutation_p

RATE = 0.1
"""False discovery rate of the less robust facts (Benjamini and Hochberg)."""


class Fact(NamedTuple):
    """Fact with its greedy answers. ``why`` explains a loss of robustness; it is empty if the greedy answer changed."""

    question_id: str
    question: str
    baseline: str
    candidate: str
    why: str = ""


class SingleFacts(NamedTuple):
    """Single facts that the candidate has ``forgotten`` (its greedy answer is wrong, and was right), the reverse
    (``learned``), and those that became ``less_robust``, with a ``note`` on the method.
    """

    forgotten: list[Fact]
    learned: list[Fact]
    less_robust: list[Fact]
    note: str


def single_facts(baseline: MeasuredRun, candidate: MeasuredRun, shared: Sequence[tuple[str, str]]) -> SingleFacts:
    """Return the single facts among the ``shared`` questions."""
    one, other = _greedy(baseline), _greedy(candidate)
    changed: dict[tuple[bool, bool], list[Fact]] = {}
    for question_id, question in shared:
        if question_id in one and question_id in other:
            (before, was), (after, now) = one[question_id], other[question_id]
            if was is not None and now is not None:
                changed.setdefault((was, now), []).append(Fact(question_id, question, before, after))
    kept_facts = {fact.question_id: fact for fact in changed.get((True, True), [])}
    less_robust, note = _less_robust(baseline, candidate, kept_facts)
    return SingleFacts(changed.get((True, False), []), changed.get((False, True), []), less_robust, note)


def _greedy(run: MeasuredRun) -> dict[str, tuple[str, bool | None]]:
    """Return each fact's baseline answer with its verdict; None without a reply, or without a key."""
    columns = rows(run.baseline_answers, "question_id", "text", "correct", "outcome")
    return {
        question_id: (text, None if outcome in NO_REPLY else False if outcome in NO_ANSWER else correct)
        for question_id, text, correct, outcome in columns
    }


def _less_robust(baseline: MeasuredRun, candidate: MeasuredRun, facts: dict[str, Fact]) -> tuple[list[Fact], str]:
    """Return the single facts known to both that became less robust, and a note on the method."""
    early = any(
        run.sampling_metadata is not None and run.sampling_metadata.early_stopping for run in (baseline, candidate)
    )
    if early:
        return _by_breaking(baseline, candidate, facts), (
            "Trials stopped early (sampler.early_stop=true): the list shows facts that break earlier, without a test."
        )
    exact = all("sampler.exact.temperatures" in run.run.settings for run in (baseline, candidate))
    if exact:
        return _by_bounds(baseline.exact_curves, candidate.exact_curves, facts), (
            "The list shows facts whose accuracy, summed over temperatures, is certainly lower than in the baseline."
        )
    one, other = _trials(baseline, facts), _trials(candidate, facts)
    comparable = [name for name in facts if name in one and name in other and one[name].shape == other[name].shape]
    if not comparable:
        return [], "No fact has trials at the same temperatures in both runs."
    seeds = [run.run.settings.get("seed") for run in (baseline, candidate)]  # a log has none
    paired = seeds[0] is not None and seeds[0] == seeds[1]
    p = np.array([permutation_p(one[name], other[name], paired) for name in comparable])
    from scipy import stats  # it takes half a second, which most runs need not spend

    adjusted = stats.false_discovery_control(p)
    less_robust = [
        facts[name]._replace(
            why=f"right in {_right_share(other[name])} trials (baseline {_right_share(one[name])}), p = {p[place]:.4f}"
        )
        for place, name in enumerate(comparable)
        if adjusted[place] <= RATE
    ]
    how = "swapped between the runs in pairs with the same seed and trial number" if paired else "pooled over both runs"
    return less_robust, (
        f"Tested by permutation of whole trials ({how}), with a false discovery rate of at most {number(RATE, '.0%')} "
        f"(Benjamini-Hochberg) among {len(comparable):,} facts."
    )


def _trials(run: MeasuredRun, facts: dict[str, Fact]) -> dict[str, Floats]:
    """Return (T, k) the trials of each single fact, of a sweep over temperatures or else of its repetitions and
    rewordings: 1 right, 0 wrong, NaN without a reply.
    """
    sweep = run.graded.filter(pc.equal(run.graded[SAMPLER], "temperature_sweep"))
    table = sweep if sweep.num_rows else run.repeated
    grid = {t: place for place, t in enumerate(temperatures_of(table))}
    conditions = list(rows(table, SAMPLER, "rewrite", "trial"))
    column = {condition: place for place, condition in enumerate(sorted(set(conditions)))}
    matrices = {name: np.full((len(grid), len(column)), np.nan) for name in facts} if conditions else {}
    columns = rows(table, "question_id", "temperature", "correct", "outcome")
    for condition, (question_id, t, correct, outcome) in zip(conditions, columns, strict=True):
        if question_id in matrices and outcome not in NO_REPLY:
            matrices[question_id][grid[t], column[condition]] = bool(correct) and outcome not in NO_ANSWER
    return {name: values for name, values in matrices.items() if not np.isnan(values).all()}


def _right_share(trials: Floats) -> str:
    return f"{np.nansum(trials):.0f} of {np.count_nonzero(~np.isnan(trials))}"


def _by_breaking(baseline: MeasuredRun, candidate: MeasuredRun, facts: dict[str, Fact]) -> list[Fact]:
    """Return the single facts that break at a lower temperature, the largest change first."""
    one, other = (
        dict(
            zip(run.run.questions["question_id"].to_pylist(), run.run.breaking_temperatures()[1].tolist(), strict=True)
        )
        for run in (baseline, candidate)
    )
    highest = max(baseline.run.breaking_temperatures()[0], default=0.0)
    earlier = [
        (
            min(one[name], highest + 1) - other[name],
            fact._replace(
                why=f"breaks at {other[name]:g} (baseline: {'unbroken' if np.isinf(one[name]) else f'{one[name]:g}'})"
            ),
        )
        for name, fact in facts.items()
        if name in one and name in other and other[name] < one[name]
    ]
    return [fact for _, fact in sorted(earlier, key=lambda each: -each[0])]


def _by_bounds(baseline: pa.Table, candidate: pa.Table, facts: dict[str, Fact]) -> list[Fact]:
    """Return the single facts whose upper bounds of accuracy in the candidate, summed over common temperatures, are
    lower than the lower bounds in the baseline.
    """
    lowest, highest = (
        {(name, t): value for name, t, value in rows(table, "question_id", "temperature", column)}
        for table, column in ((baseline, "lower"), (candidate, "upper"))
    )
    sums: dict[str, list[float]] = {}
    for (name, t), value in lowest.items():
        if name in facts and (name, t) in highest:
            both = sums.setdefault(name, [0.0, 0.0])
            both[0] += value
            both[1] += highest[name, t]
    return [
        facts[name]._replace(why=f"accuracies sum to at most {high:.2f} (baseline: at least {low:.2f})")
        for name, (low, high) in sums.items()
        if high < low
    ]
