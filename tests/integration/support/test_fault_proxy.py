"""Every fault does on the wire what its name says, and the same requests meet the same faults."""

import hashlib
import json
import random
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx2
import pytest
from fault_proxy import CHANGED, FAULTS, INSTEAD, FaultProxy, Logged
from support import stub_server as stub

Body = dict[str, Any]
CHAT = {"model": "stub", "messages": [{"role": "user", "content": "What is the capital of France?"}], "n": 3, "seed": 1}
ONE = CHAT | {"n": 1}


class Received(NamedTuple):
    """What came over a connection until it ended, and how it ended."""

    head: str
    body: bytes
    end: str
    pieces: int

    @property
    def status(self) -> int:
        return int(self.head.split()[1])

    @property
    def headers(self) -> dict[str, str]:
        return dict(line.lower().split(": ", 1) for line in self.head.split("\r\n")[1:])

    @property
    def length(self) -> int:
        """The number of bytes that were announced."""
        return int(self.headers["content-length"])

    @property
    def error(self) -> Body:
        error: Body = json.loads(self.body)["error"]
        return error

    @property
    def choices(self) -> list[Body]:
        return list(json.loads(self.body)["choices"])


def send(url: str, request: Body | bytes, timeout: float = 30) -> Received:
    """A request over a raw socket, and everything that comes back."""
    content = request if isinstance(request, bytes) else json.dumps(request).encode()
    lines = [
        f"POST {urlsplit(url).path}/chat/completions HTTP/1.1",
        "Host: here",
        "Connection: close",
        f"Content-Length: {len(content)}",
    ]
    pieces = []
    with socket.create_connection((urlsplit(url).hostname, urlsplit(url).port or 80), timeout) as connection:
        connection.sendall("\r\n".join([*lines, "\r\n"]).encode() + content)
        try:
            while piece := connection.recv(65536):
                pieces.append(piece)
            end = "in order"
        except TimeoutError:
            end = "timeout"
        except ConnectionResetError:
            end = "reset"
    head, _, body = b"".join(pieces).partition(b"\r\n\r\n")
    return Received(head.decode(), body, end, len(pieces))


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    with stub.stub_server(seconds=0) as url:
        yield url


@pytest.fixture
def good(upstream: str) -> Received:
    """What the server itself answers."""
    with FaultProxy(upstream, rate=0) as proxy:
        return send(proxy.base_url, CHAT)


@pytest.fixture
def faulty(upstream: str) -> Callable[..., Received]:
    """What a request receives that meets a fault."""

    def ask(fault: str, request: Body | bytes = CHAT, timeout: float = 30, **settings: Any) -> Received:
        with FaultProxy(upstream, [fault], rate=1, **settings) as proxy:
            received = send(proxy.base_url, request, timeout)
            content = request if isinstance(request, bytes) else json.dumps(request).encode()
            assert proxy.log == [Logged(0, hashlib.sha256(content).hexdigest(), fault)]
            return received

    return ask


Ask = Callable[..., Received]


def test_without_a_fault_answer_and_connection_are_those_of_the_server(upstream: str) -> None:
    with FaultProxy(upstream, rate=0) as proxy, httpx2.Client() as client:
        direct = client.post(f"{upstream}/chat/completions", json=CHAT)
        for _ in range(3):
            passed = client.post(f"{proxy.base_url}/chat/completions", json=CHAT)
            assert (passed.status_code, passed.json() | {"created": 0}) == (200, direct.json() | {"created": 0})
        models = client.get(f"{proxy.base_url}/models")
        assert models.json() == client.get(f"{upstream}/models").json()
        assert [(number, fault) for number, _, fault in proxy.log] == [(0, None), (1, None), (2, None)]
        assert proxy.most_in_flight == 1
        proxy.clear()
        assert (proxy.log, proxy.most_in_flight) == ([], 0)


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        ("rate_limit", 429, "rate_limit_exceeded"),
        ("rate_limit_seconds", 429, "rate_limit_exceeded"),
        ("rate_limit_date", 429, "rate_limit_exceeded"),
        ("insufficient_quota", 429, "insufficient_quota"),
        ("server_error", 500, "server_error"),
        ("unavailable", 503, "service_unavailable"),
        ("prompt_filtered", 400, "content_filter"),
    ],
)
def test_an_error_has_its_status_and_its_code(faulty: Ask, fault: str, status: int, code: str) -> None:
    received = faulty(fault)
    assert (received.status, received.error["code"], received.length) == (status, code, len(received.body))


