"""Pages of the documentation site, opened in a browser."""

import subprocess
import sys
from pathlib import Path

import pytest
from browser import NARROW, WIDE, Opened, chromium

from robust_eval.config.groups import PROJECT

PAGES = {"README": "light", "figures": "light", "quickstart": "dark", "python": "dark"}
"""Pages, each with its colours: the light ones on a wide screen, the dark ones on a phone."""


@pytest.mark.slow
def test_pages_are_accessible_and_fit_a_phone(tmp_path: Path):
    chosen = ["-D", f"include_patterns={','.join(f'{name}.md' for name in PAGES)}"]
    build = [sys.executable, "-m", "sphinx", "-Q", "-b", "html", *chosen, str(PROJECT / "docs"), str(tmp_path)]
    subprocess.run(build, check=True)
    with chromium() as browser:
        for name, scheme in PAGES.items():
            width = WIDE if scheme == "light" else NARROW
            opened = Opened(browser, tmp_path / f"{name}.html", width, scheme)
            assert opened.page.evaluate("document.documentElement.scrollWidth") == width
            assert opened.violations() == []
            opened.page.close()
