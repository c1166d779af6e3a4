"""Runs with reasoning, challenges and orders of a model behind a server, killed again and again."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from experiments import run_experiment
from killing_server import KillingServer
from numbered_server import asks, settings, thoughtful, yielding
from scripted_server import Answer, ScriptedServer, chat_reply, scripted_server
from shell import Shell

THOUGHT = [
    *("experiment=thinking", "model.takes_temperature=false", "model.max_completion_tokens=400"),
    *("sampler.thinking.budgets=[none,low,high]", "sampler.thinking.traces=2"),
]
DOUBT = ["experiment=challenge", "model.highest_temperature=2", "sampler.challenge.turns=3"]
DOUBT += ["sampler.challenge.trials=2", "sampler.challenge.temperatures=[1.0]"]
ORDER = ["experiment=multiqa", "metric=[agreement,order]", "aggregator=text", "model.highest_temperature=2"]
ORDER += ["sampler.perturbation.orders=rotations", "sampler.perturbation.forms=[numbers]"]
KILLS = [(1, True), (2, False)]
"""After how many answers of its life a run is killed, and whether all of them are stored by then."""


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server(thoughtful) as server:
        yield server


@pytest.mark.parametrize(
    ("lines", "answer"),
    [(THOUGHT, thoughtful), (DOUBT, yielding), (ORDER, lambda body: chat_reply("A"))],
    ids=["thought", "doubt", "order"],
)
def test_a_run_that_is_killed_again_and_again_asks_for_nothing_twice_that_is_stored(
    server: ScriptedServer, shell: Shell, tmp_path: Path, lines: list[str], answer: Answer
):
    undisturbed, disturbed = ((tmp_path / name) for name in ("undisturbed", "disturbed"))
    for folder in (undisturbed, disturbed):
        (folder / "run").mkdir(parents=True)
    server.answer = answer
    run_experiment(undisturbed / "run", *settings(server, undisturbed, 4, lines is ORDER), *lines)
    planned = sum(map(asks, server.bodies))

    server.answer = killing = KillingServer(answer, asks, disturbed / "mlruns")
    lines = [*settings(server, disturbed, 4, lines is ORDER), *lines]
    lost = list(killing.kills(shell, tmp_path, lines, KILLS))
    run_experiment(disturbed / "run", *lines)
    assert lost[0] == 0
    assert len(killing.answered) == planned
    assert killing.answered.total() == planned + sum(lost)
    expected, found = (pd.read_parquet(folder / "run" / "graded.parquet") for folder in (undisturbed, disturbed))
    pd.testing.assert_frame_equal(found, expected)
