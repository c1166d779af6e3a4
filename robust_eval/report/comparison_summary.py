"""Summary of a comparison: the better of two runs, or that they cannot be distinguished; of many runs a ranking."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from robust_eval.metric.metric_spec import at_words
from robust_eval.metric.variance_metric import AnswerVariance, component_shares
from robust_eval.runs.comparison import MARGIN, Comparison, Pair
from robust_eval.runs.differing_settings import (
    TRUNCATED,
    Differing,
    cautions,
    contrast,
    differing,
    listed,
    scoring_settings,
    truncation,
)
from robust_eval.runs.shared_questions import connected
from robust_eval.runtime.text import counted, enumerated, number, signed
from robust_eval.stats.interval import MIN_UNITS
from robust_eval.stats.significance import LEVEL, compact_letter_display

MAX_SENTENCES = 3
"""Maximum number of pairs with a sentence each; more pairs are ranked."""
SHARED_LETTER = "Runs that share a letter cannot be distinguished."
NO_WINNER = "their scores say nothing about which model is more robust."


class Ranking(NamedTuple):
    """Ranking of measurements by one metric, the best first, and a sentence on them: by their index in the comparison,
    the letters of their significance groups. Those that share a letter cannot be distinguished.
    """

    sentence: str
    letters: dict[int, str]


def opening(compared: Comparison) -> tuple[list[str], list[Ranking]]:
    """Return the comparison's opening sentences, and the rankings of measurements in too many pairs for sentences."""
    scoring_sentences = list(_scored_differently(compared))
    sentences, rankings = scoring_sentences if len(compared.measurements) == 1 else [], list[Ranking]()
    for metric in dict.fromkeys(pair.metric for pair in compared.pairs if pair.metric):
        pairs = [pair for pair in compared.pairs if pair.metric == metric]
        judged = [pair for pair in pairs if not pair.unjudged]
        if len(pairs) <= MAX_SENTENCES:
            pairs.sort(key=lambda pair: pair.unjudged != "scored")
            sentences += [_verdict(compared, pair, len(judged)) for pair in pairs]
            continue
        sentences += _without_verdict(compared, [pair for pair in pairs if pair.unjudged])
        for joined in connected(judged):
            if len(joined) <= MAX_SENTENCES:
                sentences += [_verdict(compared, pair, len(judged)) for pair in joined]
            else:
                rankings.append(_ranking(compared, metric, joined))
                sentences.append(rankings[-1].sentence)
    if len(compared.measurements) > 1 and not compared.pairs:
        sentences.append("No two runs share a question (id and text), so there is no verdict.")
    sentences += [_variance(pair.variance) for pair in compared.pairs if pair.variance is not None]
    for dataset in dict.fromkeys(compared.measurement_labels.datasets):
        runs = [run for _, run in compared.on(dataset)]
        sentences += [each for each in cautions(runs) if each not in sentences]
    return [*sentences, *(each for each in scoring_sentences if each not in sentences)], rankings


def _scored_differently(compared: Comparison) -> Iterator[str]:
    """Yield a summary sentence on runs that were merged into one measurement."""
    if len(compared.measurements) == len(compared.runs):
        return
    different = differing(compared.runs)
    settings = {name: different[name] for name in scoring_settings(compared.runs) if name in different}
    if len(compared.measurements) > 1:
        names = " or ".join(name.rpartition(".")[2] for name in settings)
        subject = f"Runs that differ only in {names}" if names else "Some runs"
        yield f"{subject} score the same answers differently, and count as one run in comparisons with others."
        return
    values = f" ({listed(settings)})" if settings else ""
    yield f"These {len(compared.runs)} runs score the same answers differently{values}: {NO_WINNER}"


