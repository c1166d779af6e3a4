"""Page of a run's report: one self-contained HTML file."""

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, Template
from markupsafe import Markup

from robust_eval.answer import at_temperature, rows, temperatures_of
from robust_eval.error import UserError
from robust_eval.metric.frs_tables import PAPER_N, cut_size, score_columns
from robust_eval.metric.label_correction import NAME as CORRECTED
from robust_eval.metric.metric_spec import as_json, from_json, nearest_to_one, spec_of
from robust_eval.metric.presentation import Column
from robust_eval.metric.score import Score
from robust_eval.plot.colours import BLACK, GREY
from robust_eval.plot.figure_files import SavedFigure
from robust_eval.prompt.arrangement import GIVEN
from robust_eval.question import Question
from robust_eval.report.question_details import details
from robust_eval.report.question_table import TEXT, as_data, chosen, number_columns, question_index
from robust_eval.report.run_summary import (
    asked_words,
    category_name,
    claims,
    headline_rows,
    main_metrics,
    sentence,
    type_name,
)
from robust_eval.report.vega import accuracy_curve, scatter, vega_script
from robust_eval.report.warnings import few, left_out, warnings
from robust_eval.rewriter.base import FATES
from robust_eval.runs.figure_data import figure_data
from robust_eval.runs.question_status import verdict
from robust_eval.runtime.files import write_text
from robust_eval.runtime.json_files import OF_RUN, read_json
from robust_eval.runtime.text import cut, number, packed, printable_lines
from robust_eval.stats.estimate import bounds
from robust_eval.tracking.flat_settings import effective
from robust_eval.tracking.result import Result
from robust_eval.tracking.run_folder import METRICS, REPORT, SUMMARY

MIN_FONT_SIZE = 9
"""Minimum font size in pixels, for phones."""
EXTREMES = 12
"""Facts listed at either end."""
SCRIPT = ("elements", "data", "filters", "table", "address", "question", "drawings", "fact_map", "assembled")
"""Files of the page's script, in their order."""
MAX_QUESTIONS = 2000
"""Maximum number of questions with details; of more a sample is taken."""
SCATTER = "frs_by_entropy_and_breaking"
"""Figure in place of which a page has an interactive scatter plot of the same points."""
DATA_LIMIT = 1_600_000
"""Maximum characters of the compressed question data in a page."""
TEXT_LIMITS = (TEXT, 200, 100, 50)
"""Maximum characters of a text: the first of these with which the data fit into the limit, or the last."""
CORRECTED_PART = "<!-- corrected metrics -->", "<!-- end of corrected metrics -->"
"""Markers around the corrected metrics in a page, which labels may add after the run."""
SAMPLER_SETTINGS = (
    *("temperatures", "trials", "turns", "pushbacks", "traces", "trace_temperature", "budgets", "answers"),
    *("nodes", "rewrites", "orders", "forms", "structured"),
)
"""Settings of samplers in the setup of a page, unless they have neutral values."""


def write_page(result: Result, figures: Sequence[SavedFigure], path: Path) -> None:
    """Write the report page of a run, with the SVG files of the figures embedded."""
    columns = number_columns(result)
    closer = len(columns) > 1
    mapped = _mapped(result, figures)
    selection = chosen(result, columns, MAX_QUESTIONS, frozenset(mapped))
    scores = {name: score for name, score in result.scores.items() if not score.presentation.tables_alone}
    tables = {score.presentation.title or name: headline_rows(score) for name, score in scores.items()}
    page = template("page.html.jinja").render(
        result=result,
        origin=result.origin,
        sentence=sentence(result),
        asked_words=asked_words(result),
        baseline=result.baseline_words,
        claims=claims(result),
        scale=next((score.presentation.scale for score in result.scores.values() if score.presentation.scale), None),
        warned=list(warnings(result)),
        main=main_metrics([row for rows_of_metric in tables.values() for row in rows_of_metric]),
        few=few,
        bounds=bounds,
        setup=_setup(result),
        corrected=corrected_part(result.scores.get(CORRECTED)),
        tables=tables,
        presentations=[score.presentation for score in scores.values()],
        figures=[
            (figure.entry, drawing(figure.svg, figure.entry.name))
            for figure in figures
            if not (closer and figure.entry.name == SCATTER)
        ],
        closer=closer,
        scatter=SCATTER if any(figure.entry.name == SCATTER for figure in figures) else "",
        chosen=selection,
        sampled=len(selection.rows) < len(result.questions),
        index=question_index(result, selection.rows, columns[0] if columns else None),
        first_column=columns[0].label if columns else "",
        left_out=list(left_out(result)),
        data=_question_data(result, columns, selection.rows, mapped),
        vega=vega_script(),
        script=page_script(),
        extremes=_extremes(result),
        types=_types(result),
        type_name=type_name,
        offered=Counter(FATES[fate] for fate in result.rewritten.model_rewrites["fate"].to_pylist()),
        drifted=result.drifted()[:EXTREMES],
        categories=_by_category(result),
        disagreeing=_disagreeing(result),
        divided=_divided(result),
        adversarial=_adversarial(result),
        description={**result.description, **result.counts()},
        number=number,
        cut=cut,
        longest=TEXT_LIMITS[0],
    )
    path.write_text(page, encoding="utf-8")