def test_there_is_a_test_of_each_fault() -> None:
    assert len(FAULTS) == len(set(FAULTS)) == 1 + 7 + 5 + 3
    assert (len(INSTEAD), len(CHANGED)) == (7, 5)


def test_the_time_to_wait_is_told_in_seconds_as_a_date_or_not_at_all(faulty: Ask) -> None:
    assert "retry-after" not in faulty("rate_limit").headers
    assert "retry-after" not in faulty("insufficient_quota").headers
    assert faulty("rate_limit_seconds", retry_after=2.5).headers["retry-after"] == "2.5"
    earliest = datetime.now(UTC) + timedelta(seconds=60)
    date = parsedate_to_datetime(faulty("rate_limit_date", retry_after=60).headers["retry-after"])
    assert earliest <= date <= datetime.now(UTC) + timedelta(seconds=61)


def test_a_filtered_prompt_says_which_category_it_was(faulty: Ask) -> None:
    inner = faulty("prompt_filtered").error["innererror"]
    assert inner["code"] == "ResponsibleAIPolicyViolation"
    assert [name for name, result in inner["content_filter_result"].items() if result["filtered"]] == ["violence"]


def test_a_request_that_hangs_receives_nothing(faulty: Ask) -> None:
    assert faulty("hang", timeout=0.3) == Received("", b"", "timeout", 0)


def test_a_reset_comes_in_the_middle_of_the_body(faulty: Ask, good: Received) -> None:
    received = faulty("reset")
    assert (received.status, received.length, received.end) == (200, good.length, "reset")
    assert len(received.body) == good.length // 2


def test_a_truncated_body_is_shorter_than_announced(faulty: Ask, good: Received) -> None:
    received = faulty("truncated")
    assert (received.status, received.length, received.end) == (200, good.length, "in order")
    assert len(received.body) == good.length // 2


def test_malformed_json_is_as_long_as_announced(faulty: Ask) -> None:
    received = faulty("malformed_json")
    assert (received.status, received.end, received.length) == (200, "in order", len(received.body))
    with pytest.raises(json.JSONDecodeError):
        json.loads(received.body)


def test_of_fewer_choices_the_first_is_left(faulty: Ask, good: Received) -> None:
    assert len(good.choices) == 3
    assert (faulty("fewer_choices").status, faulty("fewer_choices").choices) == (200, good.choices[:1])


def test_there_may_be_no_choices(faulty: Ask) -> None:
    assert (faulty("no_choices").status, faulty("no_choices").choices) == (200, [])


def test_a_filtered_reply_is_empty_and_the_other_choices_stay(faulty: Ask, good: Received) -> None:
    first, *others = faulty("reply_filtered", CHAT | {"logprobs": True}).choices
    assert first == {
        "index": 0,
        "finish_reason": "content_filter",
        "message": {"role": "assistant", "content": "", "refusal": None},
    }
    assert [choice["message"] for choice in others] == [choice["message"] for choice in good.choices[1:]]


