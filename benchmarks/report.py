"""Cost of the report: its size, the time to write it, and the time until it can be read in a browser.

    python benchmarks/report.py [--questions 1000 6000 100000] [--quick] [--json FILE]

Runs of made-up answers (tests/support/recorded_run.py) go through the whole program. Each page is opened in headless
Chromium three times; measured is the time from asking for the file until the first row of the table of questions
stands, until a question that is clicked is open with its drawing, until the last question asked is found by its id, and
until all questions, which a search lists, stand sorted by another column.
The texts of the questions are made of random words, so that they can hardly be compressed better than real ones.
"""

import random
import re
import sys
import tempfile
import time
from contextlib import redirect_stdout
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from browser import Opened, chromium
from recorded_run import recorded_run
from support.command import Command, write_figures

TIMES = 3
SORT = """(place) => {
  const started = performance.now();
  document.querySelectorAll("table.questions thead button")[place].click();
  document.body.getBoundingClientRect(); // laid out
  return (performance.now() - started) / 1000;
}"""


def measure(questions: int, folder: Path, times: int) -> dict[str, float]:
    """Size and times of one report."""
    with redirect_stdout(sys.stderr):  # the run's own figures are not the benchmark's
        result = recorded_run(folder, questions, text=_texts())
    page = folder / "run" / "report.html"
    found = {"megabytes": page.stat().st_size / 1e6, "seconds to write": result.watch.seconds["report"]}
    opened, clicked, searched, ordered = [], [], [], []
    with chromium() as browser:
        for _ in range(times):
            start = time.perf_counter()
            shown = Opened(browser, page)
            shown.page.wait_for_selector("table.questions tbody tr")
            opened.append(time.perf_counter() - start)
            start = time.perf_counter()
            shown.page.locator('table.questions tr:has(bdi:text-is("kept, right")) button.question').first.click()
            shown.page.wait_for_selector(".curve svg")
            clicked.append(time.perf_counter() - start)
            rows = re.findall(r"[\d,]+", shown.page.get_by_role("status").inner_text())[1]
            start = time.perf_counter()
            shown.page.get_by_label("search").fill(f"q{questions - 1}")
            shown.page.get_by_text(f"What is fact {questions - 1}?").first.wait_for()
            searched.append(time.perf_counter() - start)
            shown.page.get_by_label("search").fill("fact")
            ordered.append(max(shown.page.evaluate(SORT, place) for place in (0, 1, 4)))
            shown.page.close()
    return found | {
        "questions in the page": float(rows.replace(",", "")),
        "seconds to open": median(opened),
        "seconds to open, most": max(opened),
        "seconds to open a question": median(clicked),
        "seconds to find a question": median(searched),
        "seconds to sort all": median(ordered),
    }


def _texts() -> list[str]:
    """Different endings for questions: seven words each, of 3,000."""
    of = random.Random(0)
    words = ["".join(of.choices("etaoinshrdlucmfw", k=of.randint(2, 10))) for _ in range(3_000)]
    return [" ".join(of.choices(words, k=7)) for _ in range(50_000)]


def main() -> None:
    command = Command(__doc__)
    command.add_argument("--questions", type=int, nargs="+", default=[1_000, 6_000, 100_000])
    options = command.options(questions=[8])
    times = 1 if options.quick else TIMES
    with tempfile.TemporaryDirectory() as scratch:
        found = {number: measure(number, Path(scratch, str(number)), times) for number in options.questions}
    names = next(iter(found.values()))
    print(f"{'questions':32}" + "".join(f"{number:>12,}" for number in found))
    for name in names:
        print(f"{name:32}" + "".join(f"{each[name]:12,.2f}" for each in found.values()))
    figures = {f"{number} {name}": value for number, each in found.items() for name, value in each.items()}
    write_figures(options.json, figures)


if __name__ == "__main__":
    main()
