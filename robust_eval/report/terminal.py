"""What a run says in the terminal before it asks, and a run, a job of a sweep, and a comparison when they end."""

from collections.abc import Mapping
from pathlib import Path

from rich.table import Table

from robust_eval.metric.score import point
from robust_eval.record.result import Result
from robust_eval.record.run_folder import COMPARISON_PAGE, GRADED
from robust_eval.report.comparison import Comparison
from robust_eval.report.left_out import unanswered
from robust_eval.report.wording import few_kept, headline, interval, label_of, sentence
from robust_eval.runtime.console import Console
from robust_eval.runtime.rounding import number


def print_summary(result: Result, folder: Path, store: str, ui_command: str | None) -> None:
    """The figures that matter most, and where the rest is."""
    table = titled(f"{result.name}: {len(result.kept)} of {len(result.candidates())} questions kept")
    table.add_column("figure")
    for name in ("value", "95 % interval", "questions"):
        table.add_column(name, justify="right")
    for score in result.scores.values():
        for row in headline(score):
            table.add_row(*row)
    console = terminal()
    console.print()
    console.print(table)
    if warning := few_kept(result):
        console.print(warning)
    if "agreement" in result.scores:
        console.print(_multiqa_rows(result))
    counts = result.counts()
    shown = "agreement" in result.scores or "loaded.server" in result.description
    if shown and (spent := _spent(counts, result.description.get("loaded.cost"))):
        console.print(spent)
    if lacking := unanswered(counts):
        console.print(f"no answer: {lacking}")
    console.print(f"report:  {folder / 'report.html'}")
    console.print(f"answers: {folder / GRADED}")
    console.print(f"store:   {store}")
    if ui_command:
        console.print(f"tracker: {ui_command}")


def _multiqa_rows(result: Result) -> Table:
    """The run as rows of the paper's table, in percent, one for each temperature (Cho & Watson, Table 4).

    ``n`` is the number of questions that the figures rest on; of the least and the most, where these differ.
    """
    score = result.scores["agreement"]
    table = titled("In percent, as in table 4 of MultiQ&A")
    for name in ("t", "n", *_TABLE_4):
        table.add_column(name, justify="right")
    for t in score.curves["agreement.accuracy"]:
        values = [score.curves[f"agreement.{name}"][t].value for name in _TABLE_4.values()]
        n = sorted({score.n(point(f"agreement.{name}", t)) or 0 for name in _TABLE_4.values()})
        figures = (number(value, ".1%").removesuffix("%") for value in values)
        table.add_row(f"{t:g}", " to ".join(f"{each:,}" for each in dict.fromkeys([n[0], n[-1]])), *figures)
    return table


def _spent(counts: Mapping[str, float], cost: object) -> str:
    """Tokens by stage, and what those of this run cost, where that is known; empty where none were counted."""
    said = []
    for stage in ("rewriting", "answering"):
        prompt, completion = (counts[f"tokens.{stage}.{kind}"] for kind in ("prompt", "completion"))
        if prompt:
            said.append(f"{stage} {prompt:,.0f} + {completion:,.0f}")
    price = "" if cost is None else f"; this run cost {cost:,.4f}"
    return f"tokens (prompt + completion): {', '.join(said)}{price}" if said else ""


_TABLE_4 = {
    "Base": "accuracy",
    "Mode": "plurality",
    "Worst": "worst",
    "Best": "best",
    "μ_D": "difficulty",
    "H_η": "certainty",
    "M2": "m2",
    "κ": "kappa",
    "α": "alpha",
}


def print_job(result: Result, folder: Path) -> None:
    """A job of a sweep in one sentence."""
    said = " ".join(filter(None, [sentence(result), few_kept(result)]))
    terminal().print(f"{result.name}: {said} ({folder / 'report.html'})")


def print_comparison(compared: Comparison, folder: Path) -> None:
    """The main figures of all runs, and where the rest is."""
    measured = {name for run in compared.runs for name in run.figures}
    shown = [name for name in _MAIN if name in measured] or compared.runs[0].telling[:3]
    table = titled("1 run" if len(compared.runs) == 1 else f"{len(compared.runs)} runs")
    for name in ("run", "kept", *(_MAIN.get(name) or label_of(name) or name for name in shown)):
        table.add_column(name, justify="left" if name == "run" else "right", overflow="fold")
    for label, run in zip(compared.labels, compared.runs, strict=True):
        kept = sum(run.questions["kept"].to_pylist())
        found = [(run.figures.get(name), run.n(name)) for name in shown]
        words = ["" if cell is None else f"{number(cell.value)}\n{interval(cell, n=n)}" for cell, n in found]
        table.add_row(label, f"{kept} of {run.asked}", *words)
    console = terminal()
    console.print()
    console.print(table)
    if warning := compared.warning:
        console.print(warning)
    console.print(f"comparison: {folder / COMPARISON_PAGE}")


_MAIN = {
    "accuracy.greedy": "greedy accuracy",
    "frs": "mean FRS, first d",
    "frs.unbroken_share": "unbroken facts",
    "profile.firm": "withstand all three",
    "agreement.accuracy.t1": "base accuracy, t = 1",
    "agreement.plurality.t1": "of the vote",
    "agreement.worst.t1": "of the worst rater",
    "agreement.kappa.t1": "κ",
}


def titled(title: str) -> Table:
    """An empty table under a title."""
    return Table(title=title, title_justify="left")


def terminal() -> Console:
    """Where results are shown."""
    return Console()
