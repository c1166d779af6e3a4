import os
import resource
from collections.abc import Iterator

import pytest

from robust_eval.error import UserError
from robust_eval.runtime.process import RESERVED_FILES, allow_connections

FILES = resource.RLIMIT_NOFILE


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The limits of this process, which a test may change."""
    limits = [64, 64]
    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: limits.__setitem__(slice(None), wanted))
    monkeypatch.setattr(os, "listdir", lambda _: ["0"] * 10)
    return limits


def test_more_connections_than_files_are_refused_with_the_setting_and_the_limit(limits: list[int]):
    with pytest.raises(UserError) as refused:
        allow_connections(200, "model.max_concurrency")
    assert str(refused.value) == (
        f"model.max_concurrency=200 needs about {210 + RESERVED_FILES} open files, but the hard limit "
        "is 64 (ulimit -Hn): set "
        f"model.max_concurrency={54 - RESERVED_FILES}, or a higher limit"
    )
    assert limits == [64, 64]


def test_what_the_refusal_names_is_enough(limits: list[int]):
    allow_connections(54 - RESERVED_FILES, "model.max_concurrency")


def test_where_not_even_one_fits_no_number_is_named(limits: list[int]):
    limits[:] = [30, 30]
    with pytest.raises(UserError, match=r"the hard limit is 30 \(ulimit -Hn\): set a higher limit"):
        allow_connections(1, "model.max_concurrency")


@pytest.mark.parametrize("hard", [4096, resource.RLIM_INFINITY])
def test_a_limit_that_may_be_raised_is_raised(hard: int, limits: list[int]):
    limits[:] = [64, hard]
    allow_connections(200, "model.max_concurrency")
    assert limits == [210 + RESERVED_FILES, hard]


@pytest.mark.parametrize("soft", [1024, resource.RLIM_INFINITY])
def test_a_limit_that_is_enough_stays(soft: int, limits: list[int]):
    limits[:] = [soft, soft]
    allow_connections(200, "model.max_concurrency")
    assert limits == [soft, soft]
