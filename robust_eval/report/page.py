"""The page that ends a run: one self-contained HTML file."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader

from robust_eval.answer import rows
from robust_eval.report.terminal import headline, number
from robust_eval.result import Result

EXTREMES = 12
"""Facts listed at either end."""


def write_page(result: Result, figures: Mapping[str, Path], path: Path) -> None:
    """Write the page; ``figures`` maps captions to SVG files, which become part of it."""
    templates = Environment(loader=PackageLoader("robust_eval.report", "."), autoescape=True)
    page = templates.get_template("page.html.jinja").render(
        result=result,
        headline=sentence(result),
        rows=[row for score in result.scores.values() for row in headline(score)],
        figures={caption: _inline(file, f"figure{index}") for index, (caption, file) in enumerate(figures.items())},
        extremes=_extremes(result),
        description={**result.description, **result.counts()},
        number=number,
    )
    path.write_text(page, encoding="utf-8")


def sentence(result: Result) -> str:
    """The run in one plain sentence."""
    start = f"{len(result.kept)} of {len(result.asked)} questions were kept and asked again"
    if "frs" not in result.scores:
        return f"{start}."
    values = result.scores["frs"].values
    name = next(name for name in values if name.startswith("frs.d"))
    frs, unbroken = values[name], values["frs.unbroken_share"]
    interval = f"95 % interval {number(frs.low)} to {number(frs.high)}, d = {name.removeprefix('frs.d')}"
    return (
        f"{start} at rising temperature: their mean Factual Robustness Score is {number(frs.value)} ({interval}), and "
        f"{number(unbroken.value, '.0%')} of them never broke."
    )


def _inline(file: Path, prefix: str) -> str:
    """An SVG drawing as part of a page: without its XML head, and with ids that no other drawing has."""
    drawing = file.read_text(encoding="utf-8")
    drawing = drawing[drawing.index("<svg") :]
    drawing = re.sub(r'\bid="', f'id="{prefix}-', drawing)
    drawing = re.sub(r"url\(#", f"url(#{prefix}-", drawing)
    return re.sub(r'href="#', f'href="#{prefix}-', drawing)


def _extremes(result: Result) -> dict[str, list[dict[str, Any]]]:
    if "frs" not in result.scores:
        return {}
    greedy = dict(rows(result.baseline, "question_id", "text"))
    table = result.scores["frs"].tables["frs"]
    column = next(name for name in table.column_names if name.startswith("frs_d"))
    facts = [{**row, "frs": row[column], "greedy": greedy[row["question_id"]]} for row in table.to_pylist()]
    facts = [fact for fact in facts if not math.isnan(fact["frs"])]
    facts.sort(key=lambda fact: (fact["frs"], -fact["entropy"]))
    shown = min(EXTREMES, len(facts) // 2)
    return {"The least robust facts": facts[:shown], "The most robust facts": facts[::-1][:shown]}