def test_a_reply_that_is_broken_off_has_half_of_its_text_and_the_other_choices_stay(
    faulty: Ask, good: Received
) -> None:
    first, *others = faulty("broken_off", CHAT | {"logprobs": True}).choices
    whole = good.choices[0]["message"]["content"]
    assert first["message"]["content"] == whole[: len(whole) // 2]
    assert (first["finish_reason"], first["error"]["code"], "logprobs" in first) == ("error", 502, False)
    assert [choice["message"] for choice in others] == [choice["message"] for choice in good.choices[1:]]


def test_a_body_that_trickles_is_whole_but_takes_its_time(faulty: Ask, good: Received) -> None:
    start = time.monotonic()
    received = faulty("trickle", slow=0.4)
    assert time.monotonic() - start > 0.39
    assert (received.status, received.choices, received.end) == (200, good.choices, "in order")
    assert received.pieces > 2


def test_what_changes_nothing_is_no_fault(upstream: str) -> None:
    with FaultProxy(upstream, ["fewer_choices"], rate=1) as proxy:
        assert len(send(proxy.base_url, ONE).choices) == 1
        assert [logged.fault for logged in proxy.log] == [None]
    with FaultProxy(upstream, ["reset"], rate=1) as proxy:
        assert send(proxy.base_url, b"no JSON").status == 400
        assert [logged.fault for logged in proxy.log] == [None]


def test_a_server_that_cannot_be_reached_is_a_bad_gateway() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with FaultProxy(f"http://127.0.0.1:{unused.getsockname()[1]}/v1", rate=0) as proxy:
            assert send(proxy.base_url, CHAT).status == 502


def test_a_fault_that_there_is_not_is_refused(upstream: str) -> None:
    with pytest.raises(ValueError, match="no such fault: earthquake"):
        FaultProxy(upstream, ["reset", "earthquake"])


QUICK = sorted({*INSTEAD, *CHANGED})


def met(upstream: str, bodies: list[Body], **settings: Any) -> dict[str, list[str | None]]:
    """The faults that each body met, in order."""
    faults = defaultdict(list)
    with FaultProxy(upstream, QUICK, **settings) as proxy:
        for body in bodies:
            send(proxy.base_url, body)
        for _, digest, fault in proxy.log:
            faults[digest].append(fault)
    return faults


def test_the_same_bodies_meet_the_same_faults_in_whatever_order_they_come(upstream: str) -> None:
    bodies = [CHAT | {"seed": seed} for seed in range(60)] * 2
    faults = met(upstream, bodies, seed=1)
    random.Random(0).shuffle(bodies)
    assert met(upstream, bodies, seed=1) == faults
    assert met(upstream, bodies, seed=2) != faults
    count = sum(fault is not None for both in faults.values() for fault in both)
    assert 10 <= count <= 40  # 24 are expected
    assert any((first is None) != (second is None) for first, second in faults.values())


def test_a_body_meets_so_many_faults_in_a_row_at_most(upstream: str) -> None:
    ((first, second, *others),) = met(upstream, [CHAT] * 6, rate=1, times=2).values()
    assert None not in (first, second, others[1], others[2])
    assert (others[0], others[3]) == (None, None)


def test_a_fault_that_repeats_is_the_same_one_each_time(upstream: str) -> None:
    bodies = [CHAT | {"seed": seed} for seed in range(20)] * 3
    always = met(upstream, bodies, rate=0.5, repeats=True)
    assert all(len(set(faults)) == 1 for faults in always.values())
    assert {faults[0] is None for faults in always.values()} == {True, False}
    once = met(upstream, bodies, rate=0.5, repeats=True, times=1)
    assert once == {digest: [first, None, last] for digest, (first, _, last) in always.items()}


@contextmanager
def hanging(url: str) -> Iterator[None]:
    """A request that is in flight."""
    content = json.dumps(CHAT).encode()
    with socket.create_connection((urlsplit(url).hostname, urlsplit(url).port or 80)) as connection:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: {len(content)}\r\n\r\n"
        connection.sendall(head.encode() + content)
        yield


def test_the_most_requests_in_flight_at_once_are_counted(upstream: str) -> None:
    with FaultProxy(upstream, ["hang"], rate=1) as proxy:
        deadline = time.monotonic() + 30
        with hanging(proxy.base_url), hanging(proxy.base_url), hanging(proxy.base_url):
            while len(proxy.log) < 3 and time.monotonic() < deadline:
                time.sleep(0.01)
        assert [logged.fault for logged in proxy.log] == ["hang"] * 3
        assert proxy.most_in_flight == 3
