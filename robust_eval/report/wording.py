"""What figures are called, and what is said of them, wherever a person reads them."""

import math
import re
from typing import NamedTuple

from robust_eval.metric.interval import independent
from robust_eval.metric.score import Estimate, Score, curve_and_temperature, nearest_to_one, point, question_groups
from robust_eval.question import QUESTION_TYPES
from robust_eval.record.result import Result
from robust_eval.runtime.rounding import number


class Row(NamedTuple):
    """A figure as a person reads it."""

    label: str
    value: str
    interval: str
    questions: str
    """How many it rests on; empty where it rests on none."""


def headline(score: Score) -> list[Row]:
    """The figures of a score that a person wants first; all of them, by name, of a metric without labels here."""
    figures = score.figures()
    labels = {name: label for name in score.telling().figures() if (label := label_of(name))}
    rows = []
    for name, label in (labels or {name: name for name in figures}).items():
        value = score.reasons.get(name) or number(figures[name].value, ".0f" if ".count." in name else ".3f")
        n = score.n(name)
        rows.append(Row(label, value, interval(figures[name]), "" if n is None else f"{n:,}"))
    return rows


def label_of(figure: str) -> str | None:
    """What a person calls the figure of this flat name; None for those that are too special for a first look."""
    if label := _LABELS.get(figure):
        return label
    if match := re.fullmatch(r"frs\.(?:(combined|trials|offgrid)\.)?d([\d.e+-]+)", figure):
        estimate = f", {_ESTIMATES[match.group(1)]}" if match.group(1) else ""
        return f"mean FRS, d = {match.group(2)}{estimate}"
    curve, temperature = curve_and_temperature(figure) or ("", 0.0)
    return f"{_CURVES[curve]} at t = {temperature:g}" if curve in _CURVES else None


_ESTIMATES = {
    "combined": "all draws combined",
    "trials": "by trials",
    "offgrid": "off the grid",
}
_LABELS = {
    "profile.firm": "share of facts that withstand all three",
    "profile.spearman.frs_worst": "rank correlation: FRS, worst case",
    "profile.spearman.frs_right_share": "rank correlation: FRS, share of wordings right",
    "profile.spearman.frs_entropy": "rank correlation: FRS, answer entropy",
    "profile.spearman.worst_entropy": "rank correlation: worst case, answer entropy",
    "profile.spearman.right_share_entropy": "rank correlation: wordings right, answer entropy",
    "profile.count.undefined": "facts that lack one of the three",
    "accuracy.greedy": "accuracy of all greedy answers",
    "frs.combined.breaking_temperature.median": "median breaking temperature, all draws combined",
    "frs.trials.breaking_temperature.median": "median breaking temperature, by trials",
    "frs.offgrid.breaking_temperature.median": "median breaking temperature, off the grid",
    "frs.unbroken_share": "share of unbroken facts (each scores 1)",
    "frs.count.broken": "broken facts",
    "frs.count.unbroken": "unbroken facts",
    "frs.breaking_temperature.median": "median breaking temperature",
    "frs.breaking_temperature.mean_broken": "mean breaking temperature, broken facts",
    "frs.entropy.mean": "mean initial entropy H",
    "agreement.guessing.accuracy": "accuracy of guessing among the choices",
    "agreement.guessing.worst": "accuracy of the worst rater, if all guess",
    "agreement.guessing.best": "accuracy of the best rater, if all guess",
    "agreement.guessing.certainty": "normalised certainty H_η, if all guess",
    "agreement.guessing.m2": "Gibbs' M2, if all guess",
    "certainty.count.invalid": "replies that answer nothing",
}
_CURVES = {
    "agreement.accuracy": "accuracy of the original question (Base)",
    "agreement.plurality": "accuracy of the vote (Mode)",
    "agreement.worst": "accuracy of the worst rater (Worst)",
    "agreement.best": "accuracy of the best rater (Best)",
    "agreement.difficulty": "accuracy of all raters (μ_D)",
    "agreement.base_minus_difficulty": "Base − μ_D",
    "agreement.certainty": "normalised certainty H_η",
    "agreement.m2": "Gibbs' M2",
    "agreement.semantic_entropy": "semantic entropy (nats)",
    "agreement.kappa": "Fleiss' κ, labels mapped at random",
    "agreement.kappa_free": "free-marginal κ",
    "agreement.kappa_as_labelled": "Fleiss' κ of the letters",
    "agreement.alpha": "Cronbach's α",
    "agreement.alpha_of_raters": "Cronbach's α, raters as items",
    "accuracy": "accuracy",
    "certainty.entropy": "answer entropy (nats)",
    "certainty.entropy_miller_madow": "answer entropy, Miller–Madow (nats)",
    "certainty.error_rate": "error rate",
    "certainty.count.certain_right": "questions certain and right",
    "certainty.count.certain_wrong": "questions certain and wrong",
}


