import io
import re
from importlib.machinery import ModuleSpec

import pytest
from rich.console import Console
from rich.progress import Progress

from robust_eval.runtime import console as module
from robust_eval.runtime.console import columns, progress, shows_bars


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def shown(blocks: list[tuple[float, float]], total: float) -> list[str]:
    """Count, rate and time left at first, and after blocks of so many seconds and answers each."""
    clock = Clock()
    console = Console(file=io.StringIO(), width=200)
    bar = Progress(*columns("prompts"), console=console, get_time=clock, disable=True)
    task = bar.add_task("answers", total=total, status="")
    seen = []
    for seconds, answers in [(0.0, 0.0), *blocks]:
        clock.now += seconds
        bar.update(task, advance=answers)
        with console.capture() as text:
            console.print(bar.get_renderable())
        seen.append(" ".join(re.sub("answers|[━╸╺]", "", text.get()).split()))
    return seen


def test_the_time_left_is_known_after_the_first_block():
    assert shown([(10, 20), (30, 20), (0, 60)], total=100) == [
        "0/100 -:--:--",
        "20/100 2.0 prompts/s 0:00:40",
        "40/100 1.0 prompts/s 0:01:00",
        "100/100 2.5 prompts/s 0:00:00",
    ]


def test_a_slow_step_has_a_rate_and_hours():
    assert shown([(1000, 1)], total=11)[-1] == "1/11 0.001 prompts/s 2:46:40"


def test_work_that_takes_no_time_has_no_rate_and_nothing_left():
    assert shown([(0, 5)], total=10)[-1] == "5/10 0:00:00"


@pytest.mark.parametrize(
    ("settings", "widgets", "bars"),
    [
        ({"force_terminal": True}, False, True),
        ({"force_terminal": False}, True, False),
        ({"force_jupyter": True}, True, True),
        ({"force_jupyter": True}, False, False),
    ],
    ids=["terminal", "file", "notebook", "notebook without ipywidgets"],
)
def test_bars_are_drawn_where_they_can_be(
    settings: dict[str, bool], widgets: bool, bars: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "find_spec", lambda name: ModuleSpec(name, None) if widgets else None)
    assert shows_bars(Console(file=io.StringIO(), **settings)) == bars


def test_nothing_is_written_where_nobody_looks(capsys: pytest.CaptureFixture[str]):
    with progress("answers", total=2, unit="prompts") as advance:
        advance(1, "half")
        advance(1, "whole")
    assert capsys.readouterr() == ("", "")
