"""A sweep that asks no more than breaking temperatures need, ended again and again: nothing is asked twice."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fading_server import UNDECIDED, FadingServer, answers, ask, asked_of, scored, settings
from killing_server import KillingServer
from scripted_server import ScriptedServer, scripted_server
from shell import Shell

from robust_eval.error import UserError

KILLS = 2


@pytest.fixture
def served() -> Iterator[ScriptedServer]:
    with scripted_server(FadingServer()) as server:
        yield server


def test_a_run_whose_key_is_refused_again_and_again_asks_for_nothing_twice(served: ScriptedServer, tmp_path: Path):
    undisturbed = ask(served, tmp_path, UNDECIDED, store="undisturbed")
    served.answer = server = FadingServer()
    for part in range(2):
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
    fading = FadingServer()
    served.answer = killing = KillingServer(fading, lambda body: asked_of(body) is not None, tmp_path / "store")
    lines = [*settings(served, tmp_path / "store"), UNDECIDED]
    moments = [(5 + part, True) for part in range(KILLS)]
    assert list(killing.kills(shell, tmp_path, lines, moments)) == [0] * KILLS
    result = ask(served, tmp_path, UNDECIDED)
    assert answers(result) == answers(undisturbed)
    assert scored(result) == scored(undisturbed)
    assert set(fading.answered.values()) == {1}
