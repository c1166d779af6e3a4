"""Every number that a page shows, read back as a browser renders it, is one of the run's files, rounded once."""

import json
import math
import re
from collections.abc import Collection, Iterator
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest
from browser import Opened, column
from experiments import without_figures
from playwright.sync_api import Browser, Page
from recorded_run import recorded_run

from robust_eval.metric.metric_spec import from_json, spec_of
from robust_eval.report.comparison_page import write_comparison
from robust_eval.runs.comparison import compare
from robust_eval.runs.finished_runs import read_run


class Compared(NamedTuple):
    """A comparison as it was written, and as a browser shows it."""

    folder: Path
    page: Page


METRICS = "[frs,agreement,certainty]"
NUMBER = re.compile(r"[+-]?\d[\d,]*(?:\.\d+)?(?: %)?")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs of all methods, with two weights d, whose facts hold in opposite order."""
    folder = tmp_path_factory.mktemp("numbers")
    for name, reverse in (("one", False), ("other", True)):
        with without_figures():
            data = f"dataset.path={folder / 'one' / 'questions.jsonl'}"
            settings = [f"model.name={name}", "metric.frs.d=[1,5]", data]
            recorded_run(folder / name, 45, *settings, metrics=METRICS, reverse=reverse, grouped=True)
    return [folder / name / "run" for name in ("one", "other")]


@pytest.fixture(scope="module")
def report(folders: list[Path]) -> Path:
    return folders[0] / "report.html"


def equals(shown: str, value: Any) -> bool:
    """Whether a number as it is shown is this value rounded to as many digits, halves away from zero."""
    if value is None or not math.isfinite(value):
        return False
    digits = Decimal(shown.replace(",", "").rstrip(" %"))
    scaled = Decimal(value) * (100 if shown.endswith("%") else 1)
    return digits == scaled.quantize(Decimal((0, (1,), digits.as_tuple().exponent)), ROUND_HALF_UP)


def unfounded(text: str, values: Collection[Any]) -> list[str]:
    """The numbers in a text that are none of these values."""
    return [shown for shown in NUMBER.findall(text) if not any(equals(shown, value) for value in values)]


def cells(page: Page, region: str) -> list[list[str]]:
    """The rows of the tables in the region of this label."""
    found = page.locator(f"[role=region][aria-label='{region}'] tbody tr").all()
    return [row.locator("> *").all_inner_texts() for row in found]


def test_every_figure_is_that_of_the_summary(page: Page, report: Path):
    summary = json.loads((report.parent / "summary.json").read_text())
    figures = from_json(json.loads((report.parent / "metrics.json").read_text()))
    names: dict[str, str] = {}
    for name in summary:
        if about := spec_of(name, figures):
            names.setdefault(about.words, name)
    page.evaluate("document.querySelectorAll('details').forEach((each) => each.open = true)")
    rows = page.locator(".figures tbody tr, [aria-label='the main metrics'] tbody tr").all()
    read = [row.locator("td").all_inner_texts() for row in rows]
    assert len(read) > 30
    for label, value, interval, questions in read:
        name = names[label]
        assert equals(value, summary[name]) if summary[name] is not None else value in ("unbroken", "undefined"), label
        ends = NUMBER.findall(interval)
        assert len(ends) == (2 if f"{name}.low" in summary else 0), label
        assert all(equals(end, summary[f"{name}.{which}"]) for end, which in zip(ends, ("low", "high"), strict=False))
        assert equals(questions, summary[f"{name}.n"]) if questions else f"{name}.n" not in summary, label


def test_the_first_screen_has_the_numbers_of_the_summary(page: Page, report: Path):
    summary = json.loads((report.parent / "summary.json").read_text())
    asked = page.locator(".asked").inner_text()
    assert re.fullmatch(
        r"one was asked 45 questions from the data set facts on .+: once at temperature 0, and the 38 that it .+", asked
    )
    claims = re.sub(r"t = [\d.]+|95 %", "", page.locator(".headline").inner_text())
    scores: dict[str, list[float]] = {}
    for row in pq.read_table(report.parent / "questions.parquet").to_pylist():
        if not math.isnan(row["frs.d1"]):
            scores.setdefault(row["type"], []).append(row["frs.d1"])
    types = [value for own in scores.values() for value in (math.fsum(own) / len(own), len(own))]
    assert len(NUMBER.findall(claims)) > 4
    assert unfounded(claims, [*summary.values(), *types]) == []
    scale = page.locator(".scale h2").inner_text().partition(":")[2].replace("95 %", "")
    assert (
        unfounded(scale, [summary[f"profile.robust{end}"] for end in ("", ".low", ".high")]) == []
        or unfounded(scale, [summary[f"frs.d1{end}"] for end in ("", ".low", ".high")]) == []
    )


def test_every_count_and_setting_is_that_of_the_summary(page: Page, report: Path):
    summary = json.loads((report.parent / "summary.json").read_text())
    page.evaluate("document.querySelectorAll('details').forEach((each) => each.open = true)")
    found = {
        name: value for name, value in cells(page, "settings") if name in summary and name.split(".")[0] != "seconds"
    }
    assert len(found) > 15
    assert {name: float(value) for name, value in found.items()} == {name: summary[name] for name in found}


def test_the_columns_of_questions_and_the_tables_of_facts_are_those_of_the_files(page: Page, report: Path):
    questions = pq.read_table(report.parent / "questions.parquet").to_pylist()
    facts = {row["question_id"]: row for row in pq.read_table(report.parent / "frs.parquet").to_pylist()}
    by_text = {" ".join(row["question"].split()): row for row in questions}
    texts = [" ".join(text.split()[1:]) for text in column(page, "question")]
    names = {
        "FRS (d = 1)": "frs.d1",
        "initial entropy H": "frs.entropy.mean",
        "agreement of raters": "agreement.certainty.t1",
        "correct raters": "agreement.difficulty.t1",
        "entropy": "certainty.entropy.t0.7",
        "error rate": "certainty.error_rate.t0.7",
    }
    for head, name in names.items():
        for text, shown in zip(texts, column(page, head), strict=True):
            value = by_text[text][name]
            nothing = "not known" if head.startswith(("FRS", "initial")) else "–"
            assert shown == nothing if math.isnan(value) else equals(shown, value), (head, text)
    for text, shown in zip(texts, column(page, "breaking temperature"), strict=True):
        breaking = facts.get(by_text[text]["question_id"], {}).get("breaking_temperature")
        assert (
            shown == "not known"
            if breaking is None
            else shown == "unbroken"
            if math.isinf(breaking)
            else float(shown) == breaking
        )
    for title in ("The least robust facts", "The most robust facts"):
        shown_facts = cells(page, title)
        assert len(shown_facts) == 12
        for text, _, _, entropy, breaking, score in shown_facts:
            fact = facts[by_text[" ".join(text.split())]["question_id"]]
            assert equals(entropy, fact["entropy"])
            assert equals(score, fact["frs_d1"])
            assert breaking == (
                "unbroken" if math.isinf(fact["breaking_temperature"]) else f"{fact['breaking_temperature']:g}"
            )
    types = pq.read_table(report.parent / "frs_types.parquet").to_pylist()
    for row, (_, *numbers) in zip(types, cells(page, "question types"), strict=True):
        assert unfounded(" ".join(numbers), [value for name, value in row.items() if name != "type"]) == []


def test_the_table_of_categories_is_that_of_the_file(page: Page, report: Path):
    rows = pq.read_table(report.parent / "certainty_by_category.parquet").to_pylist()
    shown = cells(page, "categories")
    assert len(shown) == len(rows) == 2
    for row, (category, *numbers) in zip(rows, shown, strict=True):
        assert category == row["category"]
        found = NUMBER.findall(" ".join(numbers))
        names = ("temperature", "questions", "entropy", "entropy_low", "entropy_high")
        names += ("error_rate", "error_rate_low", "error_rate_high")
        assert len(found) == len(names)
        assert all(equals(each, row[name]) for each, name in zip(found, names, strict=True))


@pytest.fixture(scope="module")
def comparison(browser: Browser, folders: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compared]:
    folder = tmp_path_factory.mktemp("comparison")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("robust_eval.report.comparison_gallery.save_comparison_figures", lambda compared, folder: [])
        write_comparison(compare([read_run(each) for each in folders]), folder)
    page = Opened(browser, folder / "comparison.html").page
    page.evaluate("document.querySelectorAll('details').forEach((each) => each.open = true)")
    yield Compared(folder, page)
    page.close()


def test_scores_by_data_set_and_counts_of_tokens_are_those_of_the_summaries(comparison: Compared, folders: list[Path]):
    summaries = {folder.parent.name: json.loads((folder / "summary.json").read_text()) for folder in folders}
    scores = cells(comparison.page, "Factual Robustness Score by data set")
    assert [row[:2] for row in scores] == [[name, d] for name in summaries for d in ("1", "5")]
    for name, d, mean, unbroken in scores:
        for shown, figure in ((mean, f"frs.d{d}"), (unbroken, "frs.unbroken_share")):
            own = [summaries[name][f"{figure}{end}"] for end in ("", ".low", ".high", ".n")]
            found = NUMBER.findall(shown)
            assert len(found) == len(own), shown
            assert all(equals(each, value) for each, value in zip(found, own, strict=True)), shown
    tokens = cells(comparison.page, "Tokens and missing answers")
    assert {row[0] for row in tokens} == set(summaries)
    for name, *counts in tokens:
        assert counts
        assert unfounded(" ".join(counts), summaries[name].values()) == []


def test_scenarios_are_the_means_of_their_questions(comparison: Compared, folders: list[Path]):
    shown = cells(comparison.page, "By scenario")
    header = comparison.page.locator("[role=region][aria-label='By scenario'] thead th").all_inner_texts()
    column = header.index("answer entropy (nats) at t = 0.7")
    checked = 0
    for folder in folders:
        questions = pq.read_table(folder / "questions.parquet").to_pylist()
        for scenario in ("extractive", "abstractive"):
            (row,) = [row for row in shown if row[:2] == [folder.parent.name, scenario]]
            values = [each["certainty.entropy.t0.7"] for each in questions if each["scenario"] == scenario]
            known = [value for value in values if not math.isnan(value)]
            assert int(row[3]) == len(values)
            assert equals(NUMBER.findall(row[column])[0], math.fsum(known) / len(known))
            checked += 1
    assert checked == 4


def test_every_number_of_a_comparison_is_one_of_its_tables(comparison: Compared):
    page = comparison.page
    runs, pairs, questions = (
        pq.read_table(comparison.folder / f"{name}.parquet").to_pylist() for name in ("runs", "pairs", "questions")
    )

    def numbers(rows: list[dict[str, Any]]) -> set[float]:
        return {value for row in rows for value in row.values() if isinstance(value, int | float)}

    verdict = page.locator(".headline p").first.inner_text().replace("95 %", "")
    assert len(NUMBER.findall(verdict)) >= 6
    said = re.sub(r"t = [\d.]+|d = \d|differ by [\d.]+", "", verdict)
    assert unfounded(re.sub(r"About \d+", "", said), numbers(pairs)) == []
    for label, asked, kept, *figures in cells(page, "Runs"):
        own = [row for row in runs if row["run"] == label]
        assert unfounded(" ".join([asked, kept, *figures]), numbers(own)) == [], label
    ((_, _, _, kept, both, *shown),) = cells(page, "Pairs")
    assert unfounded(" ".join(shown), numbers(pairs)) == []
    assert unfounded(f"{kept} {both}", numbers(runs) | numbers(pairs)) == []
    by_text: dict[str, list[dict[str, Any]]] = {}
    for row in questions:
        by_text.setdefault(" ".join(row["question"].split()), []).append(row)
    checked = 0
    for region in page.locator("[role=region][aria-label^='Questions with the largest differences']").all():
        for line in region.locator("tbody tr").all():
            text, *found = line.locator("> *").all_inner_texts()
            own = by_text[" ".join(text.replace("side by side", "").split())]
            found = [re.sub(r"“[^”]*”", "", cell) for cell in found]
            assert unfounded(" ".join(found), numbers(own)) == [], text
            checked += 1
    assert checked >= 25
