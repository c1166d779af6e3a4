"""docs/methods.md and the source point to each other: what one names, the other has."""

import re
from importlib import import_module

from robust_eval.config.groups import PROJECT

PAGE = (PROJECT / "docs" / "methods.md").read_text(encoding="utf-8")


def test_every_file_and_folder_named_on_the_page_exists():
    named = re.findall(r"`((?:robust_eval|benchmarks)/[^`\s]*)`", PAGE)
    assert named
    assert [path for path in named if not (PROJECT / path).exists()] == []


def test_every_function_is_in_the_file_that_the_page_names():
    rows = re.findall(r"^\| [^|]+ \| `(robust_eval/[^`]+)\.py` \| `(\w+)` \|$", PAGE, flags=re.MULTILINE)
    table = PAGE.split("## 8. Where in the code")[1]
    assert len(rows) == table.count("| `robust_eval/")
    for file, name in rows:
        module = import_module(file.replace("/", "."))
        assert getattr(module, name).__module__ == module.__name__, f"{file}.py has no {name}"


def test_every_section_named_in_the_source_is_on_the_page():
    sections = set(re.findall(r"^## (\d)\. ", PAGE, flags=re.MULTILINE))
    named = {
        section
        for path in (PROJECT / "robust_eval").rglob("*.py")
        for section in re.findall(r"docs/methods\.md, §(\d)", path.read_text(encoding="utf-8"))
    }
    assert named
    assert named <= sections
