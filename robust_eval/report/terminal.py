"""Terminal output before a run samples, and at the end of a run, a job of a sweep, and a comparison."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow.compute as pc
from rich.table import Table

from robust_eval.metric.metric_spec import point
from robust_eval.metric.presentation import PaperTable
from robust_eval.metric.score import Score
from robust_eval.report.left_out import not_known, unanswered, unasked, unread
from robust_eval.report.opening import opening
from robust_eval.report.warnings import of_draws, of_letters, remedy, uncertain
from robust_eval.report.wording import few, few_kept, headline, sentence
from robust_eval.runs.comparison import Comparison
from robust_eval.runtime.console import Console
from robust_eval.runtime.text import number
from robust_eval.stats.estimate import interval
from robust_eval.tracking.result import Result
from robust_eval.tracking.run_folder import COMPARISON_PAGE, GRADED

WORD = 40
"""Maximum characters of an unbroken word in a label."""


def print_summary(result: Result, folder: Path, store: str, ui_command: str | None) -> None:
    """Print the headline figures, and the paths of the files."""
    table = titled(f"{result.name}: {len(result.kept)} of {len(result.candidates())} questions kept")
    table.add_column("figure")
    for name in ("value", "95 % interval", "questions"):
        table.add_column(name, justify="right")
    for score in result.scores.values():
        for row in () if score.presentation.tables_alone else headline(score):
            table.add_row(*row)
    console = terminal()
    console.print()
    console.print(table)
    if warning := few_kept(result):
        console.print(warning)
    if text := unasked(result):
        console.print(text)
    for warned in (*of_letters(result), *of_draws(result)):
        console.print(f"{warned.what} {warned.mend}")
    for score in result.scores.values():
        print_tables(score, console)
    counts = result.counts()
    reworded = any(pc.max(table["rewrite"]).as_py() for table in result.graded.values())
    has_costs = reworded or "loaded.server" in result.description
    if has_costs and (spent := _spent(counts, result.description.get("loaded.cost"))):
        console.print(spent)
    if missing := unanswered(counts):
        console.print(f"no answer: {missing}")
    if text := unread(counts):
        console.print(f"no answer found in {text}")
    for unknown in not_known(result):
        console.print(unknown)
    if text := uncertain(counts):
        console.print(f"{text}; {remedy(result, str(folder))}")
    console.print(f"report:  {folder / 'report.html'}")
    console.print(f"answers: {folder / GRADED}")
    console.print(f"store:   {store}")
    if ui_command:
        console.print(f"tracker: {ui_command}")


def print_tables(score: Score, console: Console) -> None:
    """Print the tables of a score, and its notes."""
    for paper in score.presentation.tables:
        console.print(_of_paper(paper))
    for note in score.presentation.notes:
        console.print(note)


def _of_paper(paper: PaperTable) -> Table:
    table = titled(paper.title)
    for place, name in enumerate(paper.header):
        words = place == 0 and name == "figure"
        table.add_column(name, justify="left" if words else "right", overflow="fold")
    for row in paper.rows:
        table.add_row(*row)
    return table


def _spent(counts: Mapping[str, float], cost: object) -> str:
    """Return tokens by stage, and the cost of this run, if known; empty without tokens."""
    stages = []
    for stage in ("rewriting", "answering"):
        prompt, completion, reasoning_tokens, cached = (
            counts[f"tokens.{stage}.{kind}"] for kind in ("prompt", "completion", "reasoning", "cached")
        )
        if prompt:
            reasoning = f" ({reasoning_tokens:,.0f} of them reasoning)" if reasoning_tokens else ""
            cache_text = f" ({cached:,.0f} of them from a cache)" if cached else ""
            stages.append(f"{stage} {prompt:,.0f}{cache_text} + {completion:,.0f}{reasoning}")
    price = "" if cost is None else f"; this run cost {cost:,.4f}"
    return f"tokens (prompt + completion): {', '.join(stages)}{price}" if stages else ""


def print_job(result: Result, folder: Path) -> None:
    """Print a job of a sweep in one sentence."""
    text = " ".join(filter(None, [sentence(result), few_kept(result)]))
    terminal().print(f"{result.name}: {text} ({folder / 'report.html'})")


def print_comparison(compared: Comparison, folder: Path) -> None:
    """Print the main figures of all runs, and the path of the page."""
    headings = _short_headings(compared)
    table = titled("1 run" if len(compared.runs) == 1 else f"{len(compared.runs)} runs")
    for name in ("run", "kept", *headings.values()):
        table.add_column(
            name,
            justify="left" if name == "run" else "right",
            overflow="fold",
            min_width=_widest(compared.labels) if name == "run" else None,
        )
    for label, run in zip(compared.labels, compared.runs, strict=True):
        n_kept = sum(run.questions["kept"].to_pylist())
        cells = [(run.figures.get(name), run.n(name)) for name in headings]
        words = ["" if cell is None else f"{number(cell.value)}\n{interval(cell, n=n)}" for cell, n in cells]
        table.add_row(label, f"{n_kept} of {run.asked}", *words)
    console = terminal()
    console.print()
    for text in opening(compared)[0]:
        console.print(text)
    console.print(table)
    if warning := few(*compared.smallest_sample):
        console.print(warning)
    console.print(f"comparison: {folder / COMPARISON_PAGE}")


def _widest(labels: Sequence[str]) -> int:
    """Return the minimum width of a column in which no word of these labels is broken, except very long ones."""
    return min(WORD, max(len(word) for label in labels for word in label.split() or [""]))


def _short_headings(compared: Comparison) -> dict[str, str]:
    """Return figures with their short headings; of a curve at t = 1. Without any, the first headline figures."""
    measured = {name for run in compared.runs for name in run.figures}
    declared = {figure.name: figure for run in compared.runs for figure in run.declared if figure.short}
    headings = {
        name: f"{figure.short}{at}"
        for figure in declared.values()
        for name, at in ((figure.name, ""), (point(figure.name, 1), ", t = 1"))
        if name in measured
    }
    return headings or {name: compared.words(name) for name in compared.runs[0].headline_means[:3]}


def titled(title: str) -> Table:
    """Return an empty table under a title."""
    return Table(title=title, title_justify="left")


def terminal() -> Console:
    """Return the console where results are shown."""
    return Console()
