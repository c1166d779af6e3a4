"""A model behind a server, as a run sees it: nothing is lost, nothing is asked twice, whatever goes wrong."""

import gc
import json
import logging
import re
import resource
import signal
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from api_server import api_server
from asking import ask
from failing_store import FailingStore
from fault_proxy import FAULTS, INSTEAD, Exchange, FaultProxy, Message, _error
from interrupts import interrupted
from scripted_server import Scripted, scripted_server
from support import stub_server as stub

from robust_eval.answer import SCHEMA, rows
from robust_eval.engine.local import Local
from robust_eval.error import UserError
from robust_eval.grader.answer_matcher import AnswerMatcher
from robust_eval.model import reply_tables
from robust_eval.model.base import Enumeration, Request, calls
from robust_eval.model.served import completions, served_model
from robust_eval.model.served.draw_watch import CERTAIN
from robust_eval.model.served.limits import retries
from robust_eval.model.served.openai import OpenAI
from robust_eval.model.served.probe import Capabilities
from robust_eval.model.served.transport import client
from robust_eval.prompt.prompt import Prompt
from robust_eval.runtime.cache import get_or_measure
from robust_eval.runtime.process import Stopwatch
from robust_eval.store.base import NoStore
from robust_eval.store.sqlite import SqliteStore
from robust_eval.store.stored_model import StoredModel

Body = dict[str, Any]
KEY = "sk-planted-0123456789"
LLAMA = Capabilities(
    limit="max_tokens",
    system_role=True,
    greedy=True,
    truncation_off={"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0},
    highest_temperature=2.0,
    top_logprobs=20,
    tempered_logprobs=False,
    choices=10,
    seed=True,
)
"""What llama.cpp's server can do."""
TWO = replace(LLAMA, choices=2)
"""So that few answers are many requests."""
PLACE = ["question_id", "rewrite", "temperature", "trial"]
WHAT = [*PLACE, "text", "outcome", "weight", "finish_reason"]
UNHELPFUL = ("insufficient_quota",)  # ends a run
FILTERED = {"prompt_filtered", "reply_filtered"}


class Proxy(FaultProxy):
    """Keeps the bodies of requests, and answers them from the ``refuses_from``-th on with status ``refusal``."""

    def __init__(self, upstream: str, **settings: Any) -> None:
        super().__init__(upstream, **({"rate": 0.0} | settings))
        self.bodies: list[Body] = []
        self.good: list[Body] = []
        self.refuses_from: int | None = None
        self.refusal = 401
        self.on_request: Callable[[int], object] = lambda number: None

    def _draw(self, body: bytes) -> Exchange:
        self.bodies.append(json.loads(body))
        return super()._draw(body)

    async def _answer(self, request: Message, exchange: Exchange) -> Message:
        if self.refuses_from is not None and exchange.number >= self.refuses_from:
            return _error(self.refusal, "invalid_api_key", "no more")
        answer = await super()._answer(request, exchange)
        if " 200 " in answer.start:
            self.good.append(self.bodies[exchange.number])
        self.on_request(exchange.number)
        return answer

    def forget(self) -> None:
        """Begin anew, and refuse nothing any more."""
        self.clear()
        self.bodies, self.good, self.refuses_from = [], [], None
        self.on_request = lambda number: None


Says = Callable[[Body, Mapping[str, str]], tuple[int, Any] | tuple[int, Any, Mapping[str, str]]]


@contextmanager
def scripted(says: Says) -> Iterator[str]:
    """The base URL of a server that answers each body and headers with a status, a body, and more headers."""

    def answer(body: Body) -> Scripted:
        status, reply, *more = says(body, server.received[-1].headers)
        return status, more[0] if more else {}, reply.encode() if isinstance(reply, str) else reply

    with scripted_server(answer, honest=False) as server:
        yield server.url


def good(body: Body, **message: Any) -> Body:
    """A reply with the choices that are asked for."""
    return stub.answer(body, chat=True) if not message else changed(stub.answer(body, chat=True), **message)


def changed(reply: Body, **message: Any) -> Body:
    for choice in reply["choices"]:
        choice["message"] |= message
    return reply


def refusal(message: str, code: str = "invalid") -> Body:
    return {"error": {"message": message, "type": code, "param": None, "code": code}}


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """TimeoutError where the block is not over by then."""

    def late(*_: Any) -> None:
        raise TimeoutError(f"not over within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def config(url: str, **settings: Any) -> OpenAI:
    return OpenAI(
        **({"name": "m", "model": "m", "base_url": url, "api_key_env": None, "max_concurrency": 16} | settings)
    )


def question(number: int, **settings: Any) -> Request:
    given = {"temperatures": (0.5, 1.0), "trials": 4, "max_new_tokens": 4, "seed": 0} | settings
    return Request(f"q{number}", 0, Prompt("", (), f"Name animal number {number}."), **given)


def questions(count: int, **settings: Any) -> list[Request]:
    return [question(number, **settings) for number in range(count)]


def asked(bodies: Iterable[Body]) -> int:
    """Answers that requests ask for."""
    return sum(body.get("n", 1) for body in bodies)


def places(requests: Sequence[Request]) -> list[tuple[str, int, float, int]]:
    return [(r.question_id, r.variant, t, k) for r in requests for t in r.temperatures for k in range(r.trials)]


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Capabilities], None]:
    """Nothing is looked for in the user's cache: a server can do what this is told, at first what llama.cpp's can."""
    monkeypatch.setattr("robust_eval.runtime.cache.cache_folder", lambda: tmp_path / "cache")

    def can(capabilities: Capabilities) -> None:
        monkeypatch.setattr(served_model, "get_or_measure", lambda *_: capabilities.to_text())

    can(LLAMA)
    return can


