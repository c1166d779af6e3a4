"""The page that compares runs, and that of a verdict, opened in a browser."""

from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from browser import NARROW, WIDE, Opened
from comparison_by_hand import SMALL, measured
from contrast import hardly_seen
from experiments import without_figures
from gated import gated_run
from playwright.sync_api import Browser
from recorded_run import recorded_run

from robust_eval.gate.changed_facts import single_facts
from robust_eval.gate.decision import GateSettings, decide, differences
from robust_eval.gate.measured_run import refuse_incomparable
from robust_eval.gate.verdict_files import Report, write_verdict
from robust_eval.report.comparison_page import write_comparison
from robust_eval.runs.comparison import compare
from robust_eval.runs.finished_runs import read_run

HOSTILE = "</script><script>window.hacked = true</script> \u202e" + "a\u0301\u0336" * 3000
VERDICT_TEXT = f" <script>alert(1)</script> {'x' * 200} אבג"


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of two runs whose facts hold in opposite order, with texts that would do harm."""
    folder = tmp_path_factory.mktemp("compared")
    for name, reverse in (("one", False), ("other", True)):
        with without_figures():
            data = f"dataset.path={folder / 'one' / 'questions.jsonl'}"
            recorded_run(
                folder / name, 40, f"model.name={name}", data, text=[HOSTILE], wrong=[HOSTILE], reverse=reverse
            )
    write_comparison(compare([read_run(folder / name / "run") for name in ("one", "other")]), folder / "comparison")
    return folder / "comparison" / "comparison.html"


def test_a_question_is_shown_in_the_reports_of_both_runs_side_by_side(browser: Browser, comparison: Path):
    opened = Opened(browser, comparison)
    page = opened.page
    row = page.locator("tbody tr", has=page.get_by_role("button", name="side by side")).first
    addresses = [link.get_attribute("href") or "" for link in row.locator("a[data-run]").all()]
    asked = parse_qs(urlsplit(addresses[0]).fragment)["q"][0]
    row.get_by_role("button", name="side by side").click()
    dialog = page.get_by_role("dialog")
    frames = dialog.locator("iframe")
    assert frames.count() == len(addresses) == 2
    for place, address in enumerate(addresses):
        inside = frames.nth(place).content_frame
        inside.locator(".detail").wait_for()
        assert inside.locator(".detail dd").first.inner_text() == asked
        assert not inside.locator("h1").is_visible()  # the question stands alone
        assert (frames.nth(place).get_attribute("src") or "").endswith(f"{address.removeprefix('..')}&alone=1")
    dialog.get_by_role("button", name="close").click()
    assert not dialog.is_visible()
    assert page.locator("iframe").count() == 0
    assert page.evaluate("window.hacked") is None
    row.locator("a[data-run]").first.click()
    page.locator(".detail").first.wait_for()
    assert page.locator(".detail dd").first.inner_text() == asked
    assert opened.troubles == []
    page.close()


@pytest.mark.parametrize(("width", "scheme"), [(WIDE, "light"), (NARROW, "dark")])
def test_the_comparison_opens_without_trouble_fits_the_screen_and_is_accessible(
    browser: Browser, comparison: Path, width: int, scheme: str
):
    opened = Opened(browser, comparison, width, scheme)
    page = opened.page
    page.evaluate("document.querySelectorAll('details').forEach((each) => each.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert opened.violations() == []
    assert hardly_seen(page) == []
    assert opened.troubles == []
    assert page.evaluate("window.hacked") is None
    cells = page.locator("div.text")
    assert cells.count() > 20
    assert cells.evaluate_all("(cells) => Math.max(...cells.map((each) => each.offsetHeight))") < 250
    page.close()


def test_a_comparison_of_twelve_runs_fits_the_screen_is_accessible_and_draws_the_runs_of_its_table(
    browser: Browser, tmp_path: Path
):
    runs = [measured(SMALL, model__name=f"model {number}") for number in range(12)]
    write_comparison(compare(runs), tmp_path / "all")
    opened = Opened(browser, tmp_path / "all" / "comparison.html", NARROW)
    assert opened.page.evaluate("document.documentElement.scrollWidth") == NARROW
    assert opened.violations() == []
    assert hardly_seen(opened.page) == []
    table = opened.page.get_by_role("region", name="12 runs").locator("tbody th").all_inner_texts()
    drawn = opened.page.locator(".opening svg text").all_text_contents()
    assert len(table) == 6
    assert [text.strip().partition(" (")[0] for text in drawn if text.strip().startswith("model")] == table
    opened.page.close()


def test_the_page_opens_with_the_verdict_and_fits_a_phone(browser: Browser, tmp_path: Path):
    settings = GateSettings()
    one = gated_run(tmp_path / "one", 200, text=VERDICT_TEXT)
    other = gated_run(
        tmp_path / "other", 200, known=lambda number: number >= 30, frs=lambda number: 0.75, text=VERDICT_TEXT
    )
    shared = refuse_incomparable(one, other)
    decision = decide(one, other, differences(one, other, shared, settings), settings)
    report = Report(decision, "one", "other", ("m", "m"), 0.95, len(shared), single_facts(one, other, shared))
    write_verdict(report, tmp_path / "out", False)
    looks: list[tuple[int, Any]] = [(WIDE, "light"), (NARROW, "dark")]
    for width, scheme in looks:
        opened = Opened(browser, tmp_path / "out" / "verdict.html", width, scheme)
        heading = opened.page.locator("h1")
        assert heading.inner_text().startswith("FAIL: the candidate is worse by more than the margin in knowledge")
        assert heading.bounding_box()["y"] < 100  # type: ignore[index]
        assert opened.page.get_by_role("heading", level=2).all_inner_texts() == [
            "Metrics",
            "Forgotten facts: 30",
        ]
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
        assert opened.violations() == []
        assert opened.troubles == []
        opened.page.close()
