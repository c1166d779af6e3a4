"""Markdown notes and short tables for MLflow, of a run and of a comparison."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from robust_eval.answer import rows
from robust_eval.metric.presentation import Table, markdown_lines
from robust_eval.report.comparison_summary import sentences
from robust_eval.report.comparison_tables import pair_table, pairs_as_data, runs_as_data, runs_table, shortened
from robust_eval.report.question_table import sample
from robust_eval.report.run_summary import headline_rows, metric_table, sentence
from robust_eval.report.warnings import few, few_kept
from robust_eval.runs.comparison import Comparison
from robust_eval.runs.question_status import question_statuses
from robust_eval.runtime.text import escaped
from robust_eval.tracking.result import Result
from robust_eval.tracking.run_folder import COMPARISON_PAGE

LONGEST = 8000
"""Maximum characters of a note; MLflow truncates longer ones silently."""
ROWS = 1000
"""Maximum rows of a table."""


def run_note(result: Result) -> str:
    """Return the MLflow note of a run: a sentence and the headline metrics."""
    table = metric_table("Metrics", [row for score in result.scores.values() for row in headline_rows(score)])
    return _note([sentence(result), few_kept(result)], [table], "report.html")


def comparison_note(compared: Comparison) -> str:
    """Return the MLflow note of a comparison: its sentences, the table of runs, and the table of pairs."""
    tables = [runs_table(compared), *([pair_table(compared)] if compared.pairs else [])]
    return _note([*sentences(compared), few(*compared.smallest_sample)], tables, COMPARISON_PAGE)


def _note(sentences_: Sequence[str], tables: Sequence[Table], page: str) -> str:
    """Return an MLflow note of sentences and tables, cut at sentences and rows, with a reference to the full page."""
    closing = f"\n\nThe full report is {escaped(page)}, under Artifacts."
    note = ""
    for each in map(escaped, filter(None, sentences_)):
        if len(note) + len(each) < LONGEST // 2:
            note = f"{note}\n- {each}".strip()
    omitted = [f"\n\n{escaped(table.title)}: {len(table.rows):,} more in {escaped(page)}." for table in tables]
    for number, table in enumerate(tables):
        header, rule, *body = markdown_lines(table)
        start = f"\n\n**{escaped(table.title)}**\n\n{header}\n{rule}"
        room = LONGEST - len("".join([note, start, *omitted[number:], closing]))
        fitting = int(np.searchsorted(np.cumsum([len(row) + 1 for row in body]), room, side="right"))
        if fitting:
            note += "\n".join([start, *body[:fitting]])
        if fitting < len(body):
            note += omitted[number].replace(f"{len(body):,} more", f"{len(body) - fitting:,} more")
    return note + closing


def run_tables(result: Result) -> dict[str, pa.Table]:
    """Return the run's tables for MLflow: all metrics, and the questions with their greedy answers and main metrics; of
    many questions a sample (:func:`robust_eval.report.question_table.sample`).
    """
    return _as_named_table("metrics", _metrics(result)) | _questions(result)


def _metrics(result: Result) -> pa.Table:
    """Return the MLflow table with a row for each metric, those of curves at every temperature, and for each count."""
    rows = [
        {
            "metric": name,
            "label": spec.words if (spec := score.spec(name)) else "",
            **estimate._asdict(),
            "n": score.n(name),
        }
        for score in result.scores.values()
        for name, estimate in score.metrics().items()
    ]
    rows += [{"metric": name, "label": "", "value": float(value)} for name, value in result.counts().items()]
    words = [(name, pa.string()) for name in ("metric", "label")]
    numbers = [(name, pa.float64()) for name in ("value", "low", "high")]
    return pa.Table.from_pylist(rows, pa.schema([*words, *numbers, ("n", pa.int64())]))


def _questions(result: Result) -> dict[str, pa.Table]:
    """Return the MLflow table of questions; see :func:`run_tables`."""
    table = result.by_question()
    declarations = [spec for score in result.scores.values() for spec in score.specs if spec.of_question]
    metrics = [name for spec in declarations for name in spec.covered_names(table.column_names)[:1]]
    greedy = dict(rows(result.graded_baseline, "question_id", "text"))
    questions = pa.table(
        {
            "question": [shortened(text) for text in table["question"].to_pylist()],
            "greedy answer": [shortened(greedy.get(name, "")) for name in table["question_id"].to_pylist()],
            "status": question_statuses(result),
            **{name: table[name] for name in metrics},
        }
    )
    if questions.num_rows <= ROWS:
        return {"questions": questions}
    values = questions[metrics[0]].to_numpy() if metrics else np.full(questions.num_rows, np.nan)
    taken = sample(questions["status"].to_pylist(), values, ROWS)
    return {f"questions_{ROWS}_of_{questions.num_rows}": questions.take(pa.array(taken))}


def comparison_tables(compared: Comparison) -> dict[str, pa.Table]:
    """Return the MLflow tables of runs and pairs by metric, and the questions with the largest differences."""
    tables = _as_named_table("runs", runs_as_data(compared)) | _as_named_table("pairs", pairs_as_data(compared))
    limit = ROWS // max(1, sum(1 + len(shared.metrics) for shared in compared.shared))
    records: list[dict[str, object]] = []
    for shared in compared.shared:
        for name, values in {"kept": shared.kept, **shared.metrics}.items():
            for row in shared.disputed(limit) if name == "kept" else shared.differing(name, limit):
                of_runs = {
                    "value": values[row],
                    "greedy answer": [shortened(answer or "") for answer in shared.answers[row]],
                    "verdict": shared.verdicts[row],
                }
                record: dict[str, object] = {
                    "data set": shared.dataset,
                    "metric": name,
                    "question": shortened(shared.texts[row]),
                }
                for column, cells in of_runs.items():
                    record |= {f"{column}, {run}": cell for run, cell in zip(shared.measured, cells, strict=True)}
                records.append(record)
    if records:
        names = dict.fromkeys(name for each in records for name in each)
        tables["questions_that_differ_most"] = pa.table({name: [each.get(name) for each in records] for name in names})
    return tables


def _as_named_table(name: str, table: pa.Table) -> dict[str, pa.Table]:
    """Return an MLflow table by its name; a table that is cut has the number of rows in its name."""
    return {name: table} if table.num_rows <= ROWS else {f"{name}_first_{ROWS}": table.slice(0, ROWS)}
