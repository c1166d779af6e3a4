import subprocess
import sys

from support.command import without_paths
from support.result_tables import FIGURES, TABLES
from tables import MARKED, MARKED_FIGURE, PAGES, RESULTS

from robust_eval.config.groups import PROJECT


def test_what_the_documentation_says_is_what_the_files_of_runs_say():
    script = [sys.executable, str(PROJECT / "benchmarks" / "tables.py"), "--check"]
    done = subprocess.run(script, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_every_table_and_figure_stands_in_one_page_and_every_file_has_a_table():
    marked = [name for page in PAGES for name, _ in MARKED.findall(page.read_text(encoding="utf-8"))]
    assert sorted(marked) == sorted(TABLES)
    named = [name for page in PAGES for name, _ in MARKED_FIGURE.findall(page.read_text(encoding="utf-8"))]
    assert sorted(named) == sorted(FIGURES)
    assert {file.stem for file in RESULTS.glob("*.json")} <= {table.results for table in TABLES.values()}


def test_a_command_is_recorded_without_places_of_this_machine():
    assert without_paths("python benchmarks/sampling.py --json /tmp/x.json --peers /home/me/peers/bin/python") == (
        "python benchmarks/sampling.py --peers python"
    )
