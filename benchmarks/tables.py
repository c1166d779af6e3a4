"""Write the tables of the documentation anew from the files of runs in benchmarks/results/.

    python benchmarks/tables.py [--check]

A run of a benchmark leaves its file with ``--json benchmarks/results/NAME.json``. In a page a table stands between the
lines ``<!-- table NAME -->`` and ``<!-- end of table -->``, with a line below it that says what it is of; a single
figure between ``<!--NAME-->`` and ``<!---->``. What no run has figures of stays as it is. With ``--check`` nothing is
written, and the status is 1 where a page is not what the files say.
"""

import argparse
import json
import re
import sys
from pathlib import Path

from support.result_tables import FIGURES, TABLES, Figures, cell

PROJECT = Path(__file__).parents[1]
RESULTS = PROJECT / "benchmarks" / "results"
DOCS = PROJECT / "docs"
MEASURED = [DOCS / "development" / name for name in ("benchmarks.md", "performance.md")]
PAGES = [PROJECT / "README.md", *sorted(DOCS.glob("*.md")), *MEASURED]
MARKED = re.compile(r"(?ms)^<!-- table (\w+) -->\n(.*?)^<!-- end of table -->$")
MARKED_FIGURE = re.compile(r"<!--(\w+)-->([^<]*)<!---->")
VERSIONS = ("torch", "transformers")
"""Packages whose version is said below a table."""


def written(page: str, results: Path) -> str:
    """A page with its tables and figures as the files in the folder ``results`` have them."""
    with_tables = MARKED.sub(lambda found: _table(found, results), page)
    return MARKED_FIGURE.sub(lambda found: _figure(found, results), with_tables)


def _table(found: re.Match[str], results: Path) -> str:
    name = found[1]
    if name not in TABLES:
        raise SystemExit(f"there is no table {name}; there are {', '.join(TABLES)}")
    table = TABLES[name]
    figures = _figures(results, table.results)
    measured = [] if figures is None else list(table.rows(figures))
    if figures is None or not measured:
        return found[0]
    columns = [column for column in range(len(table.header)) if any(row[column] for row in measured)]
    lines = [[line[column] for column in columns] for line in (table.header, ["---"] * len(table.header), *measured)]
    rows = "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |").replace("|  |", "| |") for line in lines)
    return f"<!-- table {name} -->\n{rows}\n\n{_origin(figures)}\n<!-- end of table -->"


def _figure(found: re.Match[str], results: Path) -> str:
    name = found[1]
    if name not in FIGURES:
        raise SystemExit(f"there is no figure {name}; there are {', '.join(FIGURES)}")
    file, key, form = FIGURES[name]
    figures = _figures(results, file)
    return found[0] if figures is None else f"<!--{name}-->{cell(figures, key, form)}<!---->"


def _figures(results: Path, name: str) -> Figures | None:
    """The figures of a run; None where its file is not there."""
    file = results / f"{name}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


def _origin(figures: Figures) -> str:
    """What a run is of: the command, the day, the machine, the versions, the commit."""
    asked = [f"{figures['questions']:.0f} questions"] if "questions" in figures else []
    day = str(figures["origin.time"]).partition(",")[0]
    machine = f"{figures['origin.processor']}, {figures['origin.cores']} cores"
    gpu, waiting = ([str(figures[name])] if figures.get(name) else [] for name in ("gpu", "origin.waiting threads"))
    versions = [f"{name} {figures[f'origin.version.{name}']}" for name in VERSIONS]
    commit, changes, _ = str(figures["origin.git.commit"]).partition("+changes")
    at = f"commit {commit[:7]}{' with changes' if changes else ''}"
    return f"`{figures['origin.command']}`, {', '.join([*asked, day, *gpu, machine, *waiting, *versions, at])}."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="say which pages are not what the files say")
    check, changed = parser.parse_args().check, []
    for page in PAGES:
        before = page.read_text(encoding="utf-8")
        after = written(before, RESULTS)
        if after != before:
            changed.append(page.relative_to(PROJECT))
            if not check:
                page.write_text(after, encoding="utf-8")
    for name in changed:
        print(f"{name} {'is not what benchmarks/results/ says' if check else 'written'}")
    sys.exit(1 if check and changed else 0)


if __name__ == "__main__":
    main()
