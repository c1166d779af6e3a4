"""Links that open a question, and what a report says first."""

import json
from pathlib import Path
from urllib.parse import quote

import pytest
from browser import NARROW, Opened, listed
from playwright.sync_api import Browser
from recorded_run import recorded_run

from robust_eval.runtime.rounding import number


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
    said = page.locator(".headline").inner_text()
    assert said.startswith(f"It knows {number(summary['accuracy.greedy'], '.0%')} (")
    assert summary["frs.breaking_temperature.median"] is None  # more than half are unbroken
    assert "; it still holds more than half of those facts at t = 2; it holds one kind most firmly, " in said
    assert page.locator(".scale strong").inner_text() == number(summary["frs.d1"])
    assert page.locator(".scale dt").all_inner_texts()[0] == "0.143"  # H = 1, t_b = 0.2: f = −1 / 1.2
    page.close()
