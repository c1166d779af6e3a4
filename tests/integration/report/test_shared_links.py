"""Links that open a question, and what a report says first."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from browser import NARROW, Opened, listed
from experiments import without_figures
from playwright.sync_api import Browser
from recorded_run import recorded_run

from robust_eval.report.page import write_page
from robust_eval.runtime.text import number


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("linked") / "run"
    recorded_run(folder, 60)
    return folder / "run" / "report.html"


def opened_at(browser: Browser, report: Path, address: str, width: int = 1400) -> Opened:
    opened = Opened(browser, report, width)
    opened.page.goto("about:blank")
    opened.page.goto(f"{report.as_uri()}#{address}")
    opened.page.wait_for_selector("table.questions tbody tr", state="attached")
    return opened


def test_a_link_opens_its_question_with_filters_and_sort(browser: Browser, report: Path):
    opened = opened_at(browser, report, f"q=q33&type=HUM&sort={quote('-question')}")
    page = opened.page
    assert page.locator("button[aria-expanded=true] bdi").inner_text() == "What is fact 33?"
    shown = listed(page)
    assert {place % 4 for place in shown} == {1}
    assert page.locator("th[aria-sort=descending]").inner_text().strip() == "question"
    assert page.locator("#filter-type").input_value() == "HUM"
    assert opened.troubles == []
    page.close()


def test_kinds_of_questions_are_listed_alone_and_stand_in_the_address(browser: Browser, report: Path):
    """Every seventh question is answered wrong; the earlier a question, the sooner it breaks."""
    opened = opened_at(browser, report, "")
    page = opened.page
    facts = pq.read_table(report.parent / "frs.parquet").to_pylist()
    breaking = {int(fact["question_id"][1:]): fact["breaking_temperature"] for fact in facts}
    boxes = page.locator("label.kind").all_inner_texts()
    unbroken = [number for number, t in breaking.items() if math.isinf(t)]
    assert [" ".join(text.split()) for text in boxes][:3] == [
        f"kept {len(facts)}",
        f"unknown {60 - len(facts)}",
        f"firm {len(unbroken)}",
    ]
    page.get_by_role("checkbox", name="firm").check()
    assert sorted(listed(page)) == unbroken
    assert page.evaluate("location.hash") == "#only=firm"
    page.get_by_role("checkbox", name="firm").uncheck()
    page.get_by_role("checkbox", name="unknown").check()
    assert sorted(listed(page)) == list(range(0, 60, 7))
    page.get_by_role("checkbox", name="kept").check()
    assert listed(page) == []
    page.close()
    page = opened_at(browser, report, "broken=1.4&only=kept&sort=t_b").page
    assert page.locator("#filter-broken").input_value() == "1.4"
    assert page.get_by_role("checkbox", name="kept").is_checked()
    assert sorted(listed(page)) == [number for number, t in breaking.items() if t <= 1.4]
    page.close()


def test_cut_replies_and_disagreement_are_kinds_where_there_are_any(browser: Browser, tmp_path: Path):
    with without_figures():
        result = recorded_run(tmp_path / "run", 12, metrics="[frs,agreement,certainty]")
    sweep = result.graded["temperature_sweep"]
    ends = ["length" if name == "q5" else "stop" for name in sweep["question_id"].to_pylist()]
    place = sweep.schema.get_field_index("finish_reason")
    ended = sweep.set_column(place, sweep.schema.field(place), pa.array(ends))
    write_page(replace(result, graded={**result.graded, "temperature_sweep": ended}), [], tmp_path / "report.html")
    opened = opened_at(browser, tmp_path / "report.html", "only=cut", NARROW)
    page = opened.page
    assert listed(page) == [5]
    page.locator("table.questions button.question").click()
    said = page.locator(".detail .note").all_inner_texts()
    assert any(re.fullmatch(r"Ended by the length limit: \d+ right, \d+ wrong\.", line) for line in said)
    first = page.locator(".detail table.counts td.number:not(:empty)").first
    box = first.bounding_box() or {}
    assert first.evaluate("(cell) => getComputedStyle(cell, '::before').content") == '"t = 0.2: "'
    assert 0 <= box["x"] <= NARROW - box["width"]  # on the screen without scrolling
    page.get_by_text("the settings that it was asked with").click()
    assert page.locator(".detail dd").get_by_text("made-up").is_visible()
    page.get_by_text("the replies as they came").first.click()
    assert page.locator(".raw pre").first.inner_text() == "answer 5"
    page.get_by_role("checkbox", name="cut").uncheck()
    page.get_by_role("checkbox", name="disagreement").check()
    table = result.tables["agreement"].to_pylist()
    apart = {row["question_id"] for row in table if row["certainty"] < 1}
    apart |= {row["question_id"] for row in result.tables["certainty"].to_pylist() if row["entropy"] > 0}
    assert sorted(listed(page)) == sorted(int(name[1:]) for name in apart)
    assert opened.troubles == []
    page.close()


def test_what_is_opened_stands_in_the_address(browser: Browser, report: Path):
    opened = opened_at(browser, report, "")
    page = opened.page
    page.get_by_label("search").fill("q12")
    page.locator("table.questions button.question").first.click()
    assert page.evaluate("location.hash") == "#q=q12&search=q12"
    assert opened.troubles == []
    page.close()


def test_beside_another_run_a_question_stands_alone(browser: Browser, report: Path):
    opened = opened_at(browser, report, "q=q33&alone=1", NARROW)
    assert opened.page.locator(".detail").is_visible()
    assert not opened.page.locator("h1").is_visible()
    assert opened.page.locator("table.questions > tbody > tr:visible").count() == 1
    opened.page.close()


def test_the_first_screen_says_what_came_out_as_the_summary_has_it(browser: Browser, report: Path):
    summary = json.loads((report.parent / "summary.json").read_text())
    page = Opened(browser, report).page
    said = page.locator(".headline p").all_inner_texts()
    assert said[0].startswith(f"It answers {number(summary['accuracy.greedy'], '.0%')} (")
    assert summary["frs.breaking_temperature.median"] is None  # more than half are unbroken
    assert said[1] == "It still holds more than half of the 51 known facts at t = 2."
    assert len(said) == 3  # nothing of one kind of questions: all are held alike
    assert page.locator(".scale strong").inner_text() == number(summary["frs.d1"])
    assert page.locator(".scale dt").all_inner_texts()[0] == "0.143"  # H = 1, t_b = 0.2: f = −1 / 1.2
    page.close()