def corrected_part(score: Score | None) -> Markup:
    """Return the part of the report's page with metrics corrected by labels; empty without any."""
    body = ""
    if score is not None:
        presentation = score.presentation
        body = template("corrected.html.jinja").render(tables=presentation.tables, notes=presentation.notes)
    return Markup(f"{CORRECTED_PART[0]}{body}{CORRECTED_PART[1]}")


def page_script() -> str:
    """Return the script of a report page: its files in order, in one function."""
    folder = files("robust_eval.report").joinpath("script")
    scripts = [folder.joinpath(f"{name}.js").read_text(encoding="utf-8") for name in SCRIPT]
    return "\n".join(['"use strict";', "(async () => {", *scripts, "})();"])


def _mapped(result: Result, figures: Sequence[SavedFigure]) -> list[str]:
    """Return the ids of the facts in the rows of the page's heat map, from the top; empty without one."""
    if all(figure.entry.name != "accuracy_by_fact" for figure in figures):
        return []
    from robust_eval.plot.frs_figures import fact_accuracy  # it imports matplotlib

    facts = result.tables["frs"]["question_id"]
    return list(facts.take(fact_accuracy(figure_data(result)).rows).to_pylist())


def _question_data(result: Result, columns: Sequence[Column], selected: Sequence[int], mapped: Sequence[str]) -> str:
    """Return the page's compressed data: what the index lacks about these questions, and ids of the mapped facts."""
    questions = [result.questions[row] for row in selected]
    decode = None
    if result.tokenizer is not None:
        from tokenizers import Tokenizer

        decode = Tokenizer.from_file(str(result.tokenizer)).decode
    axes = next((axes for score in result.scores.values() if (axes := score.presentation.axes)), ())
    axes = [column.name for column in columns] if not axes else list(axes)
    thresholds = (score.settings["threshold"] for score in result.scores.values() if "threshold" in score.settings)
    data: dict[str, Any] = {
        "numbers": [as_data(column, selected) for column in columns],
        "axes": (axes * 3)[:3],
        "map": [printable_lines(question_id) for question_id in mapped],
        "scatter": scatter(),
        "curve": accuracy_curve(next(thresholds, 0.5)),
        "settings": _settings(result),
        "baseline": result.baseline_words,
    }
    for longest in TEXT_LIMITS:
        data["details"] = details(result, questions, longest, decode)
        text = packed(data)
        if len(text) <= DATA_LIMIT:
            break
    return text


def _settings(result: Result) -> dict[str, str]:
    """Return for the page the settings that determine the answers, with ``auto`` resolved."""
    groups = ("model.", "sampler.", "rewriter.", "reader.", "grader.")
    values = {**result.description, **effective(result.description)}
    texts = {name: printable_lines(str(value)) for name, value in values.items() if name.startswith(groups)}
    return {"seed": str(values.get("seed")), **{name: cut(value, TEXT_LIMITS[0]) for name, value in texts.items()}}


