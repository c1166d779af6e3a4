"""Files of a comparison: its page, Markdown, figures, and tables for programs."""

import os
from collections.abc import Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa

from robust_eval.metric.presentation import Cell, Table, markdown_section
from robust_eval.report.comparison_summary import Ranking, opening, scope, sentences
from robust_eval.report.comparison_tables import comparison_tables, pairs_as_data, runs_as_data
from robust_eval.report.page import drawing, template
from robust_eval.report.warnings import few
from robust_eval.runs.comparison import Comparison
from robust_eval.runtime.parquet_files import write_parquet
from robust_eval.runtime.text import escaped
from robust_eval.runtime.versions import origin
from robust_eval.tracking.run_folder import COMPARISON_PAGE, QUESTIONS


def write_comparison(compared: Comparison, folder: Path) -> None:
    """Write the page, the Markdown, ``figures/``, and the tables for programs ``runs.parquet``, ``pairs.parquet``
    and, where measurements share questions, ``questions.parquet``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    from robust_eval.report.comparison_gallery import save_comparison_figures  # it imports matplotlib

    figures = save_comparison_figures(compared, folder / "figures")
    tables = list(comparison_tables(compared))
    verdicts, rankings = opening(compared)
    first, *remarks = scope(compared)
    page = template("comparison.html.jinja").render(
        scope=first,
        said=[*verdicts, *remarks],
        origin=origin(None),
        rankings=[_ranked(compared, ranking, folder) for ranking in rankings],
        address=partial(_address, folder=folder),
        script=files("robust_eval.report").joinpath("comparison.js").read_text(encoding="utf-8"),
        warning=few(*compared.smallest_sample),
        tables=tables,
        figures=[(each, drawing(each.svg, f"figure{number}")) for number, each in enumerate(figures)],
    )
    (folder / COMPARISON_PAGE).write_text(page, encoding="utf-8")
    drawings = [(each.caption, each.svg.with_suffix(".png").relative_to(folder)) for each in figures]
    text = _markdown([*sentences(compared), few(*compared.smallest_sample)], tables, drawings)
    (folder / COMPARISON_PAGE).with_suffix(".md").write_text(text, encoding="utf-8")
    write_parquet(runs_as_data(compared), folder / "runs.parquet")
    write_parquet(pairs_as_data(compared), folder / "pairs.parquet")
    if compared.shared:
        tables_by_data_set = [shared.as_data() for shared in compared.shared]  # a metric that others lack is null
        write_parquet(pa.concat_tables(tables_by_data_set, promote_options="default"), folder / QUESTIONS)


def _markdown(paragraphs: Sequence[str], tables: Sequence[Table], drawings: Sequence[tuple[str, Path]]) -> str:
    first, *others = tables
    pictures = [f"![{escaped(caption)}]({file.as_posix()})" for caption, file in drawings]
    sections = ["# Comparison", *markdown_section(first), *pictures[:1]]
    sections += [*(escaped(words) for words in paragraphs if words), *pictures[1:]]
    for table in others:
        sections += markdown_section(table)
    return "\n\n".join(sections) + "\n"


def _ranked(compared: Comparison, ranking: Ranking, folder: Path) -> list[dict[str, str]]:
    """Return the comparison page's ranking: label, letters, and address of the report of each measurement."""
    return [
        {
            "name": compared.measurement_labels.full[index],
            "letters": letters,
            "address": _address(Cell("", page=compared.measurements[index].page), folder),
        }
        for index, letters in ranking.letters.items()
    ]


def _address(cell: Cell, folder: Path) -> str:
    """Return the page's link to a cell's report, relative to the folder, with the question to open; empty for none."""
    if cell.page is None:
        return ""
    path = quote(Path(os.path.relpath(cell.page, folder.resolve())).as_posix())
    return f"{path}#q={quote(cell.question, safe='')}" if cell.question else path