@pytest.fixture
def probing(monkeypatch: pytest.MonkeyPatch, known: object) -> None:
    """Servers are asked what they can do."""
    monkeypatch.setattr(served_model, "get_or_measure", get_or_measure)


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    return SqliteStore(str(tmp_path / "store"))


@pytest.fixture(scope="module")
def llama() -> Iterator[str]:
    with api_server() as url:
        yield url


@pytest.fixture
def proxy(llama: str) -> Iterator[Proxy]:
    """One that injects nothing, in front of the server."""
    with Proxy(llama) as started:
        yield started


@pytest.fixture(scope="module")
def instant() -> Iterator[str]:
    """A stub server that answers at once."""
    with stub.stub_server(seconds=0.0) as url:
        yield url


@pytest.fixture
def instant_proxy(instant: str) -> Iterator[Proxy]:
    """One that injects nothing, in front of the stub server."""
    with Proxy(instant) as started:
        yield started


# ---------------------------------------------------------------------------------------------------- faults


def test_under_every_fault_each_answer_comes_once_and_is_that_of_an_undisturbed_run(
    instant: str, known: Callable[[Capabilities], None], store: SqliteStore
):
    known(TWO)
    requests = questions(20)
    undisturbed = ask(config(instant), NoStore(), requests)
    faults = [fault for fault in FAULTS if fault not in UNHELPFUL]
    with Proxy(instant, faults=faults, rate=0.25, seed=2, retry_after=0.1, slow=0.1) as proxy:
        model = config(proxy.base_url, timeout=1)
        table = ask(model, store, requests)
        log, bodies = proxy.log, proxy.bodies
        assert ask(model, store, requests) == table
        assert len(proxy.log) == len(log)
    assert list(rows(table, *PLACE)) == places(requests)
    outcomes = table["outcome"].to_pylist()
    assert [b for b, o in zip(rows(table, *WHAT), outcomes, strict=True) if not o.startswith("filtered")] == [
        a for a, o in zip(rows(undisturbed, *WHAT), outcomes, strict=True) if not o.startswith("filtered")
    ]

    met = Counter(entry.fault for entry in log)
    filtered = [body for body, entry in zip(bodies, log, strict=True) if entry.fault == "prompt_filtered"]
    assert outcomes.count("filtered_prompt") == asked(filtered)
    assert outcomes.count("filtered_reply") == met["reply_filtered"]
    assert set(outcomes) <= {"ok", "empty", "filtered_prompt", "filtered_reply"}
    wanted = sum(1 for request in requests for _ in calls(request, TWO.choices))
    final = met[None] + met["trickle"] + met["prompt_filtered"] + met["reply_filtered"]
    assert final == wanted  # whatever was answered was not asked again
    assert len(met) >= 5
    reached = sum(1 for entry in log if entry.fault not in (*INSTEAD, "hang"))
    assert reached <= 1.3 * wanted


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault not in UNHELPFUL])
def test_a_fault_that_every_request_meets_once_costs_no_answer(
    instant: str, known: Callable[[Capabilities], None], fault: str
):
    known(TWO)
    requests = questions(3, trials=2)
    undisturbed = ask(config(instant), NoStore(), requests)
    with Proxy(instant, faults=[fault], rate=1.0, times=1, retry_after=0.1, slow=0.1) as proxy:
        table = ask(config(proxy.base_url, timeout=1), NoStore(), requests)
        met = Counter(entry.fault for entry in proxy.log)
    if fault == "prompt_filtered":
        assert table["outcome"].to_pylist() == ["filtered_prompt"] * 12
        assert set(table["text"].to_pylist()) == {""}
    elif fault == "reply_filtered":
        assert table["outcome"].to_pylist() == ["filtered_reply", "ok"] * 6
    else:
        assert list(rows(table, *WHAT)) == list(rows(undisturbed, *WHAT))
    ends = fault in FILTERED or fault == "trickle"
    assert met == ({fault: 6} if ends else {fault: 6, None: 6})


# ------------------------------------------------------------------------------------ stopping and going on


REQUESTS = 15
TOTAL = REQUESTS * 2 * 4


@pytest.fixture
def undisturbed(instant: str) -> pa.Table:
    return ask(config(instant), NoStore(), questions(REQUESTS))


