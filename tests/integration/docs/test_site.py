"""Pages of the documentation site, opened in a browser."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from browser import NARROW, WIDE, Opened, chromium

from robust_eval.config.groups import PROJECT

PAGES = {"README": "light", "figures": "light", "quickstart": "dark", "python": "dark", "methods": "dark"}
"""Pages, each with its colours: the light ones on a wide screen, the dark ones on a phone."""

FORMULA = re.compile(r"\$(\$?)[^$]+\$\1")


def markdown(name: str) -> str:
    """The text of a page without its code, in which a dollar sign begins no formula."""
    text = (PROJECT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    return re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)


@pytest.mark.slow
def test_pages_are_accessible_fit_a_phone_and_draw_formulas_without_a_network(tmp_path: Path):
    chosen = ["-D", f"include_patterns={','.join(f'{name}.md' for name in PAGES)}"]
    build = [sys.executable, "-m", "sphinx", "-Q", "-b", "html", *chosen, str(PROJECT / "docs"), str(tmp_path)]
    subprocess.run(build, check=True)
    with chromium() as browser:
        for name, scheme in PAGES.items():
            width = WIDE if scheme == "light" else NARROW
            opened = Opened(browser, tmp_path / f"{name}.html", width, scheme)
            assert opened.page.evaluate("document.documentElement.scrollWidth") == width
            assert opened.violations() == []
            assert [each for each in opened.troubles if each.startswith("network")] == []
            assert opened.page.locator("math").count() == len(FORMULA.findall(markdown(name)))
            opened.page.close()
        assert Opened(browser, tmp_path / "search.html", NARROW, "dark").violations() == []
