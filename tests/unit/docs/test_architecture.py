"""docs/development/architecture.md draws the imports of the package as they are."""

import re

import grimp

from robust_eval.config.groups import PROJECT

PAGE = PROJECT / "docs" / "development" / "architecture.md"
DRAWN = re.compile("(?<=<!--imports-->\n).*(?=<!---->)", re.S)


def imports() -> dict[str, set[str]]:
    """Packages that each package imports."""
    graph = grimp.build_graph("robust_eval", cache_dir=None)
    arrows: dict[str, set[str]] = {}
    for package in graph.find_children("robust_eval"):
        modules = {package} | graph.find_descendants(package)
        imported = {module for each in modules for module in graph.find_modules_directly_imported_by(each)}
        arrows[package] = {".".join(module.split(".")[:2]) for module in imported} - {package, "robust_eval"}
    return arrows


def reached(arrows: dict[str, set[str]], package: str) -> set[str]:
    return arrows[package].union(*(reached(arrows, each) for each in arrows[package]))


def drawing() -> str:
    arrows = imports()
    lines = [
        f"  {package.split('.')[1]} --> {below.split('.')[1]}"
        for package in sorted(arrows)
        for below in sorted(arrows[package])
        if not any(below in reached(arrows, other) for other in arrows[package] - {below})
    ]
    return "\n".join(["```mermaid", "flowchart TD", *lines, "```", ""])


def test_the_diagram_is_drawn_from_the_imports():
    (drawn,) = DRAWN.findall(PAGE.read_text(encoding="utf-8"))
    assert drawn == drawing()


def test_the_files_of_the_page_exist():
    files = re.findall(r"`(\w+/[\w/]+\.py)`", PAGE.read_text(encoding="utf-8"))
    assert "metric/frs_metric.py" in files
    assert [
        name for name in files if not ((PROJECT / "robust_eval" / name).is_file() or (PROJECT / name).is_file())
    ] == []


if __name__ == "__main__":
    PAGE.write_text(DRAWN.sub(lambda _: drawing(), PAGE.read_text(encoding="utf-8")), encoding="utf-8")
