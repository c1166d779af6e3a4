"""README and the pages in docs/, their blocks and their commands."""

import re
from collections.abc import Iterator

from robust_eval.config.groups import PROJECT

DOCS = PROJECT / "docs"
FRONT = "../README.md"
NAMES = [FRONT, *sorted(file.relative_to(DOCS).as_posix() for file in DOCS.rglob("*.md"))]
PAGES = {name: (DOCS / name).read_text(encoding="utf-8") for name in NAMES}
TESTED_ELSEWHERE = ("data_sets.md", "harnesses.md", "inside_harnesses.md", "scaling.md")
"""Their blocks are those of tests/unit/docs/test_data_set_page.py, tests/integration/interop/test_imported.py,
tests/integration/interop/test_inspect_page.py, tests/integration/interop/test_lm_eval_tasks.py and
tests/integration/docs/test_scaling_page.py."""
LAYOUTS = {
    "python": r"# (\S+\.py)(, continued)?$",
    "yaml": r"(?:# @package \S+\n)?# (\S+\.ya?ml)$",
    "toml": r"# (\S+\.toml)$",
}
"""The line of a block that says which file it is, or which it goes on with."""


def fences(page: str) -> Iterator[tuple[str, str]]:
    """The language and the text of every block."""
    yield from re.findall(r"^```(\w*)\n(.*?)^```$", PAGES[page], flags=re.MULTILINE | re.DOTALL)


def commands(page: str) -> list[str]:
    return [line for kind, text in fences(page) if kind == "sh" for line in text.splitlines()]
