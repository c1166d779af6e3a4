"""Pages as a person sees them: in a headless Chromium that reaches no network."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

WIDE, NARROW = 1400, 390


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser; the test is skipped where there is none (.ci/run installs Debian's)."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("there is no Chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])  # root in a container
        yield browser
        browser.close()


class Opened:
    """A page that is open, with everything that went wrong in it: errors, warnings, dialogs, calls to the network."""

    def __init__(self, browser: Browser, place: Path | str, width: int = WIDE, scheme: Any = "light") -> None:
        """Open a file, or an address, which the page may ask."""
        address = place if isinstance(place, str) else place.as_uri()
        self._own = ("file:", "data:", "blob:", *([place] if isinstance(place, str) else []))
        self.troubles: list[str] = []
        self.page: Page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page.set_default_timeout(60_000)
        self.page.on("console", lambda message: self._note(f"console {message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self._note(f"error: {error}"))
        self.page.on("dialog", lambda dialog: self._note(f"dialog: {dialog.message}"))
        self.page.on("request", self._requested)
        self.page.goto(address)

    def _note(self, trouble: str) -> None:
        self.troubles.append(trouble)

    def _requested(self, request: Any) -> None:
        if not request.url.startswith(self._own):
            self._note(f"network: {request.url}")

    def violations(self) -> list[str]:
        """What axe-core finds, with the elements concerned."""
        found = Axe().run(self.page).response["violations"]
        return [f"{rule['id']}: {[node['html'][:200] for node in rule['nodes']]}" for rule in found]


def listed(page: Page) -> list[int]:
    """The numbers of the questions in the table of a made-up run, in order."""
    texts = page.locator("table.questions button.question bdi").all_inner_texts()
    return [int(text.removeprefix("What is fact ").partition("?")[0]) for text in texts]


def column(page: Page, name: str) -> list[str]:
    """What the table says of each question in one column."""
    heads = page.locator("table.questions thead th").all_inner_texts()
    place = [head.strip() for head in heads].index(name) + 1
    return page.locator(f"table.questions > tbody > tr:not(.opened) > td:nth-child({place})").all_inner_texts()
