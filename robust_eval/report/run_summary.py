"""Summary of a run in the terminal and the report: rows of its metrics, and sentences on it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, cast

from robust_eval.metric.metric_spec import (
    DETAIL,
    HEADLINE,
    MetricSpec,
    curve_and_temperature,
    headline_temperatures,
    point,
)
from robust_eval.metric.presentation import Cell, Table
from robust_eval.metric.score import Score
from robust_eval.prompt.arrangement import GIVEN
from robust_eval.question import PHYSICS_CATEGORIES, QUESTION_TYPES
from robust_eval.runs.finished_runs import FinishedRun
from robust_eval.runs.question_status import question_statuses
from robust_eval.runtime.text import counted, enumerated, number
from robust_eval.stats.estimate import Estimate, interval
from robust_eval.tracking.result import Result

MAX_ROWS = 12
"""Maximum number of main metrics."""
_FIRST, _SECOND, _NUMBERED, _OTHER, _NEVER = range(5)


class Row(NamedTuple):
    """Row of a table of metrics, for people."""

    label: str
    value: str
    interval: str
    questions: str
    """Number of its questions, or empty."""
    rank: int = _OTHER
    """Rank among the main metrics, the lowest first."""


def headline_rows(score: Score) -> list[Row]:
    """Return table rows of a score's headline metrics; of all its metrics, by name, if none has a spec."""
    return _rows(score, score.metrics(), score.headline().metrics(), score.reasons)


def rows_of_finished(run: FinishedRun) -> list[Row]:
    """Return table rows of the headline metrics of a finished run."""
    points = {point(name, t) for name, curve in run.curves.items() for t in headline_temperatures(curve)}
    candidates = [name for name in run.metrics if name in points or not curve_and_temperature(name)]
    return _rows(run, run.metrics, candidates, {})


def _rows(
    run: Score | FinishedRun, metrics: Mapping[str, Estimate], candidates: Iterable[str], reasons: Mapping[str, str]
) -> list[Row]:
    specs = {name: spec for name in candidates if (spec := run.spec(name)) and spec.shown != DETAIL}
    ranks = _ranks(run.specs, list(specs)) if specs else dict.fromkeys(metrics, _OTHER)
    rows = []
    for name in specs or metrics:
        spec, estimate, n = specs.get(name), metrics[name], run.n(name)
        label, form = (spec.words, spec.form) if spec else (name, ".3f")
        value = reasons.get(name) or number(estimate.value, form)
        n_text = "" if n is None else f"{n:,}"
        rows.append(Row(label, value, interval(estimate, form), n_text, ranks.get(name, _NEVER)))
    return rows


def metric_table(title: str, rows: Iterable[Row]) -> Table:
    """Return a table of these rows of metrics."""
    cells = [[*map(Cell, row[:4])] for row in rows]
    return Table(title, ["metric", "value", "95 % interval", "n"], cells)


def _ranks(specs: Iterable[MetricSpec], names: Sequence[str]) -> dict[str, int]:
    """Return the ranks of the main metrics among these: first the primary ones, then those with a short heading, the
    primary ones at further numbers, and other means. Of a curve it is the point nearest to t = 1.
    """
    ranks: dict[str, int] = {}
    for spec in specs:
        covered = spec.covered_names(names)
        if spec.primary and spec.numbered:
            ranks |= dict.fromkeys(covered, _NUMBERED)
        if spec.primary or spec.short or (spec.mean and spec.shown == HEADLINE and not spec.numbered):
            ranks |= dict.fromkeys(covered[:1], _FIRST if spec.primary else _SECOND if spec.short else _OTHER)
    return ranks


