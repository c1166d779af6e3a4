"""Text for the metrics of a run in the terminal and the report."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from robust_eval.metric.metric_spec import DETAIL
from robust_eval.metric.presentation import Cell, Table
from robust_eval.metric.score import Score, question_groups
from robust_eval.prompt.arrangement import GIVEN
from robust_eval.question import QUESTION_TYPES
from robust_eval.runs.question_status import standings
from robust_eval.runtime.text import number
from robust_eval.stats.estimate import interval
from robust_eval.stats.interval import MIN_UNITS, independent
from robust_eval.tracking.result import Result


class Row(NamedTuple):
    """Row of a table of figures, for people."""

    label: str
    value: str
    interval: str
    questions: str
    """Number of its questions, or empty."""


def headline(score: Score) -> list[Row]:
    """Return the headline figures of a score; all of them, by name, if the metric declares none."""
    figures = score.figures()
    declared = {name: about for name in score.headline().figures() if (about := score.about(name))}
    names = [name for name, about in declared.items() if about.shown != DETAIL]
    return [_row(score, name) for name in names or figures]


def figure_table(title: str, scores: Iterable[Score]) -> Table:
    """Return the headline figures of scores as a table."""
    rows = [[*map(Cell, row)] for score in scores for row in headline(score)]
    return Table(title, ["figure", "value", "95 % interval", "questions"], rows)


def _row(score: Score, name: str) -> Row:
    about, estimate, n = score.about(name), score.figures()[name], score.n(name)
    label, form = (about.words, about.form) if about and about.shown != DETAIL else (name, ".3f")
    value = score.reasons.get(name) or number(estimate.value, form)
    return Row(label, value, interval(estimate), "" if n is None else f"{n:,}")


def main_figures(score: Score) -> list[Row]:
    """Return the main figures among :func:`headline`: primary ones and those with a short heading, of a curve the point
    nearest to t = 1.
    """
    figure_names = []
    for figure in score.declared:
        if (figure.primary or figure.short) and figure.shown != DETAIL:
            names = figure.standing(score.figures())
            figure_names += names if "{}" in figure.name else names[:1]
    return [_row(score, name) for name in figure_names]


def sentence(result: Result) -> str:
    """Return one plain sentence on the run and its result."""
    start = f"{len(result.kept)} of {len(result.candidates())} questions were kept and asked again"
    text = next((text for score in result.scores.values() if (text := score.presentation.sentence)), "")
    return f"{start} {text}" if text else f"{start}."


def asked_words(result: Result) -> str:
    """Return one line on the model, the questions, and the date."""
    config = result.description
    where = ", ".join(
        str(config[name]) for name in ("loaded.dtype", "loaded.device", "loaded.server") if config.get(name)
    )
    when = f" on {result.origin['time'].partition(',')[0]}" if "time" in result.origin else ""
    model = f"{config.get('model.name', 'The model')}{f' ({where})' if where else ''}"
    again = "; ".join(dict.fromkeys(_repetition_text(name, config) for name in result.graded))
    once = "once at temperature 0, and " if result.baseline.num_rows else ""
    data = config.get("dataset.name", "the data set")
    start = f"{model} was asked {len(result.candidates()):,} questions of {data}{when}"
    return f"{start}: {once}{_selection_text(result)} {again}."


def _selection_text(result: Result) -> str:
    """Return words for the selected questions."""
    n_kept, standing = len(result.kept), standings(result)
    if n_kept == len(result.candidates()):
        return "all of them"
    right = sum(each.endswith((", right", ", no exact match")) for each in standing)
    if not n_kept or standing.count("kept, right") < n_kept:
        return f"{n_kept:,} of them"
    exact = right - sum(each.endswith(", no exact match") for each in standing)
    if n_kept == exact < right:
        return f"the {n_kept:,} known ones, answered exactly right ({right:,} right in all),"
    return f"{'the' if n_kept == right else f'{n_kept:,} of the'} {right:,} that it answered right,"


def _repetition_text(sampler: str, settings: Mapping[str, object]) -> str:
    """Return words for a sampler's trials: "10 times at each of 10 temperatures (0.2 to 2)"."""
    prefix = f"sampler.{sampler}."
    trials, rewrites = settings.get(f"{prefix}trials"), settings.get(f"{prefix}rewrites")
    temperatures = settings.get(f"{prefix}temperatures")
    text = "again" if trials is None else "once more" if trials == 1 else f"{trials} times"
    turns = settings.get(f"{prefix}turns")
    text = text if turns is None else f"{text}, in conversations with {turns} turns of pushback,"
    traces, budgets = settings.get(f"{prefix}traces"), settings.get(f"{prefix}budgets")
    if traces is not None and isinstance(budgets, list):
        text += f" after {traces} reasoning traces with a budget of {', '.join(map(str, budgets))}"
    text += f", also in up to {rewrites} other wordings," if rewrites else ""
    orders, forms = settings.get(f"{prefix}orders", GIVEN), settings.get(f"{prefix}forms")
    arrangements = ["other orders"] if orders != GIVEN else []
    arrangements += [f"{len(forms)} other forms"] if isinstance(forms, list) and forms else []
    text += f", also with the choices in {' and '.join(arrangements)}," if arrangements else ""
    if not isinstance(temperatures, Sequence) or isinstance(temperatures, str) or not temperatures:
        return text
    if len(temperatures) == 1:
        return f"{text} at temperature {temperatures[0]:g}"
    return f"{text} at each of {len(temperatures)} temperatures ({min(temperatures):g} to {max(temperatures):g})"


def claims(result: Result) -> list[str]:
    """Return the findings of a run, a sentence each, for readers who do not know its metrics."""
    first = [*result.scores["greedy"].presentation.claims] if "greedy" in result.scores else []
    rest = [claim for score in result.scores.values() for claim in score.presentation.claims if claim not in first]
    return [f"It {claim}." for claim in [*first, *rest]]


def few(questions: int, grouped: bool = False) -> str:
    """Return a warning about intervals over few independent questions, or groups of them; empty for enough.

    >>> few(1)
    'Some intervals rest on 1 question alone: with fewer than 30 they are rough.'
    """
    if not 0 < questions < MIN_UNITS:
        return ""
    noun = ("group" if grouped else "question") + ("" if questions == 1 else "s") + (" of questions" if grouped else "")
    return f"Some intervals rest on {questions} {noun} alone: with fewer than {MIN_UNITS} they are rough."


def few_kept(result: Result) -> str:
    """Return :func:`few` for the questions that a run kept."""
    groups = question_groups(result.kept)
    return few(independent(len(result.kept), groups), groups is not None)


def type_name(kind: str) -> str:
    """Return a question type in words; data sets may have types other than TREC's."""
    return QUESTION_TYPES.get(kind, kind) or "no type"
