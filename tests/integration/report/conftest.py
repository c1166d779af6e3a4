"""A run that several modules read, a browser, and the page of a module's ``report`` in it, which must cause no
trouble.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Opened, chromium
from experiments import without_figures
from playwright.sync_api import Browser, Page
from recorded_run import recorded_run

from robust_eval.tracking.result import Result


@pytest.fixture(scope="session")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A run of all three methods on 28 questions, of which each seventh is answered wrong."""
    with without_figures():
        return recorded_run(tmp_path_factory.mktemp("run") / "run", 28, metrics="[frs,agreement,certainty]")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def page(browser: Browser, report: Path) -> Iterator[Page]:
    found = Opened(browser, report)
    yield found.page
    assert found.troubles == []
    found.page.close()