def sentence(result: Result) -> str:
    """The run in one plain sentence."""
    kept = len(result.kept)
    start = f"{kept} of {len(result.candidates())} questions were kept and asked again"
    if "profile" in result.scores:
        values = result.scores["profile"].values
        firm, lacking = values["profile.firm"], values["profile.count.undefined"].value
        them = "them" if not lacking else f"the {kept - lacking:.0f} that have all values"
        start = f"{start} at rising temperature, in other words, and again and again"
        if math.isnan(firm.value):
            return f"{start}; none of them has all values."
        return (
            f"{start}: {number(firm.value, '.0%')} of {them} withstand all three (95 % interval "
            f"{bounds(firm.low, firm.high, '.0%')}), which means unbroken at every temperature, "
            "right in every wording and right in every repetition."
        )
    if "frs" not in result.scores and "agreement" in result.scores:
        score = result.scores["agreement"]
        t = nearest_to_one(score.curves["agreement.accuracy"])
        base, vote, worst, kappa = (
            _of_kept(score, point(f"agreement.{name}", t), kept, form)
            for name, form in (("accuracy", ".0%"), ("plurality", ".0%"), ("worst", ".0%"), ("kappa", ".2f"))
        )
        return (
            f"{start} in several ways at t = {t:g} (95 % intervals in brackets): {base} of them are answered right as "
            f"they stand, {vote} by the vote of all raters, and {worst} by every rater; the raters' agreement beyond "
            f"chance is κ = {kappa}."
        )
    if "frs" not in result.scores and "certainty" in result.scores:
        score = result.scores["certainty"]
        t = nearest_to_one(score.curves["certainty.entropy"])
        entropy, error = (_of_kept(score, point(f"certainty.{name}", t), kept) for name in ("entropy", "error_rate"))
        wrong = number(score.curves["certainty.count.certain_wrong"][t].value, ".0f")
        return (
            f"{start} and again at t = {t:g} (95 % intervals in brackets): the mean entropy of their answers is "
            f"{entropy} nats, their mean error rate {error}; on {wrong} of them the model is certain and wrong."
        )
    if "frs" not in result.scores:
        return f"{start}."
    score = result.scores["frs"]
    name = next(name for name in score.values if name.startswith("frs.d"))
    frs, n = score.values[name], score.n(name)
    interval = f"95 % interval {bounds(frs.low, frs.high)}, d = {name.removeprefix('frs.d')}"
    interval += "" if n in (None, kept) else f", n = {n:,}"
    return (
        f"{start} at rising temperature: their mean Factual Robustness Score is {number(frs.value)} ({interval}), and "
        f"{_of_kept(score, 'frs.unbroken_share', kept, '.0%')} of them never broke."
    )


def _of_kept(score: Score, figure: str, kept: int, form: str = ".3f") -> str:
    """A figure with its interval, and with the number of questions that it rests on where these are not all kept."""
    n = score.n(figure)
    return with_interval(score.figures()[figure], form, None if n == kept else n)


FEWEST = 30
"""Questions below which an interval is not to be trusted: a bootstrap over few is too narrow."""


def few(questions: int, grouped: bool = False) -> str:
    """Says that intervals over so many independent questions, or groups of them, are no measure; empty if they are.

    >>> few(1)
    'Intervals here rest on as few as 1 question: below 30 an interval is a warning and no measure.'
    """
    if not 0 < questions < FEWEST:
        return ""
    noun = ("group" if grouped else "question") + ("" if questions == 1 else "s") + (" of questions" if grouped else "")
    return (
        f"Intervals here rest on as few as {questions} {noun}: below {FEWEST} an interval is a warning and no measure."
    )


def few_kept(result: Result) -> str:
    """:func:`few` of the questions that a run kept."""
    groups = question_groups(result.kept)
    return few(independent(len(result.kept), groups), groups is not None)


def with_interval(estimate: Estimate, form: str = ".3f", n: int | None = None) -> str:
    """A value and, in brackets, its bounds and the number of questions, where there are any."""
    value, said = number(estimate.value, form), interval(estimate, form, n)
    return f"{value} ({said})" if said else value


def type_name(kind: str) -> str:
    """A question type in words; a data set may have others than those of TREC."""
    return QUESTION_TYPES.get(kind, kind) or "no type"


def interval(estimate: Estimate, form: str = ".3f", n: int | None = None) -> str:
    """Its bounds, and on how many questions it rests, where there are any; else empty."""
    said = [] if math.isnan(estimate.low) else [bounds(estimate.low, estimate.high, form)]
    return ", ".join(said if n is None else [*said, f"n = {n:,}"])


def bounds(low: float, high: float, form: str = ".3f") -> str:
    """The bounds of an interval, with as many more digits as it takes to tell them apart.

    >>> bounds(0.25, 0.5), bounds(0.6496, 0.6502)
    ('0.250 to 0.500', '0.6496 to 0.6502')
    """
    start, kind = form[:-2], form[-1]
    for digits in range(int(form[-2]), 10):
        words = [number(bound, f"{start}{digits}{kind}") for bound in (low, high)]
        if words[0] != words[1]:
            break
    return " to ".join(words)
