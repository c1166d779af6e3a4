"""Text for the metrics of a run in the terminal and the report."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from robust_eval.metric.metric_spec import DETAIL
from robust_eval.metric.score import Score, question_groups
from robust_eval.prompt.arrangement import GIVEN
from robust_eval.question import QUESTION_TYPES
from robust_eval.runs.question_status import standings
from robust_eval.runtime.text import number
from robust_eval.stats.estimate import interval
from robust_eval.stats.interval import MIN_UNITS, independent
from robust_eval.tracking.result import Result


class Row(NamedTuple):
    """A figure as a person reads it."""

    label: str
    value: str
    interval: str
    questions: str
    """Number of questions that it rests on; empty where it rests on none."""


def headline(score: Score) -> list[Row]:
    """Return the figures of a score that a person wants first; all of them, by name, where the metric declares none."""
    figures = score.figures()
    declared = {name: about for name in score.headline().figures() if (about := score.about(name))}
    shown = [name for name, about in declared.items() if about.shown != DETAIL]
    return [_row(score, name) for name in shown or figures]


def _row(score: Score, name: str) -> Row:
    about, estimate, n = score.about(name), score.figures()[name], score.n(name)
    label, form = (about.words, about.form) if about and about.shown != DETAIL else (name, ".3f")
    value = score.reasons.get(name) or number(estimate.value, form)
    return Row(label, value, interval(estimate), "" if n is None else f"{n:,}")


def main_figures(score: Score) -> list[Row]:
    """Return the figures among :func:`headline` that speak for a score: those that lead or have a short heading, of a
    curve the point nearest to t = 1.
    """
    found = []
    for figure in score.declared:
        if (figure.primary or figure.short) and figure.shown != DETAIL:
            names = figure.standing(score.figures())
            found += names if "{}" in figure.name else names[:1]
    return [_row(score, name) for name in found]


def sentence(result: Result) -> str:
    """Say in one plain sentence what the run did and found."""
    start = f"{len(result.kept)} of {len(result.candidates())} questions were kept and asked again"
    said = next((said for score in result.scores.values() if (said := score.presentation.sentence)), "")
    return f"{start} {said}" if said else f"{start}."


def asked_words(result: Result) -> str:
    """Say in one line what was asked of whom, and when."""
    known = result.description
    where = ", ".join(
        str(known[name]) for name in ("loaded.dtype", "loaded.device", "loaded.server") if known.get(name)
    )
    when = f" on {result.origin['time'].partition(',')[0]}" if "time" in result.origin else ""
    model = f"{known.get('model.name', 'The model')}{f' ({where})' if where else ''}"
    again = "; ".join(dict.fromkeys(_again(name, known) for name in result.graded))
    once = "once at temperature 0, and " if result.baseline.num_rows else ""
    data = known.get("dataset.name", "the data set")
    return f"{model} was asked {len(result.candidates()):,} questions of {data}{when}: {once}{_kept(result)} {again}."


def _kept(result: Result) -> str:
    """Say which questions were asked again."""
    kept, standing = len(result.kept), standings(result)
    if kept == len(result.candidates()):
        return "all of them"
    right = sum(each.endswith((", right", ", no exact match")) for each in standing)
    if not kept or standing.count("kept, right") < kept:
        return f"{kept:,} of them"
    exact = right - sum(each.endswith(", no exact match") for each in standing)
    if kept == exact < right:
        return f"the {kept:,} known ones, answered exactly right ({right:,} right in all),"
    return f"{'the' if kept == right else f'{kept:,} of the'} {right:,} that it answered right,"


def _again(sampler: str, settings: Mapping[str, object]) -> str:
    """Say how a sampler asked: "10 times at each of 10 temperatures (0.2 to 2)"."""
    own = f"sampler.{sampler}."
    trials, rewrites = settings.get(f"{own}trials"), settings.get(f"{own}rewrites")
    temperatures = settings.get(f"{own}temperatures")
    said = "again" if trials is None else "once more" if trials == 1 else f"{trials} times"
    turns = settings.get(f"{own}turns")
    said = said if turns is None else f"{said}, in conversations that went on for {turns} turns of doubt,"
    traces, budgets = settings.get(f"{own}traces"), settings.get(f"{own}budgets")
    if traces is not None and isinstance(budgets, list):
        said += f" after {traces} thoughts with a budget of {', '.join(map(str, budgets))}"
    said += f", also in up to {rewrites} other wordings," if rewrites else ""
    orders, forms = settings.get(f"{own}orders", GIVEN), settings.get(f"{own}forms")
    arranged = ["other orders"] if orders != GIVEN else []
    arranged += [f"{len(forms)} other forms"] if isinstance(forms, list) and forms else []
    said += f", also with the choices in {' and '.join(arranged)}," if arranged else ""
    if not isinstance(temperatures, Sequence) or isinstance(temperatures, str) or not temperatures:
        return said
    if len(temperatures) == 1:
        return f"{said} at temperature {temperatures[0]:g}"
    return f"{said} at each of {len(temperatures)} temperatures ({min(temperatures):g} to {max(temperatures):g})"


def claims(result: Result) -> list[str]:
    """Say what a run found, a sentence for each thing, for somebody who does not know its metrics."""
    own = [*result.scores["greedy"].presentation.claims] if "greedy" in result.scores else []
    others = [claim for score in result.scores.values() for claim in score.presentation.claims if claim not in own]
    return [f"It {claim}." for claim in [*own, *others]]


def few(questions: int, grouped: bool = False) -> str:
    """Say that intervals over so many independent questions, or groups of them, are no measure; empty if they are.

    >>> few(1)
    'Some intervals rest on 1 question alone: with fewer than 30 they are rough.'
    """
    if not 0 < questions < MIN_UNITS:
        return ""
    noun = ("group" if grouped else "question") + ("" if questions == 1 else "s") + (" of questions" if grouped else "")
    return f"Some intervals rest on {questions} {noun} alone: with fewer than {MIN_UNITS} they are rough."


def few_kept(result: Result) -> str:
    """Return :func:`few` of the questions that a run kept."""
    groups = question_groups(result.kept)
    return few(independent(len(result.kept), groups), groups is not None)


def type_name(kind: str) -> str:
    """Return a question type in words; a data set may have others than those of TREC."""
    return QUESTION_TYPES.get(kind, kind) or "no type"
