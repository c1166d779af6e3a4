"""Knowledge and firmness of two runs by their answers, where a run has no metric of these."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from robust_eval.answer import SAMPLER, rows, temperature_name
from robust_eval.gate.measured_run import MeasuredRun
from robust_eval.metric.score import verdicts
from robust_eval.stats.interval import Floats

KNOWLEDGE, FIRMNESS = "knowledge", "firmness"
"""Constructs that a gate judges by the metrics of both runs or, without these, by their answers."""
NOT_JUDGED = "Firmness is not judged"


class AnsweredRight(NamedTuple):
    """Knowledge or firmness of both runs on n shared questions, (n,) each: 1 right, 0 wrong, NaN unknown."""

    label: str
    baseline: Floats
    candidate: Floats


def knowledge(baseline: MeasuredRun, candidate: MeasuredRun, shared: Sequence[tuple[str, str]]) -> AnsweredRight:
    """Return both runs' knowledge: verdicts on the baseline answers, the greedy ones, else the most frequent ones."""
    values = []
    for run in (baseline, candidate):
        answers = run.baseline_answers
        right = dict(zip(answers["question_id"].to_pylist(), verdicts(answers).tolist(), strict=True))
        values.append(np.array([right.get(question_id, np.nan) for question_id, _ in shared]))
    return AnsweredRight(knowledge_label(baseline, candidate), *values)


def knowledge_label(baseline: MeasuredRun, candidate: MeasuredRun) -> str:
    """Return the label of the accuracy that stands for knowledge, with the kind of the baseline answers."""
    words = dict.fromkeys(map(_baseline_words, (baseline, candidate)))
    return f"{KNOWLEDGE} (accuracy of {' and of '.join(words)})"


def _baseline_words(run: MeasuredRun) -> str:
    if run.has_greedy_answers:
        return "all greedy answers"
    several = run.baseline_answers.num_rows < run.repeated.num_rows
    return "the most frequent answers" if several else "single answers"


def firmness(baseline: MeasuredRun, candidate: MeasuredRun, shared: Sequence[tuple[str, str]]) -> AnsweredRight | None:
    """Return the firmness of both runs: the questions that are right in all repetitions and rewordings that both runs
    have; None where no question has several, or a sampler drew them at different temperatures (:func:`no_firmness`).
    """
    if _other_temperatures(baseline, candidate):
        return None
    one, other = _verdicts(baseline), _verdicts(candidate)
    values = np.full((2, len(shared)), np.nan)
    conditions: dict[tuple[str, int, int], None] = {}
    number = 0
    for place, (question_id, _) in enumerate(shared):
        before, after = one.get(question_id, {}), other.get(question_id, {})
        if common := before.keys() & after.keys():
            values[:, place] = [min(run[key] for key in common) for run in (before, after)]
            conditions |= dict.fromkeys(common)
            number = max(number, len(common))
    if number < 2:
        return None
    reworded = any(rewrite for _, rewrite, _ in conditions)
    repeated = len({key[:2] for key in conditions}) < len(conditions)
    kinds = " and ".join(["repetitions"] * (repeated or not reworded) + ["rewordings"] * reworded)
    return AnsweredRight(f"{FIRMNESS} (right in all {number} {kinds})", *values)


def _verdicts(run: MeasuredRun) -> dict[str, dict[tuple[str, int, int], float]]:
    """Return the verdicts on the repeated answers to each question, by sampler, rewrite and trial."""
    by_question: dict[str, dict[tuple[str, int, int], float]] = {}
    columns = rows(run.repeated, "question_id", SAMPLER, "rewrite", "trial")
    for (question_id, *key), value in zip(columns, verdicts(run.repeated).tolist(), strict=True):
        if value == value:
            by_question.setdefault(question_id, {})[key[0], key[1], key[2]] = value
    return by_question


def no_firmness(baseline: MeasuredRun, candidate: MeasuredRun) -> str:
    """Return a sentence on the reason why the firmness of two runs is not judged (:func:`firmness` is None)."""
    reason = _other_temperatures(baseline, candidate) or "no question has several drawn answers in both runs"
    return f"{NOT_JUDGED}: {reason}."


def _other_temperatures(baseline: MeasuredRun, candidate: MeasuredRun) -> str:
    """Return a clause on a sampler whose temperature differs between the runs; empty if there is none."""
    one, other = baseline.repeated_by_sampler, candidate.repeated_by_sampler
    for sampler in one.keys() & other.keys():
        was, now = (temperature_name(run[sampler]["temperature"][0].as_py()) for run in (one, other))
        if was != now:
            was, now = ("the model's own" if each == "own" else each for each in (was, now))
            return (
                f"the temperature of the candidate's answers is {now}, but the baseline's was {was}; measure both at "
                "their default (model.takes_temperature=false)"
            )
    return ""
