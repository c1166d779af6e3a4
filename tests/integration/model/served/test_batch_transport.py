"""A model that is sent files: each answer once, whatever the service does, and wherever the run is killed."""

import random
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from asking import ask
from batch_server import BatchServer, batch_server
from experiments import run_experiment
from failing_store import FailingStore

from robust_eval.answer import DEFAULT_TEMPERATURE, rows
from robust_eval.cli.dry_run import cancel_batches, dry_run
from robust_eval.config.overrides import checked_overrides
from robust_eval.config.schema import register
from robust_eval.engine.local import Local
from robust_eval.error import UserError
from robust_eval.model.base import Call, Request
from robust_eval.model.served import batch_transport, served_model
from robust_eval.model.served.batch_transport import BatchTransport
from robust_eval.model.served.openai import OpenAI
from robust_eval.model.served.probe import Capabilities
from robust_eval.model.served.transport import batches
from robust_eval.model.served.transport.batches import call_of, line_name
from robust_eval.prompt.prompt import Prompt
from robust_eval.runtime.process import Stopwatch
from robust_eval.store.base import NoStore
from robust_eval.store.sqlite import SqliteStore
from robust_eval.store.stored_model import StoredModel

CAN = Capabilities("max_tokens", True, True, {}, 2.0, 20, False, 2, True)
QUESTIONS = [f"q{k}" for k in range(10)]
WHAT = ("question_id", "rewrite", "temperature", "trial", "text", "outcome", "weight", "finish_reason")


