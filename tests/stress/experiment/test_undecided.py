"""A sweep that asks no more than breaking temperatures need, ended again and again: nothing is asked twice."""

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fading_server import UNDECIDED, FadingServer, answers, ask, scored, settings
from open_store import stored_values, wait_until
from scripted_server import Body, ScriptedServer, scripted_server
from shell import PROJECT, Shell

from robust_eval.answer import SCHEMA
from robust_eval.error import UserError
from robust_eval.model.reply_tables import from_bytes
from robust_eval.runtime import measured_choices

KILLS = 10


@dataclass
class KillingServer(FadingServer):
    """Kills the process that asks once so many requests of its life are answered, and the answers are stored."""

    stored_in: Path = Path()
    victim: int = 0
    begun: threading.Event = field(default_factory=threading.Event)
    killed: threading.Event = field(default_factory=threading.Event)
    one: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, body: Body) -> tuple[int, Mapping[str, str], Any]:
        with self.one:
            if self.ends_after is None or self.requests < self.ends_after:
                return super().__call__(body)
            if not self.killed.is_set():
                assert self.begun.wait(60)
                wait_until(partial(number_stored, self.stored_in), self.answered.total())
                os.kill(self.victim, signal.SIGKILL)
                self.killed.set()
        return 503, {}, {"error": {"message": "too late", "code": None}}

    def meet(self, process: int) -> None:
        self.victim = process
        self.begun.set()


def number_stored(mlruns: Path) -> int:
    """The answers in a store that another process has open."""
    values = stored_values(mlruns / "store")
    return sum(from_bytes(value, SCHEMA).num_rows for value in values if not value.startswith(b"{"))


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr(measured_choices, "cache_folder", lambda: folder)


@pytest.fixture
def served() -> Iterator[ScriptedServer]:
    with scripted_server(FadingServer()) as server:
        yield server


def test_a_run_whose_key_is_refused_again_and_again_asks_for_nothing_twice(served: ScriptedServer, tmp_path: Path):
    undisturbed = ask(served, tmp_path, UNDECIDED, store="undisturbed")
    served.answer = server = FadingServer()
    for part in range(8):
        server.requests, server.ends_after = 0, 24
        with pytest.raises(UserError, match="no such key"):
            ask(served, tmp_path, UNDECIDED)
        assert server.answered.total() == 24 * (part + 1)
    server.ends_after = None
    result = ask(served, tmp_path, UNDECIDED)
    assert answers(result) == answers(undisturbed)
    assert scored(result) == scored(undisturbed)
    assert set(server.answered.values()) == {1}


def test_a_run_that_is_killed_again_and_again_asks_for_nothing_twice_that_is_stored(
    served: ScriptedServer, shell: Shell, tmp_path: Path
):
    undisturbed = ask(served, tmp_path, UNDECIDED, store="undisturbed")
    served.answer = server = KillingServer(stored_in=tmp_path / "store")
    for part in range(KILLS):
        server.requests, server.ends_after = 0, 5 + part
        server.begun.clear()
        server.killed.clear()
        words = [str(PROJECT / "run.py"), *settings(served, tmp_path / "store"), UNDECIDED]
        words += ["model.at_once=1"]  # what a killed process has sent besides would be answered in its next life
        ended = shell.python(words, tmp_path, server.meet, figures=False, HOME=str(tmp_path))
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        assert number_stored(tmp_path / "store") == server.answered.total()
    server.ends_after = None
    result = ask(served, tmp_path, UNDECIDED)
    assert answers(result) == answers(undisturbed)
    assert scored(result) == scored(undisturbed)
    assert set(server.answered.values()) == {1}
