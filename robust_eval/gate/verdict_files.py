"""Files of the verdict: JSON and JUnit XML for pipelines, Markdown for the summary of a step, a page for people."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from robust_eval.gate.changed_facts import Fact, SingleFacts
from robust_eval.gate.decision import STATUS, Decision, MetricVerdict, joint_outcome, sentence
from robust_eval.gate.knowledge_and_firmness import NOT_JUDGED
from robust_eval.metric.presentation import Cell, Table, markdown_section
from robust_eval.report.comparison_tables import shortened
from robust_eval.report.page import drawing, template
from robust_eval.runtime.text import escaped, number, printable, signed
from robust_eval.runtime.versions import origin
from robust_eval.stats.estimate import Estimate
from robust_eval.tracking.flat_settings import setting_value

VERDICT, JUNIT, SUMMARY_PAGE, PAGE = "verdict.json", "junit.xml", "verdict.md", "verdict.html"
FIGURE = "margins"
"""Name of the figure's files without suffix."""
MAX_LISTED = 50
"""Single facts of a kind in Markdown and the page; verdict.json has all."""
READING = (
    "The difference in each metric with its interval, and the zone beyond its margin; further right is better. A "
    "metric passes if it has enough facts and its interval is outside the zone."
)
DECIDE_NOTHING = "The list of individual facts does not affect the verdict."
_NO_FACTS = SingleFacts([], [], [], "")


@dataclass(frozen=True)
class Report:
    """Content of the verdict's files. ``question_counts`` are the numbers of sampled and of skipped questions of a gate
    with early stopping; ``differing`` are the settings that differ, with the values of baseline and candidate.
    """

    decision: Decision
    baseline: str
    candidate: str
    models: tuple[str, str]
    level: float
    shared: int = 0
    facts: SingleFacts = _NO_FACTS
    question_counts: tuple[int, int] | None = None
    differing: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @property
    def headline(self) -> str:
        """Outcome of the gate in one sentence."""
        if self.decision.outcome == "FAIL":
            failed = [each.label for each in self.decision.metrics if each.outcome == "FAIL"]
            return f"FAIL: the candidate is worse by more than the margin in {' and '.join(failed)}."
        if self.decision.outcome == "PASS":
            is_alone = any(reason.startswith(NOT_JUDGED) for reason in self.decision.reasons)
            alone = ", judged on knowledge alone" if is_alone else ""
            return f"PASS: the candidate may replace the baseline{alone}."
        if joint_outcome(self.decision.metrics) != "INCONCLUSIVE":
            return "INCONCLUSIVE: too many answers are missing."
        undecided = [each.label for each in self.decision.metrics if each.outcome == "INCONCLUSIVE"]
        if 0 < len(undecided) < len(self.decision.metrics):
            verb = "reaches" if len(undecided) == 1 else "reach"
            return f"INCONCLUSIVE: {' and '.join(undecided)} {verb} no verdict."
        return "INCONCLUSIVE: no metric reaches a verdict."

    @property
    def exit_status(self) -> str:
        """Sentence on the exit status in the verdict's files."""
        meanings = ", ".join(f"{status} {outcome}" for outcome, status in STATUS.items())
        return f"Exit status: {STATUS[self.decision.outcome]} ({meanings})."

    @property
    def saved(self) -> str:
        """Sentence in the verdict on the questions saved by early stopping; empty without it."""
        if self.question_counts is None:
            return ""
        taken, left = self.question_counts
        if not left:
            return f"early_stop=true: all {taken:,} questions were asked."
        return (
            f"early_stop=true: {taken:,} of {taken + left:,} questions were asked; {left:,} were not "
            f"({number(left / (taken + left), '.0%')} saved)."
        )