@pytest.mark.parametrize(
    ("stop", "settings", "said"),
    [
        (
            {"refuses_from": 9, "refusal": 401},
            {},
            r"http://127\.0\.0\.1:\d+/v1 refuses to answer: 401 no more; the answers so far are in the store",
        ),
        (
            {},
            {"prompt_price": 0.0, "completion_price": 1e6, "budget": 90.0},
            (
                r"the next request could exceed model\.budget=90 USD \(\d+\.0000 USD so far\): raise model\.budget "
                "and rerun the command to resume; the answers so far are in the store"
            ),
        ),
        (
            {"refuses_from": 20, "refusal": 400},
            {},
            (
                r"requests for (\d+) of \d+ questions failed, more than model\.max_error_rate=0\.1; the last error: "
                "400 no more; the answers so far are in the store"
            ),
        ),
    ],
    ids=["key refused", "budget spent", "errors"],
)
def test_a_run_that_ends_early_goes_on_where_it_was(
    instant: str,
    known: Callable[[Capabilities], None],
    store: SqliteStore,
    undisturbed: pa.Table,
    stop: dict[str, int],
    settings: dict[str, Any],
    said: str,
):
    known(TWO)
    requests = questions(REQUESTS)
    with Proxy(instant) as proxy:
        for name, value in stop.items():
            setattr(proxy, name, value)
        with deadline(20), pytest.raises(UserError) as problem:
            ask(config(proxy.base_url, max_concurrency=4, **settings), store, requests)
        assert re.fullmatch(said, str(problem.value))
        came = asked(proxy.good)
        assert 0 < came < TOTAL
        before = proxy.good
        proxy.forget()
        table = ask(config(proxy.base_url, max_concurrency=4), store, requests)
        assert asked(proxy.bodies) == TOTAL - came
        assert not [body for body in proxy.bodies if body in before]
    assert list(rows(table, *WHAT)) == list(rows(undisturbed, *WHAT))


