"""Several processes that send the requests of a run: limits, budget and table are those of one."""

import os
import signal
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from scripted_server import Body, ScriptedServer, scripted_server
from support.stub_server import answer, stub_server

from robust_eval.engine.local import Local
from robust_eval.error import UserError
from robust_eval.model.base import Request
from robust_eval.model.served import served_model
from robust_eval.model.served.capabilities import Capabilities
from robust_eval.model.served.openai import OpenAI
from robust_eval.model.served.senders import _Process
from robust_eval.prompt.prompt import Prompt
from robust_eval.runtime.stopwatch import Stopwatch
from robust_eval.store.base import NoStore, Store
from robust_eval.store.sqlite import SqliteStore
from robust_eval.store.stored_model import StoredModel

CAN = Capabilities("max_tokens", True, True, {}, 2.0, 20, False, 1, True)


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_model, "remembered", lambda *_: CAN.to_text())


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    """A server that answers as the stub server does."""
    with scripted_server(good) as started:
        yield started


def good(body: Body) -> tuple[int, dict[str, str], Any]:
    return 200, {}, answer(body, chat=True)


def questions(number: int) -> list[Request]:
    return [Request(f"q{k}", 0, Prompt("", (), f"Name animal number {k}."), (0.5, 1.0), 2, 4, 0) for k in range(number)]


def model(url: str, **settings: Any) -> OpenAI:
    return OpenAI(**({"name": "m", "model": "m", "base_url": url, "key_variable": None, "at_once": 6} | settings))


def ask(
    config: OpenAI, processes: int, *stages: Sequence[Request], store: Store | None = None
) -> tuple[list[pa.Table], dict[str, Any]]:
    """The tables of some stages, and what the model says of itself."""
    engine = Local(processes=processes)
    with (store or NoStore()).open() as entries, engine.open():
        stored = StoredModel(config, engine, entries, Stopwatch())
        return [stored.answers(each, "test").table for each in stages], stored.description()


def senders() -> list[int]:
    """The processes of this one that send requests."""
    return [each.pid for each in psutil.Process().children() if "sending_process" in " ".join(each.cmdline())]


def prompts(bodies: Sequence[Body]) -> Counter[tuple[str, float, int]]:
    """How often each answer was asked for."""
    return Counter((body["messages"][-1]["content"], body["temperature"], body["seed"]) for body in bodies)


def test_tables_are_those_of_one_process_and_so_are_the_limits():
    stages = questions(12), questions(30)
    with stub_server(seconds=0.02, limit=100) as url:
        expected, _ = ask(model(url), 1, *stages)
        urllib.request.urlopen(urllib.request.Request(url.replace("/v1", "/stats"), method="DELETE"), timeout=10)
        tables, described = ask(model(url), 3, *stages)
        stats = urllib.request.urlopen(url.replace("/v1", "/stats"), timeout=10).read()
    assert tables == expected
    assert tables[1]["outcome"].to_pylist() == ["ok"] * 120
    assert b'"requests":168,"most_in_flight":6,"refused":0' in stats
    assert described["pace.most_in_flight"] == 6
    assert senders() == []


def test_the_budget_and_the_share_of_errors_are_those_of_one_run(server: ScriptedServer):
    prices = {"prompt_price": 1.0, "completion_price": 1.0, "budget": 200e-6}
    asked = []
    for processes in (1, 2):
        with pytest.raises(UserError, match=r"^the budget of 0\.0002 is spent"):
            ask(model(server.url, at_once=1, **prices), processes, questions(30))
        asked.append(len(server.received))
        server.received.clear()
    assert asked[0] == asked[1] > 3

    server.answer = lambda body: (400, {}, {"error": {"message": "no"}})
    with pytest.raises(UserError, match=r"an answer to 1\d of 1\d questions failed"):
        ask(model(server.url), 2, questions(60))
    assert len(server.received) < 100
    assert senders() == []


def test_what_a_process_was_given_that_dies_is_asked_again(server: ScriptedServer, tmp_path: Path):
    expected, _ = ask(model(server.url), 1, questions(30))
    server.received.clear()
    killed: list[int] = []
    lock = threading.Lock()

    def kill(body: Body) -> tuple[int, dict[str, str], Any]:
        """Both processes die, one after the other, while the server has their requests."""
        with lock:
            if len(server.received) > 20 * (len(killed) + 1) and len(killed) < 2:
                killed.append(min(set(senders()) - set(killed)))
                os.kill(killed[-1], signal.SIGKILL)
        return good(body)

    server.answer = kill
    store = SqliteStore(str(tmp_path / "store"))
    tables, described = ask(model(server.url), 2, questions(30), store=store)
    assert len(killed) == 2
    assert tables == expected
    assert 1 <= described["repeated_requests"] <= 12
    assert len(prompts(server.bodies)) == 120
    assert sum(prompts(server.bodies).values()) <= 120 + 12  # what the two had under way
    again, _ = ask(model(server.url), 2, questions(30), store=store)
    assert again == expected
    assert senders() == []


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Whoever starts the tests in the background of a shell has them ignore the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_a_run_that_is_interrupted_ends_its_processes_and_goes_on(server: ScriptedServer, tmp_path: Path):
    expected, _ = ask(model(server.url), 1, questions(30))
    server.received.clear()

    once = threading.Lock()

    def interrupt(body: Body) -> tuple[int, dict[str, str], Any]:
        if len(server.received) >= 40 and once.acquire(blocking=False):
            os.kill(os.getpid(), signal.SIGINT)
        return good(body)

    server.answer = interrupt
    store = SqliteStore(str(tmp_path / "store"))
    with pytest.raises(KeyboardInterrupt):
        ask(model(server.url), 2, questions(30), store=store)
    assert senders() == []
    before = len(server.received)
    assert 40 <= before < 120
    tables, _ = ask(model(server.url), 2, questions(30), store=store)
    assert tables == expected


def test_a_process_ends_when_nobody_has_the_other_end_of_its_socket():
    process = _Process(lambda: None, lambda _: None)
    process._end.close()  # as where this process is killed
    assert process._process.wait(timeout=60) == 0


def test_processes_that_do_not_begin_end_the_run(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(UserError, match=r"did not begin \(engine.processes=2\)"):
        ask(model(server.url), 2, questions(3))
    assert server.received == []


def test_a_request_that_takes_too_long_is_given_up_in_its_process(server: ScriptedServer):
    first = threading.Lock()

    def answer_late(body: Body) -> tuple[int, dict[str, str], Any]:
        if first.acquire(blocking=False):
            time.sleep(1.0)
        return good(body)

    server.answer = answer_late
    tables, described = ask(model(server.url, at_once=1, request_seconds=0.5), 2, questions(2))
    assert tables[0]["outcome"].to_pylist() == ["ok"] * 8
    assert described["repeated_requests"] == 1
