import logging
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from robust_eval.engine import thread_count
from robust_eval.engine.local import Local
from robust_eval.engine.thread_count import fastest_threads


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine of four processors, of which torch uses two by its own choice, and which remembers nothing yet."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    monkeypatch.setattr("robust_eval.runtime.cache.cache_folder", lambda: tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    yield tmp_path / "threads"
    torch.set_num_threads(before)


def seconds(monkeypatch: pytest.MonkeyPatch, by_threads: dict[int, float]) -> None:
    monkeypatch.setattr(thread_count, "_seconds", lambda work, threads: by_threads[threads])


@pytest.mark.parametrize(
    ("by_threads", "fastest"),
    [
        pytest.param({1: 4.0, 2: 2.0, 4: 1.0}, 4, id="two threads of a core pay"),
        pytest.param({1: 1.0, 2: 2.0, 4: 4.0}, 1, id="a quota of one processor"),
        pytest.param({1: 4.0, 2: 2.0, 4: 1.9}, 2, id="torch's own number where another is hardly faster"),
    ],
)
def test_the_fastest_number_of_threads_is_taken(
    monkeypatch: pytest.MonkeyPatch, by_threads: dict[int, float], fastest: int
):
    seconds(monkeypatch, by_threads)
    assert fastest_threads() == fastest
    assert torch.get_num_threads() == 2  # measuring sets nothing


def test_the_number_is_remembered_and_said(
    monkeypatch: pytest.MonkeyPatch, memory: Path, caplog: pytest.LogCaptureFixture
):
    seconds(monkeypatch, {1: 1.0, 2: 2.0, 4: 4.0})
    assert fastest_threads() == 1
    assert [file.read_text() for file in memory.iterdir()] == ["1"]
    seconds(monkeypatch, {1: 4.0, 2: 2.0, 4: 1.0})
    with caplog.at_level(logging.INFO):
        assert fastest_threads() == 1
    assert caplog.messages == ["torch threads: 1, the fastest of 1, 2, 4 on this machine"]


@pytest.mark.parametrize("content", [b"", b"\xff", b"3", b"1\n1"], ids=["empty", "no text", "no choice", "two"])
def test_a_memory_that_cannot_be_read_is_measured_anew(monkeypatch: pytest.MonkeyPatch, memory: Path, content: bytes):
    seconds(monkeypatch, {1: 1.0, 2: 2.0, 4: 4.0})
    fastest_threads()
    (file,) = memory.iterdir()
    file.write_bytes(content)
    seconds(monkeypatch, {1: 4.0, 2: 2.0, 4: 1.0})
    assert fastest_threads() == 4
    assert file.read_text() == "4"


def test_a_real_measurement_chooses_one_of_the_numbers():
    assert fastest_threads() in (1, 2, 4)


@pytest.mark.parametrize(("given", "used"), [(None, 4), (3, 3)])
def test_the_engine_computes_with_the_given_number_or_the_fastest(
    monkeypatch: pytest.MonkeyPatch, given: int | None, used: int
):
    seconds(monkeypatch, {1: 4.0, 2: 2.0, 4: 1.0})
    Local(threads=given).load(SimpleNamespace(uses_torch=True, load=lambda: SimpleNamespace(complete=list)))
    assert torch.get_num_threads() == used