@pytest.mark.parametrize("problem", [RuntimeError("the disk fell out"), KeyboardInterrupt()], ids=["crash", "Ctrl-C"])
def test_what_was_written_before_a_crash_is_not_asked_again(
    known: Callable[[Capabilities], None], store: SqliteStore, undisturbed: pa.Table, problem: BaseException
):
    known(TWO)
    requests = questions(REQUESTS)
    threads = len(sys._current_frames())
    with stub.stub_server(seconds=0.05) as url, Proxy(url) as proxy:
        crashing: Any = FailingStore(store, 5, problem)
        with deadline(20), pytest.raises(type(problem)):
            ask(config(proxy.base_url, max_concurrency=4), crashing, requests)
        assert len(sys._current_frames()) == threads + 1  # the proxy's own
        with deadline(20):
            proxy.wait_until_left()  # nothing goes on behind our back
        kept = sum(reply_tables.from_bytes(value, SCHEMA).num_rows for value in crashing.kept.values())
        assert 10 <= kept < TOTAL
        proxy.forget()
        table = ask(config(proxy.base_url, max_concurrency=4), store, requests)
        assert asked(proxy.bodies) == TOTAL - kept
    assert list(rows(table, *WHAT)) == list(rows(undisturbed, *WHAT))


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C is raised, also where a shell has started the tests in the background and it is ignored.

    Python throws away what is raised in a callback of its garbage collector, where hypothesis has one: an interrupt
    that comes then is lost, and not by us.
    """
    callbacks, handler = gc.callbacks[:], signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.callbacks.clear()
    yield
    gc.callbacks.extend(callbacks)
    signal.signal(signal.SIGINT, handler)


@pytest.mark.usefixtures("interruptible")
def test_no_interrupt_is_lost_and_no_healthy_store_set_aside_whenever_it_comes(instant: str, tmp_path: Path):
    ended = interrupted(instant, tmp_path, 40, seed=1)
    counted = {name: ended[name] for name in ("raised", "lost", "with other answers", "set aside")}
    assert counted == {"raised": 40, "lost": 0, "with other answers": 0, "set aside": 0}, ended
    assert ended["runs that ended"] > 0  # how many depends on the machine


def test_more_trials_and_other_temperatures_ask_only_for_what_is_new(instant_proxy: Proxy, store: SqliteStore):
    model = config(instant_proxy.base_url)
    few = questions(4, trials=3)
    first = ask(model, store, few)
    assert first["weight"].to_pylist() == [1 / 3] * 24
    assert asked(instant_proxy.bodies) == 24
    instant_proxy.forget()
    more = questions(4, temperatures=(0.5, 0.7, 1.0), trials=5)
    table = ask(model, store, more)
    assert Counter(body["temperature"] for body in instant_proxy.bodies for _ in range(body["n"])) == {
        0.5: 8,
        0.7: 20,
        1.0: 8,
    }
    assert list(rows(table, *PLACE)) == places(more)
    assert table["weight"].to_pylist() == [1 / 5] * 60
    instant_proxy.forget()
    assert ask(model, store, few) == first
    assert instant_proxy.bodies == []
    fresh = ask(model, NoStore(), more)
    assert list(rows(table, *WHAT)) == list(rows(fresh, *WHAT))


def test_a_judge_needs_no_curve_of_a_server(instant_proxy: Proxy, store: SqliteStore):
    judged, model = questions(2, matcher=AnswerMatcher(["lion"])), config(instant_proxy.base_url)
    table = ask(model, store, judged)
    sent = len(instant_proxy.bodies)
    assert ask(model, store, judged) == table
    assert ask(model, store, questions(2, matcher=AnswerMatcher(["cat"]))) == table
    assert len(instant_proxy.bodies) == sent


def test_answers_do_not_depend_on_how_many_are_asked_for_together(proxy: Proxy, known: Callable[[Capabilities], None]):
    requests = questions(2, trials=5)
    tables = []
    for choices, max_concurrency in ((10, 16), (2, 3), (1, 1)):
        known(replace(LLAMA, choices=choices))
        proxy.forget()
        tables.append(ask(config(proxy.base_url, max_concurrency=max_concurrency), NoStore(), requests))
        assert len(proxy.bodies) == 4 * -(-5 // choices)
        assert proxy.most_in_flight <= max_concurrency
    for table in tables[1:]:
        assert list(rows(table, *WHAT)) == list(rows(tables[0], *WHAT))


# -------------------------------------------------------------------------------------------------- outcomes


def test_outcomes_are_kept_apart_and_only_errors_are_asked_again(store: SqliteStore):
    """Each question goes another way."""
    seen: list[str] = []

    def says(body: Body, headers: Mapping[str, str]) -> tuple[int, Any]:
        number = int(re.findall(r"\d+", body["messages"][-1]["content"])[0])
        seen.append(f"q{number}")
        if number == 1:
            return 400, refusal("policy", "content_filter")
        if number == 2:
            reply = good(body, content="")
            reply["choices"][0]["finish_reason"] = "content_filter"
            return 200, reply
        if number == 3:
            return 400, refusal("no such thing")
        if number == 4:
            return 200, good(body, content=None, refusal="I will not")
        if number == 5:
            return 200, good(body, content=" \n ")
        return 200, good(body)

    with scripted(says) as url:
        model = config(url, max_error_rate=0.3)
        requests = questions(6, temperatures=(1.0,), trials=2)
        table = ask(model, store, requests)
        first = Counter(seen)
        seen.clear()
        again = ask(model, store, requests)
    expected = ["ok", "filtered_prompt", "filtered_reply", "error", "refused", "empty"]
    outcomes = [expected[number] for number in range(6) for _ in range(2)]
    outcomes[5] = "empty"  # the filter took the first of two
    assert table["outcome"].to_pylist() == outcomes
    assert table["text"].to_pylist()[2:] == [""] * 6 + ["I will not"] * 2 + [""] * 2
    assert first == {f"q{number}": 1 for number in range(6)}
    assert again == table
    assert seen == ["q3"]


def test_a_reply_that_an_error_breaks_off_is_an_error_when_all_repetitions_do(store: SqliteStore):
    """And never a half reply that is graded; the replies before it are kept."""
    seen: Counter[str] = Counter()

    def says(body: Body, headers: Mapping[str, str]) -> tuple[int, Any]:
        number = re.findall(r"\d+", body["messages"][-1]["content"])[0]
        seen[number] += 1
        reply = good(body, content="Helsinki")
        if number == "1" or (number == "2" and seen["2"] == 1):
            reply["choices"][-1]["finish_reason"] = "insufficient_system_resource"
            reply["choices"][-1]["message"]["content"] = "Helsi"
        if number == "3":
            reply["choices"][0]["finish_reason"] = "MAX_TOKENS"
        return 200, reply

    with scripted(says) as url:
        table = ask(config(url, retries=2, max_error_rate=1), store, questions(4, temperatures=(1.0,), trials=2))
    assert table["outcome"].to_pylist() == ["ok", "ok", "ok", "error", "ok", "ok", "ok", "ok"]
    assert set(table["text"].to_pylist()) == {"Helsinki", ""}
    assert table["finish_reason"].to_pylist() == ["stop", "stop", "stop", None, "stop", "stop", "length", "stop"]
    assert seen == {"0": 1, "1": 4, "2": 2, "3": 1}


def test_a_word_for_the_end_that_is_in_no_dialect_is_said_once_and_recorded(
    store: SqliteStore, caplog: pytest.LogCaptureFixture
):
    def says(body: Body, headers: Mapping[str, str]) -> tuple[int, Any]:
        reply = good(body)
        for choice in reply["choices"]:
            choice["finish_reason"] = "ran_dry\n"
        return 200, reply

    with scripted(says) as url:
        model = config(url)
        table = ask(model, store, questions(5))
    assert set(table["finish_reason"].to_pylist()) == {"stop"}
    (spoken,) = [each.getMessage() for each in caplog.records if "finish_reason" in each.getMessage()]
    assert "returned an unknown finish_reason='ran_dry\\\\n': such replies count as complete" in spoken
    with store.open() as entries:
        described = StoredModel(model, Local(), entries, Stopwatch()).description()
    assert described["unknown_finish_reasons"] == "ran_dry\\n"


def test_greedy_answers_bring_the_log_probabilities_that_are_asked_for(proxy: Proxy):
    requests = questions(3, temperatures=(0.0,), trials=1, top_logprobs=20, min_logprobs=10)
    table = ask(config(proxy.base_url), NoStore(), requests)
    for text, chosen, top, length, total in rows(
        table, "text", "token_logprobs", "top_logprobs", "answer_tokens", "completion_tokens"
    ):
        assert text
        assert len(chosen) == len(top) == total >= length >= 1
        assert all(len(largest) == 20 and sorted(largest, reverse=True) == largest for largest in top)
        np.testing.assert_allclose([largest[0] for largest in top], chosen, atol=1e-5)
    assert [body["temperature"] for body in proxy.bodies] == [0.0] * 3
    assert all("seed" not in body and "n" not in body for body in proxy.bodies)


# ------------------------------------------------------------------------- replies that cannot be believed


def greedy(count: int) -> list[Request]:
    return questions(count, temperatures=(0.0,), trials=1, top_logprobs=20, min_logprobs=10)


def tokens_of(reply: Body) -> Iterator[Body]:
    for choice in reply["choices"]:
        yield from choice["logprobs"]["content"]


def with_tokens(change: Callable[[Body], Any]) -> Callable[[Body], Any]:
    """The reply with each token changed."""

    def changed(reply: Body) -> Any:
        for token in tokens_of(reply):
            change(token)
        return reply

    return changed


LIES: dict[str, tuple[Callable[[Body], Any], str]] = {
    "above certain": (with_tokens(lambda token: token.update(logprob=3.0)), "sent a log-probability of 3, "),
    "three of ten": (
        with_tokens(lambda token: token.update(top_logprobs=token["top_logprobs"][:3])),
        "sent 3 log-probabilities of a token, but 10 are needed",
    ),
    "no log-probabilities": (
        lambda reply: changed_choice(reply, logprobs=None),
        "sent no log-probabilities, but 10 per token are needed",
    ),
    "a text": (with_tokens(lambda token: token.update(logprob="-0.5")), "sent no completion: "),
    "too many tokens": (
        lambda reply: reply | {"usage": {"completion_tokens": 10**12}},
        "counted '1000000000000' tokens",
    ),
    "nested without end": (lambda reply: "[" * 100_000 + "]" * 100_000, "sent no completion: "),
    "too much": (lambda reply: reply | {"padding": " " * 2**20}, "sent a response of more than 1 MB"),
}
"""What becomes of a good reply, and what is said of it."""


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reply may be of a megabyte, and what is asked again is asked at once."""
    monkeypatch.setattr(client, "MAX_RESPONSE", 2**20)
    monkeypatch.setattr(retries, "backoff", lambda *_: 0.0)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("lie", LIES)