def _without_verdict(compared: Comparison, pairs: Sequence[Pair]) -> Iterator[str]:
    """Yield the reasons why compared pairs have no verdict, those of the same answers first."""

    def different(pairs: Sequence[Pair]) -> Differing:
        indices = sorted({index for pair in pairs for index in pair[:2]})
        return differing([compared.measurements[index] for index in indices])

    scored, truncated, few = ([p for p in pairs if p.unjudged == kind] for kind in ("scored", "truncated", "few"))
    for values in dict.fromkeys(listed(different(part)) for part in connected(scored)):
        yield (
            f"Runs that differ only in scoring ({values}) have the same answers: {NO_WINNER} Other pairs are compared "
            "if scored in the same way."
        )
    if truncated:
        values = listed(truncation(different(truncated)))
        yield f"Truncation differs ({values}): {TRUNCATED} Runs that differ in it are not ranked against one another."
    if few:
        metric = compared.words(few[0].metric or "")
        share = "shares" if len(few) == 1 else "share"
        yield (
            f"{counted(len(few), 'pair')} {share} fewer than {MIN_UNITS} independent questions, too few for a verdict "
            f"on {metric}."
        )


def _verdict(compared: Comparison, pair: Pair, family: int) -> str:
    """Return the summary of a pair: the better run or why there is no verdict, the difference, its interval, n."""
    difference = contrast(*(compared.measurements[index] for index in pair[:2]))
    first, second = (compared.measurement_labels.full[index] for index in pair[:2])
    if pair.metric and not pair.differences[pair.metric].n:
        words = compared.words(pair.metric)
        return f"{first} and {second} cannot be compared: no question has a value for “{words}” in both runs."
    cause = {
        "few": f"{first} and {second} share too few independent questions for a verdict ({MIN_UNITS} are needed).",
        "rescored": f"{first} and {second} are also scored differently, so there is no verdict.",
    }.get(pair.unjudged)
    start = cause or {
        "repeated": f"{first} and {second} have the same settings: any difference comes from the machine, the versions "
        "or chance.",
        "seed": f"{first} and {second} differ only in the seed: any difference between them is chance.",
        "scored": f"{first} and {second} score the same answers differently ({difference.words}): {NO_WINNER}",
        "truncated": f"{first} and {second} are truncated differently ({difference.words}): {TRUNCATED}",
        "number": f"{first} and {second} differ only in the number of answers ({difference.words}), which by itself "
        "changes metrics.",
    }.get(difference.kind)
    metric = pair.metric
    assert metric is not None
    spec = compared.spec(metric)
    is_reversed = False
    if start is None:
        if not pair.is_significant:
            start = f"{first} and {second} cannot be distinguished:"
        elif spec is None or spec.more_is_better is None:
            start = f"{first} and {second} differ:"
        else:
            is_reversed = (pair.differences[metric].value < 0) == spec.more_is_better
            better, other = (second, first) if is_reversed else (first, second)
            start = f"{better} is ahead of {other}:"
    text = _difference(compared, pair, family, is_reversed)
    return f"{start} {text[0].lower() if start.endswith(':') else text[0].upper()}{text[1:]}"


def _variance(variance: AnswerVariance) -> str:
    """Return a sentence on the shares of a difference's variance components, and its interval with more answers."""
    return (
        f"Variance components of the difference in accuracy {at_words(variance.temperature)}: "
        f"{component_shares(variance.components)}. The 95 % interval of the difference in mean accuracy is "
        f"{variance.interval_words}."
    )


def _difference(compared: Comparison, pair: Pair, family: int, is_reversed: bool) -> str:
    """Return a summary of a metric in both runs: the values, their difference with its interval, n, and the number of
    questions needed.

    With ``is_reversed`` the second run comes first.
    """
    metric = pair.metric
    assert metric is not None
    difference = pair.differences[metric]
    values, bounds, sign = (difference.first, difference.second), (difference.low, difference.high), 1
    if is_reversed:
        values, bounds, sign = values[::-1], (-difference.high, -difference.low), -1
    interval = "" if math.isnan(difference.low) else f"95 % interval {signed(bounds[0])} to {signed(bounds[1])}, "
    corrected = f"; p = {number(pair.corrected, '.2g')} after Holm's correction for {family} pairs"
    corrected = "" if family == 1 or pair.unjudged else corrected
    one, other = map(number, values)
    if one == other and signed(difference.value) != signed(0.0):
        one, other = (number(value, ".4f") for value in values)
    is_partial = any(compared.measurements[index].n(metric) != difference.n for index in pair[:2])
    scope = " on the shared questions" if is_partial else ""
    text = (
        f"{compared.words(metric)}{scope} is {one} in the first and {other} in the second, a difference of "
        f"{signed(sign * difference.value)} ({interval}n = {difference.n:,}{corrected})."
    )
    is_open = not (pair.is_significant or pair.unjudged) and difference.n >= MIN_UNITS
    if is_open and math.isfinite(pair.needed) and pair.needed > difference.n:
        text += f" About {pair.needed:,.0f} questions would be needed to decide"
        text += f" whether they differ by {MARGIN:g} or more."
    return text


