"""Notes in Markdown and tables of a readable length for the tracker, of a run and of a comparison."""

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from robust_eval.answer import rows
from robust_eval.metric.metric_spec import curve_and_temperature
from robust_eval.report.comparison_page import pairs_as_data, runs_as_data, sentences
from robust_eval.report.comparison_tables import Cell, TextTable, pair_table, runs_table, shortened
from robust_eval.report.markdown import escaped, lines
from robust_eval.report.question_table import sample
from robust_eval.report.wording import few, few_kept, headline, sentence
from robust_eval.runs.comparison import Comparison
from robust_eval.runs.question_status import standings
from robust_eval.tracking.result import Result
from robust_eval.tracking.run_folder import COMPARISON_PAGE

LONGEST = 8000
"""Characters of a note that MLflow keeps; it cuts off the others without a word."""
ROWS = 1000
"""Of a table."""


def run_note(result: Result) -> str:
    """Return the run in one sentence, and the figures that a person wants first."""
    figures = [row for score in result.scores.values() for row in headline(score)]
    cells = [[Cell(words) for words in figure] for figure in figures]
    table = TextTable("Figures", ["figure", "value", "95 % interval", "questions"], cells)
    return _note([sentence(result), few_kept(result)], [table], "report.html")


def comparison_note(compared: Comparison) -> str:
    """Return what was compared, the runs beside one another, and how far apart each two are."""
    tables = [runs_table(compared), *([pair_table(compared)] if compared.pairs else [])]
    return _note([*sentences(compared), few(*compared.smallest_sample)], tables, COMPARISON_PAGE)


def _note(said: Sequence[str], tables: Sequence[TextTable], page: str) -> str:
    """A list of sentences, and tables, shortened by whole ones and by whole rows, and where all of them are."""
    closing = f"\n\nThe whole report is {escaped(page)}, under Artifacts."
    note = ""
    for each in map(escaped, filter(None, said)):
        if len(note) + len(each) < LONGEST // 2:
            note = f"{note}\n- {each}".strip()
    left = [f"\n\n{escaped(table.title)}: {len(table.rows):,} more in {escaped(page)}." for table in tables]
    for place, table in enumerate(tables):
        header, rule, *found = lines(table)
        start = f"\n\n**{escaped(table.title)}**\n\n{header}\n{rule}"
        room = LONGEST - len("".join([note, start, *left[place:], closing]))
        taken = int(np.searchsorted(np.cumsum([len(row) + 1 for row in found]), room, side="right"))
        if taken:
            note += "\n".join([start, *found[:taken]])
        if taken < len(found):
            note += left[place].replace(f"{len(found):,} more", f"{len(found) - taken:,} more")
    return note + closing


def run_tables(result: Result) -> dict[str, pa.Table]:
    """Return all figures, and the questions with their greedy answers and main figures; of many questions a sample of
    every kind, and of each kind of both ends and the middle of the first figure.
    """
    return _named("figures", _figures(result)) | _questions(result)


def _figures(result: Result) -> pa.Table:
    """Return a row for each figure, those of curves at every temperature, and for each count."""
    rows = [
        {
            "figure": name,
            "label": about.words if (about := score.about(name)) else "",
            **estimate._asdict(),
            "n": score.n(name),
        }
        for score in result.scores.values()
        for name, estimate in score.figures().items()
    ]
    rows += [{"figure": name, "label": "", "value": float(value)} for name, value in result.counts().items()]
    words = [(name, pa.string()) for name in ("figure", "label")]
    numbers = [(name, pa.float64()) for name in ("value", "low", "high")]
    return pa.Table.from_pylist(rows, pa.schema([*words, *numbers, ("n", pa.int64())]))


def _questions(result: Result) -> dict[str, pa.Table]:
    """Return the questions; see :func:`run_tables`."""
    table = result.by_question()
    declarations = [figure for score in result.scores.values() for figure in score.declared if figure.of_question]
    figures = [name for figure in declarations for name in figure.standing(table.column_names)[:1]]
    greedy = dict(rows(result.baseline, "question_id", "text"))
    found = pa.table(
        {
            "question": [shortened(text) for text in table["question"].to_pylist()],
            "greedy answer": [shortened(greedy.get(name, "")) for name in table["question_id"].to_pylist()],
            "status": standings(result),
            **{name: table[name] for name in figures},
        }
    )
    if found.num_rows <= ROWS:
        return {"questions": found}
    values = found[figures[0]].to_numpy() if figures else np.full(found.num_rows, np.nan)
    taken = sample(found["status"].to_pylist(), values, ROWS)
    return {f"questions_{ROWS}_of_{found.num_rows}": found.take(pa.array(taken))}


def comparison_tables(compared: Comparison) -> dict[str, pa.Table]:
    """Runs and pairs by figure, and the questions that differ most."""
    tables = _named("runs", runs_as_data(compared)) | _named("pairs", pairs_as_data(compared))
    kinds = sum(1 + len(shared.figures) for shared in compared.shared)
    found: list[dict[str, object]] = []
    for shared in compared.shared:
        for name in ("kept", *shared.figures):
            values = shared.kept if name == "kept" else shared.figures[name]
            most = ROWS // kinds
            for row in shared.disputed(most) if name == "kept" else shared.differing(name, most):
                found.append(
                    {
                        "data set": shared.dataset,
                        "figure": name,
                        "question": shortened(shared.texts[row]),
                        **{f"value, {label}": values[row, place] for place, label in enumerate(shared.measured)},
                        **{
                            f"greedy answer, {label}": shortened(shared.answers[row, place] or "")
                            for place, label in enumerate(shared.measured)
                        },
                        **{
                            f"verdict, {label}": shared.verdicts[row, place]
                            for place, label in enumerate(shared.measured)
                        },
                    }
                )
    if found:
        columns = dict.fromkeys(name for each in found for name in each)
        tables["questions_that_differ_most"] = pa.table({name: [each.get(name) for each in found] for name in columns})
    return tables


def best_and_spread(compared: Comparison) -> tuple[dict[str, float], dict[str, str]]:
    """Return of each main figure of several runs its best value and the spread, the largest minus the smallest; and
    which run is the best.
    """
    figures, best = {}, {}
    headline = dict.fromkeys(name for run in compared.runs for name in run.headline)
    others = (name for run in compared.runs for name in run.figures if not curve_and_temperature(name))
    for name in dict.fromkeys([*headline, *others]):
        about = compared.about(name)
        if about is None or not (about.primary or about.short):
            continue
        found = [
            (run.figures[name].value, label)
            for run, label in zip(compared.runs, compared.labels, strict=True)
            if name in run.figures and not math.isnan(run.figures[name].value)
        ]
        if len(found) > 1:
            figures[f"{name}.spread"] = max(found)[0] - min(found)[0]
            if about.more_is_better is not None:
                value, label = (max if about.more_is_better else min)(found, key=lambda each: each[0])
                figures[f"{name}.best"], best[f"best.{name}"] = value, label
    return figures, best


def _named(name: str, table: pa.Table) -> dict[str, pa.Table]:
    """Return a table by its name, which says so where it is only the beginning."""
    return {name: table} if table.num_rows <= ROWS else {f"{name}_first_{ROWS}": table.slice(0, ROWS)}
