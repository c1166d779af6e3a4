import io
import logging
import os
import re
import signal
import sys
from importlib.machinery import ModuleSpec

import pytest
from rich.console import Console as RichConsole
from rich.progress import Progress
from rich.table import Table
from unseen import HOSTILE, unseen

from robust_eval.runtime import console as module
from robust_eval.runtime.console import Console, Formatter, columns, log_plainly, progress, shows_bars


def test_texts_cells_and_titles_of_others_do_nothing_but_be_seen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "2000")
    table = Table(title=f"title {HOSTILE}", caption=HOSTILE)
    table.add_column(f"column {HOSTILE}")
    table.add_row(f"cell {HOSTILE}")
    Console().print(f"[bold]text[/] :smile: {HOSTILE}")
    Console().print(table)
    out = capsys.readouterr().out
    assert unseen(out) == set()
    assert out.startswith("[bold]text[/] :smile: \\x00\\x01")
    assert out.count("\\x1b") == 5


def test_lines_of_ours_stay_lines(capsys: pytest.CaptureFixture[str]):
    Console().print("one\ntwo")
    assert capsys.readouterr().out == "one\ntwo\n"


def test_a_reader_who_has_gone_ends_it_quietly_as_sigpipe_would(monkeypatch: pytest.MonkeyPatch):
    reading, writing = os.pipe()
    os.close(reading)
    with io.TextIOWrapper(io.FileIO(writing, "w")) as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        with pytest.raises(SystemExit) as end:
            Console().print("nobody reads this")
        stream.write("nor this")
    assert end.value.code == 128 + signal.SIGPIPE


def record(message: str, *arguments: object, **more: object) -> logging.LogRecord:
    return logging.LogRecord("name", logging.WARNING, __file__, 1, message, arguments, **({"exc_info": None} | more))


def test_a_message_is_one_line_whatever_it_quotes():
    said = Formatter("%(levelname)s %(message)s").format(record("question %s failed", f"7\nINFO forged{HOSTILE}"))
    assert said.startswith(r"WARNING question 7\nINFO forged\x00\x01")
    assert "\n" not in said
    assert unseen(said) == set()


def test_no_line_of_a_traceback_looks_like_one_of_the_log():
    try:
        raise ValueError(f"first{HOSTILE}\nINFO forged")
    except ValueError as problem:
        failed = record("it failed", exc_info=(ValueError, problem, problem.__traceback__))
    failed.exc_text = "as another\nformatter left it"
    first, *others = Formatter("%(message)s").format(failed).split("\n")
    assert first == "it failed"
    assert others[0] == "  Traceback (most recent call last):"
    assert others[-1] == "  INFO forged"
    assert all(line.startswith("  ") for line in others)
    assert unseen("\n".join(others)) == set()
    assert failed.exc_text == "as another\nformatter left it"


def test_messages_go_to_standard_error_as_they_are(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(logging, "root", root := logging.RootLogger(logging.NOTSET))
    log_plainly()
    root.info("not this")
    root.warning("this\x1b")
    assert capsys.readouterr() == ("", "this\\x1b\n")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def shown(blocks: list[tuple[float, float]], total: float) -> list[str]:
    """Count, rate and time left at first, and after blocks of so many seconds and answers each."""
    clock = Clock()
    console = RichConsole(file=io.StringIO(), width=200)
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
    assert shows_bars(RichConsole(file=io.StringIO(), **settings)) == bars


def test_nothing_is_written_where_nobody_looks(capsys: pytest.CaptureFixture[str]):
    with progress("answers", total=2, unit="prompts") as advance:
        advance(1, "half")
        advance(1, "whole")
    assert capsys.readouterr() == ("", "")