def letters(compared: Comparison) -> dict[int, str]:
    """Return the letters of the significance groups by measurement; empty unless every pair of measurements has a
    verdict on the same metric.
    """
    number = len(compared.measurements)
    metrics = {pair.metric for pair in compared.pairs}
    whole = number > 1 and len(compared.pairs) == number * (number - 1) // 2 and len(metrics) == 1
    metric = next(iter(metrics), None)
    if not whole or metric is None or any(pair.unjudged for pair in compared.pairs):
        return {}
    return _ranked(compared, metric, compared.pairs)[0]


def _ranked(compared: Comparison, metric: str, pairs: Sequence[Pair]) -> tuple[dict[int, str], list[list[int]]]:
    """Rank measurements by their mean difference from the others, each on the questions that both have; return the
    letters of each, and the significance groups.
    """
    members = sorted({place for pair in pairs for place in (pair.first, pair.second)})
    spec = compared.spec(metric)
    sign = -1 if spec is not None and spec.more_is_better is False else 1
    lead = {place: [0.0] for place in members}
    for pair in pairs:
        if (value := pair.differences[metric].value) == pair.differences[metric].value:
            lead[pair.first].append(sign * value)
            lead[pair.second].append(-sign * value)
    members.sort(key=lambda place: -sum(lead[place]) / len(lead[place]))
    different = [(pair.first, pair.second) for pair in pairs if pair.is_significant]
    groups = compact_letter_display(members, different)
    signs = [chr(ord("a") + rank) if rank < 26 else f"({rank + 1})" for rank in range(len(groups))]
    pairs_of_sign = list(zip(signs, groups, strict=True))
    return {place: "".join(sign for sign, group in pairs_of_sign if place in group) for place in members}, groups


def _ranking(compared: Comparison, metric: str, pairs: Sequence[Pair]) -> Ranking:
    """Return the ranking of the compared measurements by a metric, with a sentence on it."""
    ranked, groups = _ranked(compared, metric, pairs)
    best = [compared.measurement_labels.full[place] for place in groups[0]]
    n = [pair.differences[metric].n for pair in pairs]
    shared = f"{min(n):,}" if min(n) == max(n) else f"{min(n):,} to {max(n):,}"
    if len(groups) == 1:
        start = f"None of the {len(ranked)} can be distinguished from any other by {compared.words(metric)}"
    elif len(best) == 1:
        start = f"{best[0]} is ahead of all {len(ranked) - 1} others in {compared.words(metric)}"
    else:
        names = enumerated(best, "and")
        start = f"{names} are ahead in {compared.words(metric)}, and cannot be distinguished from one another"
    text = (
        f"{start} ({len(pairs)} pairs, each on the {shared} questions with a value in both runs). Two runs count as "
        f"different if p is below {LEVEL:g} after Holm's correction for all pairs and the 95 % interval excludes 0."
    )
    return Ranking(text, ranked)


def sentences(compared: Comparison) -> list[str]:
    """Return the opening sentences of a comparison: verdicts, cautions, and scope."""
    verdicts, _ = opening(compared)
    return [*verdicts, *scope(compared)]


def scope(compared: Comparison) -> list[str]:
    """Return the summary's sentences on the compared runs, those left out, and metrics that need an explanation."""

    def listed(setting: str) -> str:
        return enumerated(sorted({str(run.settings[setting]) for run in compared.runs}), "and")

    text = [f"{counted(len(compared.runs), 'run')} of {listed('model.name')} on {listed('dataset.name')}."]
    if compared.repetitions:
        repeated = counted(compared.repetitions, "repetition")
        text.append(f"Left out: {repeated} of a run, with the same settings and results.")
    names = dict.fromkeys(pair.metric for pair in compared.pairs if pair.metric)
    return text + [spec.explained for name in names if (spec := compared.spec(name)) and spec.explained]
