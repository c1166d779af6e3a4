import io
import os
import signal
import sys
import threading
import time

import pytest
from unseen import HOSTILE, unseen

from robust_eval.error import UserError
from robust_eval.runtime.console import Console
from robust_eval.runtime.process import command


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
        threading.Event().wait(60)

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in whose background this runs ignores it
    hook = sys.unraisablehook
    start = time.monotonic()
    with pytest.raises(SystemExit) as end:
        wait()
    assert time.monotonic() - start < 60  # it does not wait until the main thread has something to do
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