def _setup(result: Result) -> dict[str, str]:
    """Return the setup of the run on its report page, for people."""
    settings = result.description
    samplers = list(result.graded_by_sampler)
    prompts = f"{result.prompts_asked:,} requested, {result.cache_hits:,} cached"
    entries = {
        "model": " ".join(str(settings.get(name, "")) for name in ("model.name", "loaded.dtype", "loaded.device")),
        "source": settings.get("loaded.server") or settings.get("model.path"),
        "data set": _data_set(result),
        "fingerprint of the data": str(settings.get("loaded.dataset.fingerprint", ""))[:12],
        "sampler": ", ".join(samplers).replace("_", " "),
        "seed": settings.get("seed"),
        "replies": f"{result.replies_received():,.0f}",
        "prompts": prompts if result.prompts_asked + result.cache_hits else "",
    }
    for sampler in samplers:
        for name in SAMPLER_SETTINGS:
            value = settings.get(f"sampler.{sampler}.{name}")
            if value not in (None, [], GIVEN) and value is not False:
                words = ", ".join(map(str, value)) if isinstance(value, list) else value
                entries[f"{name}, {sampler.replace('_', ' ')}" if len(samplers) > 1 else name] = words
    return {name: str(value).strip() for name, value in entries.items() if value not in (None, "")}


def _data_set(result: Result) -> str:
    text = f"{result.description.get('dataset.name')}, {len(result.questions):,} questions"
    candidates = len(result.candidates())
    return text if candidates == len(result.questions) else f"{text}, of which {candidates:,} could be asked"


def _escaped(value: Any) -> Any:
    """Return a value for a page template with invisible characters escaped; markup is trusted."""
    return printable_lines(value) if isinstance(value, str) and not isinstance(value, Markup) else value


_TEMPLATES = Environment(loader=PackageLoader("robust_eval.report", "."), autoescape=True, finalize=_escaped)


def template(name: str) -> Template:
    """Return a page template of this package."""
    return _TEMPLATES.get_template(name)


def drawing(file: Path, prefix: str) -> str:
    """Return an SVG drawing as part of a page: without its XML head, with unique ids, and with black and grey replaced
    by the colours of the page (:mod:`robust_eval.plot.style`). It is so wide that no text is smaller than
    :data:`MIN_FONT_SIZE` pixels.
    """
    svg = file.read_text(encoding="utf-8")
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = re.sub(r"url\(#", f"url(#{prefix}-", svg)
    smallest = min(map(float, re.findall(r"font-size: ([\d.]+)px", svg)), default=MIN_FONT_SIZE)

    def with_min_width(match: re.Match[str]) -> str:
        width = float(match[2]) * MIN_FONT_SIZE / smallest
        return f'<svg style="min-width: {width:.0f}px" {match[1]}width="{match[2]}pt"'

    svg = re.sub(r'<svg ([^>]*?)width="([\d.]+)pt"', with_min_width, svg, count=1)
    svg = re.sub(r'href="#', f'href="#{prefix}-', svg)
    return re.sub(r"<[^>]+>", lambda tag: tag[0].replace(BLACK, "currentColor").replace(GREY, "var(--quiet)"), svg)


def _by_category(result: Result) -> list[dict[str, Any]]:
    table = result.tables.get("certainty_by_category")
    by_category = [] if table is None else table.to_pylist()
    names = [row["category"] for row in by_category]
    return [{**row, "category": category_name(row["category"], names)} for row in by_category]


def _divided(result: Result) -> list[dict[str, Any]]:
    """Return the questions with the least agreement of raters, with their answers at the temperature nearest to 1, for
    the page.
    """
    metric = result.metric_of("agreement")
    if metric is None:
        return []
    table = result.tables["agreement"]
    temperature = nearest_to_one(temperatures_of(table))
    certain = dict(rows(at_temperature(table, temperature), "question_id", "certainty"))
    defined = [question for question in result.kept if not math.isnan(certain[question.id])]
    divided = sorted(defined, key=lambda question: certain[question.id])[:EXTREMES]
    entries = {each.id: {"question": each, "certainty": certain[each.id], "answers": list[Any]()} for each in divided}
    columns = ("question_id", "rewrite", "form", "text", "label", "outcome", "correct", "ensemble")
    graded = at_temperature(result.graded_by_sampler[result.sampler_of[metric]], temperature)
    for question_id, rewrite, form, text, label, outcome, correct, elected in rows(graded, *columns):
        if question_id in entries:
            asked = form or _wording(entries[question_id]["question"], rewrite)
            answer = {"asked": asked, "text": text, "label": label, "outcome": outcome, "elected": elected}
            entries[question_id]["answers"].append(answer | {"verdict": verdict(correct, outcome)})
    return list(entries.values())


