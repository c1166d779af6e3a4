"""Curves of a model behind a server, by a run that is killed again and again: what is stored is not asked again."""

import os
import re
import signal
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from open_store import stored_values, wait_until
from scripted_server import Body, scripted_server
from shell import PROJECT, Shell
from table_server import TableServer
from toy_language import Table
from toy_served import CAN, request, stored, stored_model

from robust_eval.store.sqlite import SqliteStore

KILLS, QUESTIONS = 2, 4
FIRST = 10
"""The number of the first question: texts then have the order of numbers, in which they are asked."""
ASK = """
import sys
sys.path.insert(0, sys.argv[1])
from toy_served import CAN, request, stored
from robust_eval.model.served import served_model
from robust_eval.store.sqlite import SqliteStore
served_model.get_or_measure = lambda *_: CAN.to_text()
with SqliteStore(sys.argv[2]).open() as entries:
    stored(entries, sys.argv[3], [request(number, nodes=20) for number in range(*map(int, sys.argv[4:]))])
"""


@dataclass
class KillingServer(TableServer):
    """Kills the process that asks in the middle of its second question, once the first is in the ``store``."""

    store: Path = Path()
    stored: int = 0
    victim: int = 0
    asked: list[int] = field(default_factory=list)
    begun: threading.Event = field(default_factory=threading.Event)
    one: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, body: Body) -> tuple[int, Mapping[str, str], Any]:
        with self.one:
            self.asked += map(int, re.findall(r"Question: (\d+)\?", str(body.get("prompt", body.get("content")))))
            if self.asked.count(self.asked[-1]) != 3 or len({*self.asked}) != 2:
                return super().__call__(body)
            assert self.begun.wait(60)
            wait_until(self.entries, self.stored + 1)
            os.kill(self.victim, signal.SIGKILL)
            return 503, {}, {"error": {"message": "too late"}}

    def entries(self) -> int:
        """For each question its answers and, written at once, its curve."""
        return len(stored_values(self.store))

    def lives_again(self) -> None:
        self.stored, self.asked = self.entries(), []
        self.begun.clear()

    def meet(self, process: int) -> None:
        self.victim = process
        self.begun.set()


def test_curves_of_a_run_that_is_killed_again_and_again_are_those_of_one_that_is_not(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("robust_eval.model.served.served_model.get_or_measure", lambda *_: CAN.to_text())
    requests = [request(number, nodes=20) for number in range(FIRST, FIRST + QUESTIONS)]
    with scripted_server(TableServer(Table(3), ids=False)) as script:
        with SqliteStore(str(tmp_path / "undisturbed")).open() as entries:
            undisturbed = stored(entries, script.url, requests)
        script.answer = server = KillingServer(Table(3), ids=False, store=tmp_path / "store")
        left = []
        for _ in range(KILLS):
            with SqliteStore(str(tmp_path / "store")).open() as entries:
                missing = stored_model(entries, script.url).missing(requests)
            left.append(len(missing))
            server.lives_again()
            words = [str(tmp_path / "store"), script.url, str(FIRST), str(FIRST + QUESTIONS)]
            ended = shell.python(["-c", ASK, str(PROJECT / "tests" / "support"), *words], tmp_path, server.meet)
            assert ended.returncode == -signal.SIGKILL, ended.stderr
            assert {*server.asked} <= {int(each.question_id[1:]) for each in missing}
        assert left == list(range(QUESTIONS, QUESTIONS - KILLS, -1))
        script.answer = TableServer(Table(3), ids=False)
        with SqliteStore(str(tmp_path / "store")).open() as entries:
            found = stored(entries, script.url, requests)
            before = len(script.bodies)
            again = stored(entries, script.url, requests)
            assert len(script.bodies) == before
    assert found.exact_curves.equals(undisturbed.exact_curves)
    assert again.table.equals(found.table)
    assert found.table.equals(undisturbed.table)
