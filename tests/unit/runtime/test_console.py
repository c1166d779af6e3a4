import io
import logging
import os
import re
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import ModuleSpec
from queue import Queue
from typing import Any

import pytest
from json_lines import cases
from rich.cells import cell_len
from rich.console import Console as RichConsole
from rich.progress import Progress
from rich.table import Table
from unseen import HOSTILE, unseen

from robust_eval.runtime import console as module
from robust_eval.runtime.console import (
    Console,
    Formatter,
    StageProgress,
    columns,
    configure_logging,
    heartbeat,
    progress,
    shows_bars,
)


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


@pytest.mark.parametrize("at_terminal", [True, False])
def test_a_sentence_is_broken_at_a_terminal_alone_and_only_between_words(at_terminal: bool):
    console = Console()
    console.file, console.width, console._force_terminal = io.StringIO(), 20, at_terminal
    console.print_sentence("a sentence of a few words, and /a/path/that/is/not/broken")
    shown = console.file.getvalue()
    breaks = shown.count("\n")
    assert breaks == (3 if at_terminal else 1)
    assert " ".join(shown.split()) == "a sentence of a few words, and /a/path/that/is/not/broken"


def test_a_sentence_is_measured_in_cells_and_as_it_is_printed():
    for text in ("模型 的 回答 没有 包含 任何 可以 评分 的 内容", "a\x1b b\x1b c\x1b d\x1b e\x1b f\x1b"):
        console = Console()
        console.file, console.width, console._force_terminal = io.StringIO(), 20, True
        console.print_sentence(text)
        lines = console.file.getvalue().splitlines()
        assert 10 < max(map(cell_len, lines)) <= 20
        assert " ".join(lines) == text.replace("\x1b", "\\x1b")


@pytest.mark.parametrize("force", [True, False])
def test_a_window_without_width_hides_nothing(force: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "0")
    console = Console()
    console.file, console._force_terminal = io.StringIO(), force
    console.print_sentence("a sentence")
    assert console.file.getvalue() == "a sentence\n"


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


def test_an_indented_message_begins_at_the_margin():
    assert Formatter("[HYDRA] %(message)s").format(record("\t#0 : seed=0\tdone")) == "[HYDRA] #0 : seed=0 done"


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
    configure_logging()
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
    measured = StageProgress("answers", total, "prompts", clock)
    console = RichConsole(file=io.StringIO(), width=200)
    bar = Progress(*columns(measured), console=console, get_time=clock, disable=True)
    task = bar.add_task("answers", total=total, status="")
    seen = []
    for seconds, answers in [(0.0, 0.0), *blocks]:
        clock.now += seconds
        measured.advance(answers)
        bar.update(task, advance=answers)
        with console.capture() as text:
            console.print(bar.get_renderable())
        seen.append(" ".join(re.sub("answers|[━╸╺]", "", text.get()).split()))
    return seen


@pytest.mark.parametrize(("blocks", "total", "expected"), cases(__file__, "rate_and_time_left_are_shown"))
def test_rate_and_time_left_are_shown(blocks: list[tuple[float, float]], total: float, expected: list[str]):
    assert shown(blocks, total) == expected


def terminal() -> io.StringIO:
    file = io.StringIO()
    file.isatty = lambda: True
    return file


@pytest.mark.parametrize(
    ("settings", "widgets", "bars"),
    [
        ({"file": terminal()}, False, True),
        ({"file": terminal(), "_environ": {"TERM": "dumb"}}, True, False),
        ({"force_terminal": True}, True, False),
        ({"force_jupyter": True}, True, True),
        ({"force_jupyter": True}, False, False),
    ],
    ids=[
        "terminal",
        "terminal that moves no cursor",
        "file with FORCE_COLOR",
        "notebook",
        "notebook without ipywidgets",
    ],
)
def test_bars_are_drawn_where_they_can_be(
    settings: dict[str, Any], widgets: bool, bars: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "find_spec", lambda name: ModuleSpec(name, None) if widgets else None)
    assert shows_bars(RichConsole(**({"file": io.StringIO()} | settings))) == bars


class Minutes:
    """Event for which a heartbeat waits; a test says when a minute has passed."""

    def __init__(self) -> None:
        self.clock = Clock()
        self._passed: Queue[bool] = Queue()
        self._waits: Queue[float] = Queue()

    def wait(self, seconds: float) -> bool:
        self._waits.put(seconds)
        return self._passed.get()

    def set(self) -> None:
        self._passed.put(True)

    def pass_one(self) -> None:
        """Let a minute pass, and return when the heartbeat waits for the next."""
        self.clock.now += self._waits.get(timeout=60)
        self._passed.put(False)
        self._waits.put(self._waits.get(timeout=60))


@pytest.fixture
def minutes(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Minutes:
    caplog.set_level(logging.INFO, module.__name__)
    minutes = Minutes()
    monkeypatch.setattr(module, "Event", lambda: minutes)
    return minutes


def test_without_a_terminal_a_line_a_minute_says_what_is_done_and_left(
    minutes: Minutes, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
):
    with progress("sampled answers", total=203, unit="prompts", clock=minutes.clock) as advance:
        minutes.pass_one()
        advance(84, "64 requests in flight")
        minutes.pass_one()
        minutes.pass_one()
    assert caplog.messages == [
        "sampled answers: 0 of 203 (0 %), 1 min so far",
        "sampled answers: 84 of 203 (41 %), about 25 s left, 64 requests in flight",
        "sampled answers: 84 of 203 (41 %), 3 min so far, 64 requests in flight",
    ]
    assert capsys.readouterr() == ("", "")


def test_the_line_is_on_the_innermost_stage(minutes: Minutes, caplog: pytest.LogCaptureFixture):
    with heartbeat(lambda: "the run"):
        minutes.pass_one()
        with heartbeat(lambda: "scoring: 90 % done"):
            minutes.pass_one()
        minutes.pass_one()
    assert caplog.messages == ["the run", "scoring: 90 % done", "the run"]


def test_each_of_two_calls_at_once_logs_its_own_lines(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, module.__name__)
    first, second = Minutes(), Minutes()
    events = iter([first, second])
    monkeypatch.setattr(module, "Event", lambda: next(events))

    def call() -> None:
        with heartbeat(lambda: "second"):
            second.pass_one()
            first.pass_one()

    with heartbeat(lambda: "first"), ThreadPoolExecutor() as threads:
        threads.submit(call).result()
    assert caplog.messages == ["second", "first"]


def test_a_bar_needs_no_lines(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "shows_bars", lambda console: True)
    monkeypatch.setattr(module, "Thread", None)
    with heartbeat(lambda: "the run"):
        pass