def _disagreeing(result: Result) -> list[dict[str, Any]]:
    """Return the questions on whose robustness a profile's methods disagree, the largest disagreement first."""
    if "profile" not in result.tables:
        return []
    greedy = dict(rows(result.graded_baseline, "question_id", "text"))
    table = result.tables["profile"].to_pylist()
    facts = [{**row, "greedy": greedy.get(row["question_id"], "")} for row in table if row["disagreement"] > 0]
    return sorted(facts, key=lambda fact: -float(fact["disagreement"]))[:EXTREMES]


def _wording(question: Question, rewrite: int) -> str:
    """Return the wording of a question or of one of its rewrites, whose texts recorded answers may lack."""
    wordings = (question.text, *question.rewrites)
    return wordings[rewrite] if rewrite < len(wordings) else f"rewrite {rewrite}"


def _adversarial(result: Result) -> tuple[int, list[dict[str, Any]]]:
    """Return the number of rewrites that turned a right answer wrong, and one of each of the first questions, for the
    page.
    """
    table = result.tables.get("adversarial_rewrites")
    if table is None:
        return 0, []
    first: dict[str, dict[str, Any]] = {}
    for row in table.to_pylist():
        first.setdefault(row["question_id"], row)
    return table.num_rows, list(first.values())[:EXTREMES]


def _types(result: Result) -> dict[str, Any] | None:
    """Return the data on question types for the page; None without FRS of at least two facts."""
    shares = result.tables.get("frs_types")
    if shares is None or not cut_size(shares):
        return None
    return {
        "rows": shares.to_pylist() if any(shares["type"].to_pylist()) else [],
        "taken": cut_size(shares),
        "paper": PAPER_N,
        "facts": sum(shares["questions"].to_pylist()),
        "untyped": sum(row["questions"] for row in shares.to_pylist() if not row["type"]),
        "predicted": result.description.get("loaded.question_types.predicted", 0),
        "d": f"{next(iter(score_columns(result.tables['frs']))):g}",
    }


def _extremes(result: Result) -> dict[str, list[dict[str, Any]]]:
    if "frs" not in result.tables:
        return {}
    greedy = dict(rows(result.graded_baseline, "question_id", "text"))
    table = result.tables["frs"]
    column = next(iter(score_columns(table).values()))
    facts = [{**row, "frs": row[column], "greedy": greedy.get(row["question_id"], "")} for row in table.to_pylist()]
    facts = [fact for fact in facts if not math.isnan(fact["frs"])]
    facts.sort(key=lambda fact: (fact["frs"], -fact["entropy"]))
    count = min(EXTREMES, len(facts) // 2)
    return {"The least robust facts": facts[:count], "The most robust facts": facts[::-1][:count]}


def write_corrected(folder: Path, score: Score) -> None:
    """Write the corrected metrics into the summary, the declarations and the report page of a finished run, replacing
    earlier ones.

    UserError where a file is damaged.
    """
    try:
        summary = dict(read_json(folder / SUMMARY, OF_RUN))
        declarations = from_json(read_json(folder / METRICS, OF_RUN))
    except (OSError, ValueError, TypeError, KeyError) as problem:
        raise UserError(f"{folder} cannot be read: its {SUMMARY} or {METRICS} is damaged") from problem

    def is_corrected(name: str) -> bool:
        return spec_of(name.removesuffix(".low").removesuffix(".high"), score.specs) is not None

    remaining = {name: value for name, value in summary.items() if not is_corrected(name)}
    corrected = {name: value if math.isfinite(value) else None for name, value in score.flat().items()}
    names = {spec.name for spec in score.specs}
    specs = [*(spec for spec in declarations if spec.name not in names), *score.specs]
    for file, content in ((METRICS, as_json(specs)), (SUMMARY, remaining | corrected)):
        write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", folder / file)
    page = folder / REPORT
    if page.is_file():
        before, start, rest = page.read_text(encoding="utf-8").partition(CORRECTED_PART[0])
        _, end, after = rest.partition(CORRECTED_PART[1])
        if start and end:
            write_text(f"{before}{corrected_part(score)}{after}", page)
