"""What is said of the figures of a run, wherever a person reads them."""

from typing import NamedTuple

from robust_eval.metric.estimate import interval
from robust_eval.metric.figure import DETAIL
from robust_eval.metric.interval import independent
from robust_eval.metric.score import Score, question_groups
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
    """Return the figures of a score that a person wants first; all of them, by name, where the metric declares none."""
    figures = score.figures()
    declared = {name: about for name in score.telling().figures() if (about := score.about(name))}
    shown = {name: (about.words, about.form) for name, about in declared.items() if about.shown != DETAIL}
    rows = []
    for name, (label, form) in (shown or {name: (name, ".3f") for name in figures}).items():
        value = score.reasons.get(name) or number(figures[name].value, form)
        n = score.n(name)
        rows.append(Row(label, value, interval(figures[name]), "" if n is None else f"{n:,}"))
    return rows


def sentence(result: Result) -> str:
    """Say in one plain sentence what the run did and found."""
    start = f"{len(result.kept)} of {len(result.candidates())} questions were kept and asked again"
    said = next((said for score in result.scores.values() if (said := score.presentation.sentence)), "")
    return f"{start} {said}" if said else f"{start}."


FEWEST = 30
"""Questions below which an interval is not to be trusted: a bootstrap over few is too narrow."""


def few(questions: int, grouped: bool = False) -> str:
    """Say that intervals over so many independent questions, or groups of them, are no measure; empty if they are.

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
    """Return :func:`few` of the questions that a run kept."""
    groups = question_groups(result.kept)
    return few(independent(len(result.kept), groups), groups is not None)


def type_name(kind: str) -> str:
    """Return a question type in words; a data set may have others than those of TREC."""
    return QUESTION_TYPES.get(kind, kind) or "no type"