def write_verdict(report: Report, folder: Path, each_fact: bool) -> None:
    """Write the verdict's files into a folder; with ``each_fact``, JUnit also has a test case for each changed fact."""
    folder.mkdir(parents=True, exist_ok=True)
    svg = _save_margins(report, folder / FIGURE)
    page = template("gate.html.jinja").render(
        report=report,
        drawing=drawing(svg, FIGURE) if svg else "",
        caption="Differences against their margins",
        reading=READING,
        tables=tables(report),
        fact_tables=fact_tables(report),
        decide_nothing=DECIDE_NOTHING,
        origin=origin(None),
    )
    texts = {
        VERDICT: json.dumps(as_json(report), indent=2) + "\n",
        JUNIT: junit(report, each_fact),
        SUMMARY_PAGE: markdown(report),
        PAGE: page,
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


def _save_margins(report: Report, file: Path) -> Path | None:
    """Draw the gate's differences against their margins; return the SVG file, or None if no metric has an interval."""
    from robust_eval.plot.comparison_figures import Judgement, margins
    from robust_eval.plot.figure_files import save  # matplotlib takes half a second to import
    from robust_eval.plot.style import figure

    judgements = {
        each.label: Judgement(Estimate(each.difference, each.low, each.high), each.margin, _outcome(report, each))
        for each in report.decision.metrics
        if not math.isnan(each.low)
    }
    if not judgements:
        return None
    with figure() as (canvas, axes):
        margins(axes, judgements, f"improvement of the candidate, mean with {100 * report.level:g} % interval")
        return save(canvas, file)


def as_json(report: Report) -> dict[str, Any]:
    """Return the content of ``verdict.json`` (docs/gate.md): no number that JSON has not."""
    decision = report.decision
    facts = {name: [fact._asdict() for fact in getattr(report.facts, name)] for name in SingleFacts._fields[:3]}
    return {
        "outcome": decision.outcome,
        "status": STATUS[decision.outcome],
        "reasons": decision.reasons,
        "identical": decision.identical,
        "level": report.level,
        "baseline": {"run": report.baseline, "model": report.models[0]},
        "candidate": {"run": report.candidate, "model": report.models[1]},
        "shared_questions": report.shared,
        "settings": {
            name: [setting_value(name, value) for value in values] for name, values in report.differing.items()
        },
        "asked": None
        if report.question_counts is None
        else dict(zip(("taken", "left"), report.question_counts, strict=True)),
        "metrics": [
            {name: _finite(value) for name, value in each._asdict().items()} | {"more": _finite(each.more)}
            for each in decision.metrics
        ],
        "facts": facts | {"note": report.facts.note},
    }


def junit(report: Report, each_fact: bool) -> str:
    """Return JUnit XML: a test case for each metric, with a failure for FAIL and an error for INCONCLUSIVE.

    Single facts decide nothing: changed ones are skipped test cases, which are shown and fail nothing.
    """
    suite = ElementTree.Element("testsuite", name="robust_eval.gate")
    for judged in report.decision.metrics:
        case = ElementTree.SubElement(suite, "testcase", classname="robust_eval.gate", name=printable(judged.name))
        if judged.outcome == "FAIL":
            _add_entry(case, "failure", sentence(judged), "AssertionError")
        elif judged.outcome == "INCONCLUSIVE" and not report.decision.identical:
            _add_entry(case, "error", sentence(judged), "Inconclusive")
    whole = ElementTree.SubElement(suite, "testcase", classname="robust_eval.gate", name="verdict")
    if report.decision.outcome != "PASS":
        kind, of = ("failure", "AssertionError") if report.decision.outcome == "FAIL" else ("error", "Inconclusive")
        _add_entry(whole, kind, " ".join([report.headline, *report.decision.reasons]), of)
    for kind, facts in _facts_by_kind(report).items() if each_fact else ():
        for fact in facts:
            name = printable(f"{fact.question_id}: {fact.question}")
            case = ElementTree.SubElement(suite, "testcase", classname="robust_eval.gate.facts", name=name)
            if kind != "learned":
                _add_entry(
                    case, "skipped", f"{kind}: {fact.baseline!r}, then {fact.candidate!r} {fact.why}".strip(), ""
                )
    counts = {kind: len(suite.findall(f"testcase/{kind}")) for kind in ("failure", "error", "skipped")}
    suite.set("tests", str(len(suite)))
    for kind, name in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(name, str(counts[kind]))
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    ElementTree.indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"


def markdown(report: Report) -> str:
    """Return the verdict in Markdown, with its reasons, the tables of metrics and settings, and the changed facts."""
    head = [
        f"# {escaped(report.headline)}",
        *(escaped(each) for each in (report.saved, *report.decision.reasons, report.exit_status) if each),
    ]
    sections = ["\n\n".join(head)]
    for table in tables(report):
        sections += markdown_section(table)
    listed = fact_tables(report)
    sections += [DECIDE_NOTHING] if listed else []
    for table in listed:
        sections += markdown_section(table)
    return "\n\n".join(sections) + "\n"


def tables(report: Report) -> list[Table]:
    """Return the verdict's tables for people: the judged metrics, a row for each, and the settings that differ."""
    header = ["metric", "verdict", "facts", "baseline", "candidate", "difference", "margin"]
    rows = [[Cell(each.label), Cell(_outcome(report, each)), *_numbers(each)] for each in report.decision.metrics]
    level = f"{100 * report.level:g} % intervals, over the facts with a value in both runs."
    note = " ".join([level, *map(_mcnemar, report.decision.metrics)]).strip()
    settings = [
        [Cell(name), *(Cell(setting_value(name, value)) for value in values)]
        for name, values in report.differing.items()
    ]
    all_tables = [
        Table("Metrics", header, rows, 2, note),
        Table("Settings that differ", ["setting", "baseline", "candidate"], settings, 3),
    ]
    return [table for table in all_tables if table.rows]


def fact_tables(report: Report) -> list[Table]:
    """Return the single facts that changed, as tables for people."""
    names = {"forgotten": "Forgotten facts", "learned": "Learned facts", "less robust": "Less robust facts"}
    text_tables = []
    for kind, facts in _facts_by_kind(report).items():
        columns = ["question", "baseline", "candidate", *(["why"] if kind == "less robust" else [])]
        cells = [
            [Cell(shortened(text)) for text in (fact.question, fact.baseline, fact.candidate, fact.why)[: len(columns)]]
            for fact in facts[:MAX_LISTED]
        ]
        more = f"The first {MAX_LISTED} of {len(facts):,}; all are in {VERDICT}." if len(facts) > MAX_LISTED else ""
        note = " ".join(filter(None, [more, report.facts.note if kind == "less robust" else ""]))
        if cells:
            text_tables.append(Table(f"{names[kind]}: {len(facts):,}", columns, cells, len(columns), note))
    return text_tables


def _outcome(report: Report, judged: MetricVerdict) -> str:
    return "identical" if report.decision.identical else judged.outcome


def _numbers(judged: MetricVerdict) -> list[Cell]:
    interval = "" if math.isnan(judged.low) else f"{signed(judged.low)} to {signed(judged.high)}"
    means = [Cell(number(value)) for value in (judged.baseline, judged.candidate)]
    difference = "undefined" if math.isnan(judged.difference) else signed(judged.difference)
    return [Cell(f"{judged.n:,}"), *means, Cell(difference, interval), Cell(f"{judged.margin:g}")]


def _mcnemar(judged: MetricVerdict) -> str:
    return "" if judged.p_mcnemar is None else f"McNemar's exact p for {judged.label}: {judged.p_mcnemar:.3g}."


def _facts_by_kind(report: Report) -> dict[str, list[Fact]]:
    return dict(zip(("forgotten", "learned", "less robust"), report.facts[:3], strict=True))


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _add_entry(case: ElementTree.Element, tag: str, words: str, kind: str) -> None:
    entry = ElementTree.SubElement(case, tag, message=printable(words))
    if kind:
        entry.set("type", kind)
