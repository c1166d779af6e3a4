"""The page that compares runs, opened in a browser."""

from pathlib import Path

import pytest
from browser import NARROW, WIDE, Opened
from contrast import hardly_seen
from experiments import without_figures
from playwright.sync_api import Browser
from recorded_run import recorded_run

from robust_eval.report.comparison import compare
from robust_eval.report.comparison_page import write_comparison
from robust_eval.report.finished_runs import read_run

HOSTILE = "</script><script>window.hacked = true</script> \u202e" + "a\u0301\u0336" * 3000


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of two runs whose facts hold in opposite order, with texts that would do harm."""
    folder = tmp_path_factory.mktemp("compared")
    for name, reverse in (("one", False), ("other", True)):
        with without_figures():
            recorded_run(folder / name, 40, f"model.name={name}", text=[HOSTILE], wrong=[HOSTILE], reverse=reverse)
    write_comparison(compare([read_run(folder / name / "run") for name in ("one", "other")]), folder / "comparison")
    return folder / "comparison" / "comparison.html"


@pytest.mark.parametrize(("width", "scheme"), [(WIDE, "light"), (NARROW, "dark")])
def test_the_comparison_opens_without_trouble_fits_the_screen_and_is_accessible(
    browser: Browser, comparison: Path, width: int, scheme: str
):
    opened = Opened(browser, comparison, width, scheme)
    page = opened.page
    page.evaluate("document.querySelectorAll('details').forEach((each) => each.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert opened.violations() == []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert hardly_seen(page) == [], scheme
    assert opened.troubles == []
    assert page.evaluate("window.hacked") is None
    cells = page.locator("div.text")
    assert cells.count() > 20
    assert cells.evaluate_all("(cells) => Math.max(...cells.map((each) => each.offsetHeight))") < 250
    page.close()
