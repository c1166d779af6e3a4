import io
import os
import resource
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from filelock import FileLock
from unseen import HOSTILE, unseen

from robust_eval.error import UserError
from robust_eval.runtime.console import Console
from robust_eval.runtime.process import RESERVED_FILES, Stopwatch, allow_connections, command, process_lock


@pytest.fixture(autouse=True)
def heeding() -> object:
    """Signals mean afterwards what they meant before."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def ended(problem: BaseException) -> int:
    with pytest.raises(SystemExit) as end, command():
        raise problem
    assert isinstance(end.value.code, int)
    return end.value.code


def test_a_mistake_is_one_line_of_what_can_be_seen(capsys: pytest.CaptureFixture[str]):
    assert ended(UserError(f"no [bold]{HOSTILE}[/]\nerror: forged")) == 1
    out, said = capsys.readouterr()
    assert out == ""
    assert said.startswith(r"error: no [bold]\x00\x01")
    assert said.endswith("[/]\\nerror: forged\n")
    assert unseen(said) == set()


def test_anything_unforeseen_says_where_it_came_from_in_what_can_be_seen(capsys: pytest.CaptureFixture[str]):
    assert ended(RuntimeError(f"oh {HOSTILE}")) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: Traceback (most recent call last):\n")
    assert "RuntimeError: oh \\x00\\x01" in said
    assert unseen(said) == set()


def test_ctrl_c_and_termination_have_the_statuses_of_their_signals(capsys: pytest.CaptureFixture[str]):
    assert ended(KeyboardInterrupt()) == 130
    with pytest.raises(SystemExit) as end, command():
        os.kill(os.getpid(), signal.SIGTERM)
    assert end.value.code == 143
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_that_python_throws_away_comes_again(number: signal.Signals, status: int):
    class Ending:
        def __del__(self) -> None:
            signal.raise_signal(number)

    @command()
    def wait() -> None:
        Ending()
        threading.Event().wait(3600)  # it does not wait until the main thread has something to do

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in whose background this runs ignores it
    hook = sys.unraisablehook
    with pytest.raises(SystemExit) as end:
        wait()
    assert end.value.code == status
    assert sys.unraisablehook is hook


def test_a_terminal_that_knows_ascii_alone_is_told_which_characters_these_are(monkeypatch: pytest.MonkeyPatch):
    written = io.BytesIO()
    with io.TextIOWrapper(written, encoding="ascii") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        with command():
            Console().print("κ = 0.5")
        stream.flush()
        assert written.getvalue() == b"\\u03ba = 0.5\n"


def test_it_holds_within_itself_and_against_others(tmp_path: Path):
    other = FileLock(tmp_path / "lock", timeout=0)
    with process_lock(tmp_path / "lock"):
        with process_lock(tmp_path / "lock"):
            pass
        child = os.fork()
        if not child:
            try:
                process_lock(tmp_path / "lock").acquire(timeout=0)
            except TimeoutError:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    with other:
        pass


def test_a_stage_is_measured_without_the_stages_within_it(monkeypatch: pytest.MonkeyPatch):
    now = iter([0.0, 1.0, 4.0, 6.0, 7.0, 17.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(now))
    watch = Stopwatch()
    with watch.stage("outer"), watch.stage("inner"):
        pass
    with watch.stage("inner"):
        pass
    assert watch.seconds == {"inner": 13.0, "outer": 3.0}


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The limits of this process, which a test may change."""
    limits = [64, 64]
    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: limits.__setitem__(slice(None), wanted))
    monkeypatch.setattr(os, "listdir", lambda _: ["0"] * 10)
    return limits


@pytest.mark.parametrize(
    ("hard", "number", "fix"),
    [
        (64, 200, f"set model.max_concurrency={54 - RESERVED_FILES}, or a higher limit"),
        (30, 1, "set a higher limit"),  # not even one connection fits
    ],
)
def test_more_connections_than_files_are_refused_with_the_setting_and_the_limit(
    hard: int, number: int, fix: str, limits: list[int]
):
    limits[:] = [hard, hard]
    with pytest.raises(UserError) as refused:
        allow_connections(number, "model.max_concurrency")
    assert str(refused.value) == (
        f"model.max_concurrency={number} needs about {number + 10 + RESERVED_FILES} open files, but the hard limit is "
        f"{hard} (ulimit -Hn): {fix}"
    )
    assert limits == [hard, hard]


@pytest.mark.parametrize(
    ("before", "number", "soft"),
    [
        ((64, 64), 54 - RESERVED_FILES, 64),  # what the refusal names is enough
        ((64, 4096), 200, 210 + RESERVED_FILES),
        ((64, resource.RLIM_INFINITY), 200, 210 + RESERVED_FILES),
        ((1024, 1024), 200, 1024),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), 200, resource.RLIM_INFINITY),
    ],
)
def test_a_limit_that_is_too_low_is_raised(before: tuple[int, int], number: int, soft: int, limits: list[int]):
    limits[:] = before
    allow_connections(number, "model.max_concurrency")
    assert limits == [soft, before[1]]