class Killed(BaseException):
    """The process is no more."""


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("robust_eval.runtime.cache.cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(served_model, "get_or_measure", lambda *_: CAN.to_text())


@pytest.fixture
def server() -> Iterator[BatchServer]:
    with batch_server() as started:
        yield started


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    return SqliteStore(str(tmp_path / "store"))


def config(server: BatchServer, **settings: Any) -> OpenAI:
    given = {"name": "m", "model": "m", "base_url": server.url, "api_key_env": None, "batch": True}
    return OpenAI(**(given | {"poll_seconds": 0.03, "total_timeout": 3600.0} | settings))


def questions(number: int, **settings: Any) -> list[Request]:
    given = {"temperatures": (0.5, 1.0), "trials": 4, "max_new_tokens": 4, "seed": 0} | settings
    return [Request(f"q{k}", 0, Prompt("", (), f"Name animal number {k}."), **given) for k in range(number)]


def told(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(rows(table, *WHAT))


def without_batches(server: BatchServer, requests: Sequence[Request]) -> list[tuple[Any, ...]]:
    table = ask(config(server, batch=False), NoStore(), requests)
    server.bodies.clear()
    server.calls.clear()
    return told(table)


def test_answers_are_those_of_single_requests_and_each_is_asked_once(server: BatchServer, store: SqliteStore):
    requests = questions(10)
    expected = without_batches(server, requests)
    assert told(ask(config(server), store, requests)) == expected
    assert set(server.lines.values()) == {1}
    assert len(server.lines) == 10 * 2 * 2
    assert (server.calls["upload"], server.calls["create"], server.calls["ask"]) == (1, 1, 0)
    assert told(ask(config(server), store, requests)) == expected
    assert server.calls["upload"] == 1


MOMENTS = ("before", "after", "stored")
"""A run is killed before the service is asked something, after it has answered, or when something was stored."""


def killed_at(
    moment: str,
    number: int,
    store: SqliteStore,
    requests: Sequence[Request],
    monkeypatch: pytest.MonkeyPatch,
    **how: Any,
) -> pa.Table | None:
    """What a run returns that is killed at the ``number``-th such moment; None where it was."""
    whole, calls = BatchTransport._at_service, 0

    def dying(model: BatchTransport, work: Any) -> Any:
        nonlocal calls
        calls += 1
        if moment == "before" and calls == number:
            raise Killed
        found = whole(model, work)
        if moment == "after" and calls == number:
            raise Killed
        return found

    mortal: Any = FailingStore(store, number if moment == "stored" else 10**6, Killed())
    with monkeypatch.context() as patch:
        patch.setattr(BatchTransport, "_at_service", dying)
        try:
            return ask(config(**how), mortal, requests)
        except Killed:
            return None


def test_answers_come_once_each_beside_every_fault_of_the_interface_to_a_run_killed_again_and_again(
    server: BatchServer, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(batch_transport, "MAX_REQUESTS", 80)
    requests = questions(50)  # 400 answers in 200 requests
    expected = without_batches(server, requests)
    server.plans = ["dirty", "expired", "partly_failed", "cancelled", "token_limit", "empty", "dirty"]
    server.faults["upload"] = ["lost", "broken", None, "busy"]
    server.faults["create"] = ["busy", "broken", None, "lost"]
    server.faults["list"] = ["busy", None, "lost"]
    server.faults["look"] = ["lost", "busy", None, *["lost"] * 40]  # longer than any wait grows
    server.faults["download"] = ["half", "busy", None, "lost"]
    generator, kills, table = random.Random(1), 0, None
    while kills < 12:
        moment, number = generator.choice(MOMENTS), generator.randint(1, 5)
        table = killed_at(moment, number, store, requests, monkeypatch, server=server, retries=20)
        assert table is None, f"it ended after {kills} kills"
        kills += 1
    table = ask(config(server, retries=20), store, requests)
    assert told(table) == expected
    assert table.num_rows == 400
    assert not any(server.faults.values())
    marks = [batch["metadata"]["robust_eval"] for batch in server.batches.values()]
    assert len(set(marks)) == len(marks) >= len(server.plans)  # none was made twice although a reply was lost
    assert sum(server.lines.values()) - 200 <= 2 * (80 // 3 + 2)  # what came in broken lines alone is asked again


@pytest.mark.parametrize("plan", ["completed", "dirty", "expired"])
def test_a_run_killed_at_any_moment_goes_on_with_its_batches(
    server: BatchServer, store: SqliteStore, monkeypatch: pytest.MonkeyPatch, plan: str
):
    requests = questions(40)
    expected = without_batches(server, requests)
    server.plans = [plan]
    server.looks = 8
    monkeypatch.setattr(batch_transport, "CHUNK", 20)
    kills, table = 0, None
    for number, moment in product(range(1, 8), MOMENTS):
        table = killed_at(moment, number, store, requests, monkeypatch, server=server)
        if table is not None:
            break
        kills += 1
    table = table or ask(config(server), store, requests)
    assert kills >= 4
    assert told(table) == expected
    again = 2 if plan == "dirty" else 1
    assert max(server.lines.values()) <= again  # what came was not asked again, and no batch was sent twice
    assert len(server.batches) == (1 if plan == "completed" else 2)


@pytest.mark.parametrize("first", [True, False])
def test_a_run_begun_in_one_way_goes_on_in_the_other(server: BatchServer, store: SqliteStore, first: bool):
    requests = questions(10)
    expected = without_batches(server, requests)
    ask(config(server, batch=first), store, requests[:5])
    before = len(server.bodies)
    assert told(ask(config(server, batch=not first), store, requests)) == expected
    assert (before, len(server.bodies)) == (20, 40)


@contextmanager
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ctrl-C comes while the first batch is waited for."""
    with monkeypatch.context() as patch:
        patch.setattr(batch_transport.time, "sleep", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            yield


def test_an_interrupt_leaves_the_batch_running_and_says_how_to_go_on_or_cancel_it(
    server: BatchServer, store: SqliteStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    with interrupted(monkeypatch):
        ask(config(server), store, questions(10))
    assert caplog.messages[-1] == (
        f"batch batch_0 is in progress at {server.url}: rerun the command to collect the answers, or add "
        "cancel_batches=true to cancel"
    )
    assert server.calls["cancel"] == 0


def test_what_is_under_way_is_cancelled_and_asked_again_as_far_as_it_did_not_come(
    server: BatchServer, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
):
    requests = questions(10)
    expected = without_batches(server, requests)
    with interrupted(monkeypatch):
        ask(config(server), store, requests)
    with store.open() as entries:
        model = StoredModel(config(server), Local(), entries, Stopwatch())
        said = ["batch batch_0: cancelling, 0 of 40 requests completed"]
        assert model.cancelled(model.missing(requests), entries) == said
        assert model.cancelled(questions(3, seed=5), entries) == []
    assert told(ask(config(server), store, requests)) == expected
    assert [server.files[each["input_file_id"]].count(b"\n") for each in server.batches.values()] == [40, 20]
    assert set(server.lines.values()) == {1}


def test_a_command_cancels_what_its_run_has_sent_and_a_plan_has_both_prices(
    server: BatchServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    register()
    settings = ["model=openai_compatible", f"model.base_url={server.url}", "model.model=m", "model.batch=true"]
    settings += ["dataset.limit=3", "model.prompt_price=100", "model.completion_price=100"]
    checked = checked_overrides([*settings, f"paths.mlruns={tmp_path / 'runs'}", "tracking=none"])
    dry_run(checked, False)
    said = capsys.readouterr().out
    (cost,) = re.findall(r"total.*?(\d+\.\d+)", said)
    (whole,) = re.findall(r"Without batches \(model.batch=false\), the run costs at most (\d+\.\d+)", said)
    assert float(whole) == pytest.approx(2 * float(cost), abs=0.002)
    cancel_batches(checked, False)
    assert capsys.readouterr().out == "this run has no batches in progress\n"
    (tmp_path / "run").mkdir()
    with interrupted(monkeypatch):
        run_experiment(tmp_path / "run", *checked.overrides)
    capsys.readouterr()
    cancel_batches(checked, False)
    assert capsys.readouterr().out == "batch batch_0: cancelling, 0 of 3 requests completed\n"
    assert server.calls["cancel"] == 1


def test_a_budget_holds_for_batches_at_their_price(server: BatchServer, store: SqliteStore):
    requests = questions(10)
    prices = {"prompt_price": 0.0, "completion_price": 1e6, "batch_price_share": 0.5, "budget": 50.0}
    with pytest.raises(UserError, match=r"the next request could exceed model\.budget=50 USD"):
        ask(config(server, **prices), store, requests)
    answers = sum(int(name.rpartition(":")[2]) for name in server.lines)
    assert 4 * answers * 0.5 <= 50 < 4 * (answers + 2) * 0.5


def test_a_file_that_is_refused_ends_the_run_and_says_why(server: BatchServer, store: SqliteStore):
    server.plans = ["refused"]
    with pytest.raises(
        UserError, match="refuses batch batch_0: no: model_not_found; the answers so far are in the store"
    ):
        ask(config(server), store, questions(3))


def test_a_service_that_does_not_answer_for_long_ends_the_run_and_keeps_the_batch(
    server: BatchServer, store: SqliteStore
):
    requests = questions(3)
    server.faults["look"] = ["lost"] * 1000
    with pytest.raises(UserError, match="has not answered for"):
        ask(config(server, total_timeout=0.2), store, requests)
    server.faults["look"].clear()
    assert told(ask(config(server), store, requests)) == without_batches(server, requests)
    assert len(server.batches) == 1


@pytest.mark.parametrize("lost", ["look", "download"], ids=["a batch", "results"])
def test_what_the_service_has_no_more_is_asked_again(server: BatchServer, store: SqliteStore, lost: str):
    requests = questions(3)
    server.faults[lost] = ["gone"]
    assert told(ask(config(server), store, requests)) == without_batches(server, requests)
    assert len(server.batches) == 2


def test_a_run_takes_what_it_wants_of_a_batch_and_leaves_the_rest_to_the_one_that_sent_it(
    server: BatchServer, store: SqliteStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    requests = questions(10)
    expected = without_batches(server, requests)
    with interrupted(monkeypatch):
        ask(config(server), store, requests)
    caplog.clear()
    assert told(ask(config(server), store, requests[:4])) == [row for row in expected if row[0] in QUESTIONS[:4]]
    assert told(ask(config(server), store, requests)) == expected
    assert len(server.batches) == 1
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_an_upload_that_never_comes_through_ends_the_run_and_names_no_batch(
    server: BatchServer, store: SqliteStore, caplog: pytest.LogCaptureFixture
):
    server.faults["upload"] = ["lost"] * 9
    with pytest.raises(UserError, match="a request to the batch service of"):
        ask(config(server, retries=2), store, questions(3))
    assert not [message for message in caplog.messages if "in progress" in message]
    assert told(ask(config(server, retries=9), store, questions(3))) == without_batches(server, questions(3))
    assert len(server.batches) == 1


def test_a_line_that_is_longer_than_a_reply_is_broken_and_is_not_held_whole(
    server: BatchServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(batches, "MAX_RESPONSE", 1000)
    good = b'{"custom_id": "a", "error": {"message": "no"}}'
    (tmp_path / "results").write_bytes(b"x" * 1500 + b"\n\n" + good + b"\n" + good)
    found = list(batches.results_in(tmp_path / "results", config(server).service(None)))
    assert [result and result.name for result in found] == [None, None, "a", "a"]


def test_batches_need_a_store(server: BatchServer):
    with pytest.raises(UserError, match="needs a store"):
        ask(config(server), NoStore(), questions(1))
    assert server.calls["upload"] == 0


def test_a_refusal_of_one_request_is_an_outcome_and_ends_no_run(server: BatchServer, store: SqliteStore):
    def filtered(reply: dict[str, Any]) -> dict[str, Any]:
        reply["choices"][0]["finish_reason"] = "content_filter"
        return reply

    server.change = filtered
    table = ask(config(server), store, questions(2, trials=1))
    assert table["outcome"].to_pylist() == ["filtered_reply"] * 4


def test_cached_tokens_are_counted_and_priced(server: BatchServer, store: SqliteStore):
    def cached(reply: dict[str, Any]) -> dict[str, Any]:
        reply["usage"] |= {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 80}}
        return reply

    server.change = cached
    prices = {"prompt_price": 1e6, "completion_price": 0.0, "cached_price": 1e5, "batch_price_share": 0.5}
    with store.open() as entries:
        model = StoredModel(config(server, **prices), Local(), entries, Stopwatch())
        table = model.answers(questions(2, temperatures=(1.0,), trials=2), "test").table
        assert model.description()["cost"] == 2 * 0.5 * (20 + 80 * 0.1)
    assert table["cached_tokens"].to_pylist() == [80, 0, 80, 0]


@pytest.mark.parametrize("temperature", [0.0, 0.1 + 0.2, 1.0, DEFAULT_TEMPERATURE])
def test_a_line_names_its_answers_in_at_most_64_signs(temperature: float):
    call = Call(questions(1)[0], temperature, (9998, 9999))
    name = line_name("a" * 32, call)
    assert len(name) <= 64
    again = call_of(name, {"a" * 32: call.request})
    assert again._replace(temperature=0.0) == call._replace(temperature=0.0)
    assert again.temperature is DEFAULT_TEMPERATURE if temperature != temperature else again.temperature == temperature