def main_metrics(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of a run's main metrics, in their order; all rows if there are at most :data:`MAX_ROWS`."""
    if len(rows) <= MAX_ROWS:
        return list(rows)
    ranked = sorted((row.rank, index) for index, row in enumerate(rows) if row.rank != _NEVER)
    return [rows[index] for index in sorted(index for _, index in ranked[:MAX_ROWS])]


def sentence(result: Result) -> str:
    """Return one plain sentence on the run and its result."""
    verb = "was" if len(result.kept) == 1 else "were"
    start = f"{len(result.kept)} of {len(result.candidates())} questions {verb} kept and asked"
    text = next((text for score in result.scores.values() if (text := score.presentation.sentence)), "")
    again = "" if text.startswith("repeatedly") else " again"
    return f"{start}{again} {text}" if text else f"{start} again."


def asked_words(result: Result) -> str:
    """Return one line on the model, the questions, and the date."""
    config = result.description
    loaded = [str(value) for name in ("dtype", "device", "server") if (value := config.get(f"loaded.{name}"))]
    date = f" on {result.origin['time'].partition(',')[0]}" if "time" in result.origin else ""
    model = f"{config.get('model.name', 'The model')}" + (f" ({', '.join(loaded)})" if loaded else "")
    trials = "; ".join(dict.fromkeys(_trials_text(name, config) for name in result.graded_by_sampler))
    baseline = "once at temperature 0, and " if result.graded_baseline.num_rows else ""
    number = len(result.candidates())
    questions = f"{counted(number, 'question')} from the data set"
    questions += f" {name}" if (name := config.get("dataset.name")) else ""
    if "identity.answers.sha256" in config and not result.graded_baseline.num_rows:
        answers = sum(table.num_rows for table in result.all_graded.values())
        return f"{model} has {answers:,} recorded answers to {questions}" + (f", scored{date}." if date else ".")
    start = f"{model} was asked {questions}{date}"
    return f"{start}: {baseline}{_selection_text(result)} {trials}."


def _selection_text(result: Result) -> str:
    """Return words for the selected questions, such as "the 12 that it answered right,"."""
    n_kept, statuses = len(result.kept), question_statuses(result)
    if n_kept == len(result.candidates()):
        return "all of them"
    right = sum(each.endswith((", right", ", no exact match")) for each in statuses)
    if not n_kept or statuses.count("kept, right") < n_kept:
        return f"{n_kept:,} of them"
    exact = right - sum(each.endswith(", no exact match") for each in statuses)
    if n_kept == exact < right:
        return f"the {n_kept:,} that it answered with an exact match ({right:,} were right),"
    return f"{'the' if n_kept == right else f'{n_kept:,} of the'} {right:,} that it answered correctly,"


def _trials_text(sampler: str, settings: Mapping[str, object]) -> str:
    """Return words for a sampler's trials: "10 times at each of 10 temperatures (0.2 to 2)"."""
    names = ("trials", "rewrites", "temperatures", "turns", "traces", "budgets", "forms")
    trials, rewrites, temperatures, turns, traces, budgets, forms = (
        settings.get(f"sampler.{sampler}.{name}") for name in names
    )
    text = "again" if trials is None else {1: "once more", 2: "twice"}.get(cast(int, trials), f"{trials} times")
    if settings.get(f"sampler.{sampler}.early_stop") and trials is not None:
        text = f"up to {text}"
    text += "" if turns is None else f", in conversations with {counted(cast(int, turns), 'turn')} of pushback,"
    if traces is not None and isinstance(budgets, list):
        budget = "a budget" if len(budgets) == 1 else "budgets"
        text += f" after {counted(cast(int, traces), 'reasoning trace')}"
        text += f" with {budget} of {enumerated(map(str, budgets), 'and')}"
    text += f", and in up to {counted(cast(int, rewrites), 'other wording')}," if rewrites else ""
    arrangements = ["other orders"] if settings.get(f"sampler.{sampler}.orders", GIVEN) != GIVEN else []
    arrangements += [counted(len(forms), "other form")] if isinstance(forms, list) and forms else []
    text += f", and with the choices in {' and '.join(arrangements)}," if arrangements else ""
    if not isinstance(temperatures, Sequence) or isinstance(temperatures, str) or not temperatures:
        return text
    if len(temperatures) == 1:
        return f"{text} at temperature {temperatures[0]:g}"
    return f"{text} at each of {len(temperatures)} temperatures ({min(temperatures):g} to {max(temperatures):g})"


def claims(result: Result) -> list[str]:
    """Return the findings of a run, a sentence each, for readers who do not know its metrics."""
    first = [*result.scores["greedy"].presentation.claims] if "greedy" in result.scores else []
    rest = [claim for score in result.scores.values() for claim in score.presentation.claims if claim not in first]
    return [f"{claim}." if claim[:1].isupper() else f"It {claim}." for claim in [*first, *rest]]


def type_name(kind: str) -> str:
    """Return a question type in words; data sets may have types other than TREC's."""
    return QUESTION_TYPES.get(kind, kind) or "no type"


def category_name(category: str, categories: Iterable[str]) -> str:
    """Return a category in words; unchanged if ``categories`` has others than those of the physics questions.

    >>> category_name("M", ["D", "M", ""]), category_name("M", ["L", "M"])
    ('several steps', 'M')
    """
    names = PHYSICS_CATEGORIES if PHYSICS_CATEGORIES.keys() >= set(filter(None, categories)) else {}
    return names.get(category, category)
