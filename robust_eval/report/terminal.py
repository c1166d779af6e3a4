"""Terminal output before a run samples, and at the end of a run, a job of a sweep, and a comparison."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote

import pyarrow.compute as pc
from rich.cells import cell_len
from rich.console import JustifyMethod
from rich.table import Table as RichTable

from robust_eval.metric.presentation import Cell, Table
from robust_eval.metric.score import Score
from robust_eval.report.comparison_summary import SHARED_LETTER, opening
from robust_eval.report.comparison_tables import MAX_METRICS, MAX_RUNS, opening_table
from robust_eval.report.run_summary import Row, headline_rows, main_metrics, metric_table
from robust_eval.report.warnings import (
    few,
    few_kept,
    not_known,
    remedy,
    sampling_warnings,
    unanswered,
    unasked,
    uncertain,
    unread,
)
from robust_eval.runs.comparison import Comparison
from robust_eval.runtime.console import Console
from robust_eval.tracking.result import Result
from robust_eval.tracking.run_folder import COMPARISON_PAGE, GRADED

NARROW = 72
"""Width in characters below which a table of metrics has no column for intervals."""
WIDE = 200
"""Width in characters if the output is not a terminal."""
WORD = 40
"""Maximum characters of an unbroken word in a label."""
PADDING = 3
"""Characters between two cells: a border between two spaces."""
LABEL, GROUP, KEPT, METRIC = 12, 5, 11, 15
"""Widths for which a comparison leaves room: of a label, its group, the number of questions that a run kept, and a
metric above its interval, whose number of questions may be on a line of its own. A narrower window divides its width.
"""


def print_summary(result: Result, folder: Path, store: str, ui_command: str | None) -> None:
    """Print the headline metrics of a run, and the paths of its files."""
    title = f"{result.name}: {len(result.kept)} of {len(result.candidates())} questions kept"
    metrics = [score for score in result.scores.values() if not score.presentation.tables_alone]
    console = terminal()
    console.print()
    print_metrics(title, [row for score in metrics for row in headline_rows(score)], folder, console)
    if warning := few_kept(result):
        console.print_sentence(warning)
    if text := unasked(result):
        console.print_sentence(text)
    for each in sampling_warnings(result):
        console.print_sentence(f"{each.problem} {each.remedy}".rstrip())
    for score in result.scores.values():
        print_tables(score, console)
    counts = result.counts()
    has_rewrites = any(
        pc.max(table["rewrite"].filter(table["form"].is_null())).as_py() for table in result.graded_by_sampler.values()
    )
    has_costs = has_rewrites or "loaded.server" in result.description
    if has_costs and (text := _token_usage(counts, result.description.get("loaded.cost"))):
        console.print_sentence(text)
    if text := unanswered(counts):
        console.print_sentence(f"no answer: {text}")
    if text := unread(counts):
        console.print_sentence(f"no answer found in {text}")
    for text in not_known(result):
        console.print_sentence(text)
    if text := uncertain(counts):
        console.print(f"{text}; {remedy(result, str(folder))}")
    console.print(f"report:  {folder / 'report.html'}")
    console.print(f"answers: {folder / GRADED}")
    console.print(f"store:   {store}")
    if ui_command:
        console.print(f"tracker: {ui_command}")


def print_metrics(title: str, rows: Sequence[Row], folder: Path, console: Console, all_metrics: bool = False) -> None:
    """Print the main metrics of the run in a folder, and the command that shows the others; or all metrics.

    In a narrow window the interval is below the value.
    """
    shown = rows if all_metrics else main_metrics(rows)
    if console.width < NARROW:
        cells = [[Cell(row.label), Cell(row.value, row.interval), Cell(row.questions)] for row in shown]
        table = Table(title, ["metric", "value, 95 % interval", "n"], cells)
    else:
        table = metric_table(title, shown)
    console.print(printed(table))
    if len(shown) < len(rows):
        console.print(f"{len(rows) - len(shown)} more: robust-eval show {quote(str(folder))} --all")


def print_tables(score: Score, console: Console) -> None:
    """Print the tables and the notes of a score."""
    for table in score.presentation.tables:
        console.print(printed(table))
    for note in score.presentation.notes:
        console.print_sentence(note)


def printed(table: Table) -> RichTable:
    """Return a table for the terminal."""
    rich_table = titled(table.title)
    for column, name in enumerate(table.header):
        justify: JustifyMethod = "left" if column < table.names else "right"
        rich_table.add_column(name, justify=justify, overflow="fold")
    for row in table.rows:
        rich_table.add_row(*("\n".join(filter(None, [cell.value, cell.interval])) for cell in row))
    return rich_table


def _token_usage(counts: Mapping[str, float], cost: object) -> str:
    """Return the token usage by stage as text, with the cost of this run, if known; empty without tokens."""

    def tokens(kind: str, part: str) -> str:
        number, part_number = counts[f"tokens.{kind}"], counts[f"tokens.{part}"]
        return f"{number:,.0f}" + (f" ({part_number:,.0f} of which {part.rpartition('.')[2]})" if part_number else "")

    usage = [
        f"{stage} {tokens(f'{stage}.prompt', f'{stage}.cached')} + "
        f"{tokens(f'{stage}.completion', f'{stage}.reasoning')}"
        for stage in ("rewriting", "answering")
        if counts[f"tokens.{stage}.prompt"]
    ]
    price = "" if cost is None else f"; this run cost {cost:,.4f} USD"
    return f"tokens (prompt + completion): {', '.join(usage)}{price}" if usage else ""


def print_job(result: Result, folder: Path) -> None:
    """Print a job of a sweep in one line: the metric that represents it, and its report."""
    rows = [row for score in result.scores.values() for row in headline_rows(score)]
    row = min(rows, key=lambda row: row.rank, default=None)
    interval = f" ({row.interval})" if row and row.interval else ""
    metric = f"{row.label}: {row.value}{interval}; " if row else ""
    kept = f"{len(result.kept)} of {len(result.candidates())} questions kept"
    terminal().print(f"{result.name}: {kept}; {metric}{folder / 'report.html'}")


def print_comparison(compared: Comparison, folder: Path, all_runs: bool = False) -> None:
    """Print a comparison: the runs' main metrics (as many as fit, or all), the verdict, and the path of the page."""
    console = terminal()
    words = [word for label in compared.labels for word in label.split() or [""]]
    others = [KEPT, *([GROUP] if "group" in opening_table(compared, 1, 1).header else [])]
    width = console.width - PADDING - 1 - sum(PADDING + each for each in others)  # of the label and the metrics
    longest = min(WORD, max(map(cell_len, words)))
    fitting = max(1, (width - max(longest, LABEL)) // (PADDING + METRIC))
    table = opening_table(compared, *((None, None) if all_runs else (min(fitting, MAX_METRICS), MAX_RUNS)))
    console.print()
    rich_table = printed(table)
    _fit(rich_table, table.names, longest, console)
    console.print(rich_table)
    if len(table.rows) < len(compared.runs):
        console.print(f"{len(compared.runs) - len(table.rows)} more: robust-eval compare RUN … --all")
    if hidden := [name for name in opening_table(compared).header if name not in table.header]:
        console.print_sentence(f"hidden because the window is narrow: {', '.join(hidden)}; --all prints all")
    if SHARED_LETTER in table.note:
        console.print_sentence(SHARED_LETTER)
    for text in opening(compared)[0]:
        console.print_sentence(text)
    if warning := few(*compared.smallest_sample):
        console.print_sentence(warning)
    console.print(f"comparison: {folder / COMPARISON_PAGE}")


def _fit(table: RichTable, names: int, longest: int, console: Console) -> None:
    """Set the widths of a comparison that is wider than the window, if there is room for labels and intervals.

    Labels shrink first, to their ``longest`` word; then the widest metrics, to that of an interval; then labels again.
    Otherwise the widths are left to rich, which narrows the widest columns whatever they hold.
    """
    widths = [max(console.measure(each).maximum for each in [col.header, *col.cells]) for col in table.columns]
    label, metrics = widths[0], widths[names:-1]
    room = console.width - 1 - PADDING * len(widths) - sum(widths[1:names]) - widths[-1]  # of the label and the metrics
    while label + sum(metrics) > room and sum(metrics) > room - longest and max(metrics, default=0) > METRIC:
        metrics[metrics.index(max(metrics))] -= 1
    label = min(label, room - sum(metrics))
    if label >= min(widths[0], LABEL):
        for column, width in zip([table.columns[0], *table.columns[names:-1]], [label, *metrics], strict=True):
            column.width = width


def titled(title: str, *columns: str, left: Sequence[str] = ()) -> RichTable:
    """Return an empty terminal table under a title, with right-aligned columns but for those in ``left``."""
    table = RichTable(title=title, title_justify="left")
    for name in columns:
        table.add_column(name, justify="left" if name in left else "right", overflow="fold")
    return table


def terminal() -> Console:
    """Return the console for results, which is :data:`WIDE` characters wide if the output is not a terminal."""
    console = Console()
    if "COLUMNS" not in os.environ and not any(map(os.isatty, range(3))):
        console.width = WIDE
    return console