def test_a_reply_that_cannot_be_believed_is_asked_again_and_then_an_error_and_leaves_nothing_behind(
    store: SqliteStore, caplog: pytest.LogCaptureFixture, lie: str
):
    seen: Counter[str] = Counter()
    lies = {0: 2, 1: 99}  # how often each question is answered so

    def says(body: Body, headers: Mapping[str, str]) -> tuple[int, Any]:
        number = int(re.findall(r"\d+", body["messages"][-1]["content"])[0])
        seen[f"q{number}"] += 1
        lying = seen[f"q{number}"] <= lies.get(number, 0)
        return 200, LIES[lie][0](good(body)) if lying else good(body)

    requests = greedy(3)
    with scripted(says) as url:
        model = config(url, retries=3, max_error_rate=1.0)
        table = ask(model, store, requests)
        assert seen == {"q0": 3, "q1": 4, "q2": 1}
        assert table["outcome"].to_pylist() == ["ok", "error", "ok"]
        (said,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        assert said.startswith(f"question q1: the server {LIES[lie][1]}")
        lies.clear()
        seen.clear()
        after = ask(model, store, requests)
        assert seen == {"q1": 1}
        assert after == ask(model, NoStore(), requests)


@pytest.mark.parametrize("lie", ["above certain", "three of ten", "no log-probabilities"])
def test_a_stored_answer_that_cannot_be_believed_is_asked_again(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, lie: str
):
    lying = True
    asked: list[Body] = []

    def says(body: Body, headers: Mapping[str, str]) -> tuple[int, Any]:
        asked.append(body)
        return 200, LIES[lie][0](good(body)) if lying else good(body)

    requests = greedy(2)
    with scripted(says) as url:
        model = config(url)
        with monkeypatch.context() as before:  # as it was stored when nobody looked
            before.setattr(completions, "fault", lambda *_, **__: None)
            ask(model, store, requests)
        lying = False
        asked.clear()
        after = ask(model, store, requests)
        assert len(asked) == 2
        assert ask(model, store, requests) == after == ask(model, NoStore(), requests)


def test_a_reply_that_trickles_for_long_takes_the_time_of_a_request(instant: str, store: SqliteStore):
    with Proxy(instant, faults=["trickle"], rate=1.0, slow=60.0) as proxy, deadline(30):
        table = ask(config(proxy.base_url, timeout=0.5, retries=0, max_error_rate=1.0), store, greedy(1))
    assert table["outcome"].to_pylist() == ["error"]


# --------------------------------------------------------------------------------------------- check()


SERVER = "http://127.0.0.1:1/v1"
EXACT = question(0, trials=0, matcher=AnswerMatcher(["a"]), enumeration=Enumeration(9, (1.0,)))
GREEDY = question(0, temperatures=(0.0,), trials=1, top_logprobs=20, min_logprobs=10)
REFUSED: dict[str, tuple[Request, dict[str, Any], str]] = {
    "exact": (
        EXACT,
        {"top_logprobs": 0},
        f"{SERVER} returns no log-probabilities, but sampler=exact needs them: choose sampler=temperature_sweep",
    ),
    "parts of answers": (
        question(0, stop_on_match=True),
        {},
        "sampler.stop_on_match=true needs a local model, and no server supports it: remove it",
    ),
    "too hot": (
        question(0, temperatures=(0.5, 1.0, 1.5)),
        {"highest_temperature": 1.0},
        f"{SERVER} accepts temperatures up to 1, but the sampler requests 1.5: set sampler.temperatures=[0.5,1]",
    ),
    "few log-probabilities": (
        GREEDY,
        {"top_logprobs": 5},
        (
            f"{SERVER} returns 5 log-probabilities per token, but metric.frs.k=10 needs 10: set metric.frs.k=5 (the "
            "entropy of the 5 most probable tokens, as a share of its maximum)"
        ),
    ),
    "no log-probabilities": (
        GREEDY,
        {"top_logprobs": 0},
        (
            f"{SERVER} returns 0 log-probabilities per token, but metric.frs.k=10 needs 10: choose metric=certainty or "
            "metric=agreement, which need none"
        ),
    ),
    "no confidence": (
        replace(GREEDY, min_logprobs=1),
        {"top_logprobs": 0},
        (f"{SERVER} returns no log-probabilities, but sampler.min_confidence needs them: set sampler.min_confidence=0"),
    ),
    "tempered log-probabilities": (
        GREEDY,
        {"tempered_logprobs": True},
        (
            f"{SERVER} returns log-probabilities scaled by the temperature, but metric=frs needs unscaled ones: start "
            "vLLM with --logprobs-mode raw_logprobs, or choose another server"
        ),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_server_cannot_do_is_said_before_anything_is_asked(known: Callable[[Capabilities], None], case: str):
    request, lacks, said = REFUSED[case]
    known(replace(LLAMA, **lacks))
    with pytest.raises(UserError) as problem:
        ask(config(SERVER), NoStore(), [request])  # nobody is there who could be asked
    assert str(problem.value) == said


def test_more_requests_at_once_than_files_may_be_open_are_refused_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 64))
    with pytest.raises(UserError, match=r"model\.max_concurrency=200 needs .* the hard limit is 64 \(ulimit -Hn\)"):
        ask(config(SERVER, max_concurrency=200), NoStore(), questions(2))


def test_log_probabilities_that_are_not_needed_are_not_missed(known: Callable[[Capabilities], None], instant: str):
    known(replace(LLAMA, top_logprobs=5, tempered_logprobs=True))
    with Proxy(instant) as proxy:
        table = ask(config(proxy.base_url), NoStore(), [replace(GREEDY, min_logprobs=0)])
        assert [body["top_logprobs"] for body in proxy.bodies] == [5]
    assert {len(top) for (tops,) in rows(table, "top_logprobs") for top in tops} == {5}


@pytest.mark.parametrize(("needed", "requested"), [(0, 20), (10, 20), (50, 50)])
def test_draws_are_tested_with_as_many_log_probabilities_as_are_needed(
    known: Callable[[Capabilities], None], instant: str, needed: int, requested: int
):
    known(replace(LLAMA, top_logprobs=50))
    drawn = replace(GREEDY, temperatures=(1.0,), top_logprobs=needed, min_logprobs=0)
    with Proxy(instant) as proxy:
        ask(config(proxy.base_url), NoStore(), [drawn])
        assert [body["top_logprobs"] for body in proxy.bodies] == [requested]


@pytest.mark.usefixtures("probing")
def test_a_server_is_asked_once_a_day_what_it_can_do_and_its_draws_pass_every_test(proxy: Proxy, caplog: Any):
    model = config(proxy.base_url).load()
    requests = questions(8, temperatures=(0.5, 2.0), trials=6, max_new_tokens=8)
    model.check(requests)
    assert model.capabilities(2.0) == replace(LLAMA, probed_for=2.0)
    sent = len(proxy.bodies)
    assert 10 <= sent <= 25
    assert sum(body["max_tokens"] * body.get("n", 1) for body in proxy.bodies) <= 600
    config(proxy.base_url).load().check(questions(1))
    assert len(proxy.bodies) == sent
    replies = [reply for block in model.complete(requests, {each.item for each in requests}) for reply in block]
    assert sum(len(reply.completions) for reply in replies) == 8 * 2 * 6
    can, watch = model.capabilities(2.0), model._watch
    assert (can.faithful, can.seed, can.choices) == (True, True, 10)
    assert watch is not None
    assert watch.repetition() < 0
    assert max(watch._bets.values()) < 0  # its draws speak against each other temperature
    assert watch._bets[0.5] < -CERTAIN
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.usefixtures("probing")
@pytest.mark.parametrize(
    ("answered", "reason"), [(0, "does not answer"), (4, "failed during the probe of its capabilities")]
)
def test_a_server_that_hangs_while_it_is_asked_what_it_can_do_is_a_sentence_within_one_limit(
    monkeypatch: pytest.MonkeyPatch, answered: int, reason: str
):
    for name, seconds in (("MIN_PATIENCE", 1.5), ("MIN_TIMEOUT", 0.2)):
        monkeypatch.setattr(retries, name, seconds)
    seen, gone = [], threading.Event()

    def says(body: Body, headers: Mapping[str, str]) -> tuple[int, Any]:
        seen.append(body)
        if len(seen) > answered:
            gone.wait(20)
        return 200, good(body)

    with scripted(says) as url, deadline(10):
        model = config(url, timeout=3).load()
        began = time.monotonic()
        with pytest.raises(UserError) as problem:
            model.check(questions(1))
        seconds = time.monotonic() - began
        gone.set()
    late = r"no answer within 1\.5 s \(for a longer wait set model\.timeout above 4\)"
    assert re.fullmatch(rf"{url} {reason}: {late}", str(problem.value))
    assert (len(seen), seconds < 4) == (answered + 1, True)


@pytest.mark.usefixtures("probing")
def test_a_server_that_asks_to_come_back_much_later_is_a_sentence_at_once():
    with (
        scripted(lambda body, _: (429, refusal("slow down"), {"retry-after": "3600"})) as url,
        deadline(5),
        pytest.raises(UserError, match=r"429 slow down \(the server requests a back-off of 3[67]\d\d s\)$"),
    ):
        config(url).load().check(questions(1))


@pytest.mark.usefixtures("probing")
def test_what_the_probe_waits_for_is_said(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "robust_eval")
    busy = iter([False, False, True])

    def says(body: Body, headers: Mapping[str, str]) -> tuple[int, Any, Mapping[str, str]]:
        return (429, refusal("slow down"), {"retry-after": "0"}) if next(busy, False) else (200, good(body), {})

    with scripted(says) as url:
        config(url).load().check(questions(1))
    assert re.search("a probe request is retried in [01] s: 429 slow down$", caplog.text, re.MULTILINE)


def test_a_server_that_hangs_when_it_is_asked_how_it_goes_on_with_answers_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(retries, "MIN_PATIENCE", 0.5)
    gone = threading.Event()
    with scripted(lambda body, _: (gone.wait(20), (200, good(body)))[1]) as url, deadline(15):
        with pytest.raises(UserError, match=r"failed while continuations were tested: no answer within"):
            config(url, timeout=1).load().check([EXACT])
        gone.set()


@pytest.mark.usefixtures("probing")
def test_a_server_that_answers_too_slowly_to_be_asked_what_it_can_do_is_a_sentence():
    with (
        scripted(lambda body, _: (time.sleep(0.1), (200, good(body)))[1]) as url,
        deadline(20),
        pytest.raises(UserError, match=r"took longer than model\.total_timeout=0\.5 s"),
    ):
        config(url, total_timeout=0.5).load().check(questions(1))


@pytest.mark.usefixtures("probing")
@pytest.mark.parametrize(
    "status",
    [401, 404, 500, 429],
)
def test_a_server_that_refuses_to_say_what_it_can_do_is_a_sentence_without_the_key(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: int
):
    monkeypatch.setenv("PLANTED_KEY", KEY)

    def says(body: Body, headers: Mapping[str, str]) -> tuple[int, Any]:
        return status, refusal(f"not with {headers['authorization']}")

    with scripted(says) as url, pytest.raises(UserError) as problem:
        ask(config(url, api_key_env="PLANTED_KEY", retries=1), NoStore(), questions(1))
    assert str(problem.value) == f"{url} does not answer: {status} not with Bearer …"
    assert not list((tmp_path / "cache").rglob("*"))  # it is asked again, not remembered


@pytest.mark.usefixtures("probing", "small")
@pytest.mark.parametrize(
    ("lie", "said"),
    [
        (
            "three of ten",
            "returns 3 log-probabilities per token, but metric.frs.k=10 needs 10: set metric.frs.k=3",
        ),
        ("above certain", "returns 0 log-probabilities per token, but metric.frs.k=10 needs 10: choose metric="),
        ("no log-probabilities", "returns 0 log-probabilities per token, but metric.frs.k=10 needs 10: choose metric="),
    ],
)
def test_a_server_that_lies_is_refused_before_the_run_and_asked_again_when_it_does_no_more(
    store: SqliteStore, lie: str, said: str
):
    def says(body: Body, headers: Mapping[str, str]) -> tuple[int, Any]:
        reply = good(body)
        return 200, LIES[lie][0](reply) if lying and body.get("logprobs") else reply

    requests = greedy(2)
    with scripted(says) as url:
        lying = True
        with pytest.raises(UserError) as problem:
            ask(config(url), store, requests)
        assert str(problem.value).startswith(f"{url} {said}")
        lying = False
        assert ask(config(url), store, requests)["outcome"].to_pylist() == ["ok", "ok"]


@pytest.mark.usefixtures("probing")
@pytest.mark.parametrize("content", [b"", b"\xff", b"{", b"{}"])
def test_what_is_remembered_of_a_server_and_cannot_be_read_is_asked_again(instant: str, tmp_path: Path, content: bytes):
    model = config(instant)
    found = model.load().capabilities(1.0)
    (file,) = (tmp_path / "cache" / "capabilities").iterdir()
    file.write_bytes(content)
    assert model.service_limits().choices is None
    assert model.load().capabilities(1.0) == found
    assert model.service_limits().choices == found.choices


# ------------------------------------------------------------------------------------------------ pace


def stats(url: str) -> Body:
    with urllib.request.urlopen(url.removesuffix("/v1") + "/stats") as reply:
        said: Body = json.load(reply)
    return said


def test_a_limit_of_the_server_is_found_and_costs_no_answer(known: Callable[[Capabilities], None]):
    known(replace(LLAMA, choices=1))
    requests = questions(20)
    with stub.stub_server(seconds=0.05, limit=10) as url:
        table = ask(config(url, max_concurrency=64), NoStore(), requests)
        said = stats(url)
    assert list(rows(table, *PLACE)) == places(requests)
    assert set(table["outcome"].to_pylist()) == {"ok"}
    assert said["most_in_flight"] == 10
    assert 0 < said["refused"] == said["requests"] - 160


def test_a_limit_of_requests_a_minute_is_kept(known: Callable[[Capabilities], None], instant: str):
    known(replace(LLAMA, choices=1))
    start = time.monotonic()
    ask(config(instant, requests_per_minute=1200), NoStore(), questions(6))
    assert 48 / 20 - 1 - 0.1 < time.monotonic() - start < 6


# ------------------------------------------------------------------------------- what is said of it


def test_the_description_says_what_the_server_can_do_and_how_it_kept_up(
    known: Callable[[Capabilities], None], store: SqliteStore
):
    known(replace(TWO, choices=4))
    with stub.stub_server(seconds=0.02) as url, Proxy(url, faults=["server_error"], rate=1.0, times=1) as proxy:
        model = config(proxy.base_url, max_concurrency=4, prompt_price=1.0, completion_price=2.0)
        with store.open() as entries:
            asking = StoredModel(model, Local(), entries, Stopwatch())
            asking.answers(questions(4), "test")
            said = asking.description()
        with store.open() as entries:  # another run finds everything there, and asks nobody
            later = StoredModel(model, Local(), entries, Stopwatch())
            later.answers(questions(4), "test")
            assert later.description() == said
            assert (later.prompts_asked, later.cache_hits) == (0, 4)
    reply = stub.answer({"messages": questions(1)[0].prompt.messages(True), "n": 4}, chat=True)
    words = 8 * reply["usage"]["prompt_tokens"], 8 * reply["usage"]["completion_tokens"]
    assert said == {
        "name": "m",
        "server": proxy.base_url,
        **{f"capability.{name}": value for name, value in asdict(replace(TWO, choices=4)).items()},
        "pace.most_in_flight": 4,
        "pace.refusals": 0,
        "pace.paused_seconds": 0.0,
        "repeated_requests": 8,
        "cost": round((words[0] + 2 * words[1]) / 1e6, 6),
    }


def test_the_status_says_how_many_are_under_way_and_what_was_spent(known: Callable[[Capabilities], None], instant: str):
    known(TWO)
    free, priced = config(instant).load(), config(instant, prompt_price=1e6, completion_price=0.0).load()
    assert (free.status(), priced.status()) == ("", "cost 0.0000 USD")
    for model in (free, priced):
        model.check(questions(2))
        list(model.complete(questions(2), {request.item for request in questions(2)}))
    assert free.status() == "0 requests in flight"
    assert priced.status() == f"0 requests in flight, cost {priced.spending.spent:.4f} USD"


# ------------------------------------------------------------------------------------- servers that go wrong


def test_a_bad_question_with_many_answers_stops_nobody_else(known: Callable[[Capabilities], None]):
    """One of twelve, at the beginning, with twenty answers: those that are refused come back first."""
    known(replace(LLAMA, choices=1))

    def says(body: Body, headers: Mapping[str, str]) -> tuple[int, Any]:
        if "number 0." in body["messages"][-1]["content"]:
            return 400, refusal("too long")
        return 200, good(body)

    with scripted(says) as url:
        table = ask(config(url), NoStore(), questions(12, trials=10))
    errors = table.filter(pc.equal(table["outcome"], "error"))
    assert list(rows(errors, *PLACE)) == places([question(0, trials=10)])


@pytest.mark.parametrize(
    ("replies", "settings", "said"),
    [
        ([(401, "no", {})], {"requests_per_minute": 60}, "refuses to answer: 401 no"),
        ([(500, "later", {"retry-after": "60"}), (401, "no", {})], {}, "refuses to answer: 401 no"),
        ([(429, "daily limit", {"retry-after": "36000"})], {"total_timeout": 2}, "requests a back-off of 3"),
    ],
    ids=["of the rate limit", "before a retry", "of hours"],
)
def test_a_run_that_must_end_sits_out_no_wait(replies: list[tuple[int, str, Any]], settings: Any, said: str):
    left = iter(replies)

    def says(body: Body, headers: Mapping[str, str]) -> tuple[int, Any, Mapping[str, str]]:
        status, message, more = next(left, replies[-1])
        return status, refusal(message), more

    with scripted(says) as url, deadline(5), pytest.raises(UserError, match=said):
        ask(config(url, **settings), NoStore(), questions(30))


@pytest.mark.usefixtures("probing")
def test_a_higher_temperature_that_is_asked_for_later_is_tried_before_it_is_refused(instant: str):
    model = config(instant).load()
    model.check(questions(1, temperatures=(0.0,), trials=1))
    model.check(questions(1, temperatures=(1.0, 3.0)))


def changed_choice(reply: Body, **parts: Any) -> Body:
    return reply | {"choices": [choice | parts for choice in reply["choices"]]}


def test_a_budget_counts_answers_that_were_lost_on_the_way(known: Callable[[Capabilities], None], instant: str):
    known(TWO)
    with Proxy(instant, faults=["truncated"], rate=0.7, seed=1) as proxy:
        priced = config(proxy.base_url, max_concurrency=2, prompt_price=0.0, completion_price=1e6, budget=60.0)
        with pytest.raises(UserError, match=r"could exceed model\.budget=60 USD"):
            ask(priced, NoStore(), questions(REQUESTS))
        billed = sum(stub.answer(body, chat=True)["usage"]["completion_tokens"] for body in proxy.good)
    assert billed <= 60


def test_a_budget_ends_a_run_also_where_the_server_counts_no_tokens(known: Callable[[Capabilities], None]):
    known(TWO)
    with scripted(lambda body, headers: (200, good(body) | {"usage": None})) as url:
        priced = config(url, prompt_price=0.0, completion_price=1e6, budget=60.0)
        with pytest.raises(UserError, match=r"could exceed model\.budget=60 USD"):
            ask(priced, NoStore(), questions(REQUESTS))
