"""The page that ends a run: one self-contained HTML file."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, Template

from robust_eval.answer import rows
from robust_eval.metric.score import nearest_to_one
from robust_eval.metric.type_shares import PAPER_N, taken
from robust_eval.question import Question
from robust_eval.report.figures import SavedFigure
from robust_eval.report.wording import headline, number, sentence, type_name
from robust_eval.result import Result

EXTREMES = 12
"""Facts listed at either end."""


def write_page(result: Result, figures: Sequence[SavedFigure], path: Path) -> None:
    """Write the page; the SVG files of the figures become part of it."""
    page = template("page.html.jinja").render(
        result=result,
        headline=sentence(result),
        rows=[row for score in result.scores.values() for row in headline(score)],
        figures=inlined({figure.entry.caption: figure.svg for figure in figures}),
        extremes=_extremes(result),
        types=_types(result),
        type_name=type_name,
        offered=Counter(fate.replace("_", " ") for fate in result.rewritten.found["fate"].to_pylist()),
        drifted=result.drifted()[:EXTREMES],
        categories=_by_category(result),
        disagreeing=_disagreeing(result),
        divided=_divided(result),
        adversarial=_adversarial(result),
        description={**result.description, **result.counts()},
        number=number,
    )
    path.write_text(page, encoding="utf-8")


def template(name: str) -> Template:
    """A template of this package."""
    return Environment(loader=PackageLoader("robust_eval.report", "."), autoescape=True).get_template(name)


def inlined(figures: Mapping[str, Path]) -> dict[str, str]:
    """The drawings themselves in place of their files."""
    return {caption: _inline(file, f"figure{index}") for index, (caption, file) in enumerate(figures.items())}


def _inline(file: Path, prefix: str) -> str:
    """An SVG drawing as part of a page: without its XML head, and with ids that no other drawing has."""
    drawing = file.read_text(encoding="utf-8")
    drawing = drawing[drawing.index("<svg") :]
    drawing = re.sub(r'\bid="', f'id="{prefix}-', drawing)
    drawing = re.sub(r"url\(#", f"url(#{prefix}-", drawing)
    return re.sub(r'href="#', f'href="#{prefix}-', drawing)


def _by_category(result: Result) -> list[dict[str, Any]]:
    tables = result.scores["certainty"].tables if "certainty" in result.scores else {}
    return list(tables["certainty_by_category"].to_pylist()) if "certainty_by_category" in tables else []


def _divided(result: Result) -> list[dict[str, Any]]:
    """The questions whose raters agree least, with all their answers at the temperature nearest to 1."""
    if "agreement" not in result.scores:
        return []
    table = result.scores["agreement"].tables["agreement"].to_pylist()
    temperature = nearest_to_one({row["temperature"] for row in table})
    certain = {row["question_id"]: row["certainty"] for row in table if row["temperature"] == temperature}
    known = [question for question in result.kept if not math.isnan(certain[question.id])]
    chosen = sorted(known, key=lambda question: certain[question.id])[:EXTREMES]
    answers: dict[str, list[dict[str, Any]]] = {question.id: [] for question in chosen}
    columns = ("question_id", "temperature", "rewrite", "text", "label", "correct", "ensemble")
    graded = result.graded[result.sources["agreement"]]
    for question_id, t, rewrite, text, label, correct, elected in rows(graded, *columns):
        if t == temperature and question_id in answers:
            answer = {"text": text, "label": label, "correct": correct, "elected": elected}
            answers[question_id].append({"rewrite": rewrite} | answer)
    return [
        {
            "question": question,
            "certainty": certain[question.id],
            "answers": [{**answer, "asked": _wording(question, answer["rewrite"])} for answer in answers[question.id]],
        }
        for question in chosen
    ]


def _disagreeing(result: Result) -> list[dict[str, Any]]:
    """The questions that the three methods do not find equally firm beside the others, the furthest apart first."""
    if "profile" not in result.scores:
        return []
    greedy = dict(rows(result.baseline, "question_id", "text"))
    table = result.scores["profile"].tables["profile"].to_pylist()
    facts = [{**row, "greedy": greedy.get(row["question_id"], "")} for row in table if row["disagreement"] > 0]
    return sorted(facts, key=lambda fact: -float(fact["disagreement"]))[:EXTREMES]


def _wording(question: Question, rewrite: int) -> str:
    """How a question was asked; recorded answers need not come with their rewrites."""
    wordings = (question.text, *question.rewrites)
    return wordings[rewrite] if rewrite < len(wordings) else f"rewrite {rewrite}"


def _adversarial(result: Result) -> tuple[int, list[dict[str, Any]]]:
    """How many rewrites turned a right answer wrong, and one of each question, for the first questions."""
    if "agreement" not in result.scores:
        return 0, []
    table = result.scores["agreement"].tables["adversarial_rewrites"]
    first: dict[str, dict[str, Any]] = {}
    for row in table.to_pylist():
        first.setdefault(row["question_id"], row)
    return table.num_rows, list(first.values())[:EXTREMES]


def _types(result: Result) -> dict[str, Any] | None:
    """What there is to say of question types; None where no FRS was measured."""
    if "frs" not in result.scores:
        return None
    shares = result.scores["frs"].tables["frs_types"]
    return {
        "rows": shares.to_pylist() if any(shares["type"].to_pylist()) else [],
        "taken": taken(shares),
        "paper": PAPER_N,
        "facts": sum(shares["questions"].to_pylist()),
        "untyped": sum(row["questions"] for row in shares.to_pylist() if not row["type"]),
        "predicted": result.description.get("loaded.question_types.predicted", 0),
        "d": next(name for name in result.scores["frs"].values if name.startswith("frs.d")).removeprefix("frs.d"),
    }


def _extremes(result: Result) -> dict[str, list[dict[str, Any]]]:
    if "frs" not in result.scores:
        return {}
    greedy = dict(rows(result.baseline, "question_id", "text"))
    table = result.scores["frs"].tables["frs"]
    column = next(name for name in table.column_names if name.startswith("frs_d"))
    facts = [{**row, "frs": row[column], "greedy": greedy.get(row["question_id"], "")} for row in table.to_pylist()]
    facts = [fact for fact in facts if not math.isnan(fact["frs"])]
    facts.sort(key=lambda fact: (fact["frs"], -fact["entropy"]))
    shown = min(EXTREMES, len(facts) // 2)
    return {"The least robust facts": facts[:shown], "The most robust facts": facts[::-1][:shown]}
