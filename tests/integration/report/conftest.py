"""A browser, and the page of a module's ``report`` in it, which must cause no trouble."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Opened, chromium
from playwright.sync_api import Browser, Page


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
