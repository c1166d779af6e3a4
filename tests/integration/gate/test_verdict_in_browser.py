"""The page of a verdict as a person sees it: on a screen and on a phone, with text that means harm."""

from pathlib import Path
from typing import Any

from browser import NARROW, WIDE, Opened, chromium
from gated import gated_run

from robust_eval.gate.decision import GateSettings, decide, differences
from robust_eval.gate.measured_run import refuse_incomparable
from robust_eval.gate.single_facts import single_facts
from robust_eval.gate.verdict_files import Report, write_verdict

TEXT = f" <script>alert(1)</script> {'x' * 200} אבג"


def test_the_page_opens_with_the_verdict_and_fits_a_phone(tmp_path: Path):
    settings = GateSettings()
    one = gated_run(tmp_path / "one", 200, text=TEXT)
    other = gated_run(tmp_path / "other", 200, known=lambda number: number >= 30, frs=lambda number: 0.75, text=TEXT)
    shared = refuse_incomparable(one, other)
    decision = decide(one, other, differences(one, other, shared, settings), settings)
    report = Report(decision, "one", "other", ("m", "m"), 0.95, len(shared), single_facts(one, other, shared))
    write_verdict(report, tmp_path / "out", False)
    looks: list[tuple[int, Any]] = [(WIDE, "light"), (NARROW, "dark")]
    with chromium() as browser:
        for width, scheme in looks:
            opened = Opened(browser, tmp_path / "out" / "verdict.html", width, scheme)
            heading = opened.page.locator("h1")
            assert heading.inner_text().startswith("FAIL: the candidate is worse by more than the margin in knowledge")
            assert heading.bounding_box()["y"] < 100  # type: ignore[index]
            assert opened.page.get_by_role("heading", level=2).all_inner_texts() == [
                "Figures",
                "Facts that were forgotten: 30",
            ]
            assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
            assert opened.violations() == []
            assert opened.troubles == []
