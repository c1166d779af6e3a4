"""Runs of models behind services as their documentation describes them, killed five times each."""

import json
from pathlib import Path

import pytest
from documented_server import METHODS, SERVERS, THINKING, DocumentedServer, asks
from experiments import run_experiment
from killing_server import KillingServer
from open_store import stored_answers
from scripted_server import scripted_server
from shell import Shell


@pytest.mark.parametrize("settings", [METHODS, THINKING], ids=["methods", "thinking"])
@pytest.mark.parametrize("name", SERVERS)
def test_a_run_that_is_killed_five_times_asks_for_nothing_twice(
    name: str, settings: list[str], shell: Shell, tmp_path: Path
):
    answer = DocumentedServer(**SERVERS[name])
    with scripted_server(answer, honest=False) as server:
        lines = ["model=openai_compatible", f"model.base_url={server.url}", "model.model=m", "tracking=none"]
        lines += [f"paths.mlruns={tmp_path / 'mlruns'}", *settings]
        server.answer = killing = KillingServer(answer, asks, tmp_path / "mlruns")
        assert all(lost <= 0 for lost in killing.kills(shell, tmp_path, lines, [(1, True)] * 5))
        (tmp_path / "whole").mkdir()
        run_experiment(tmp_path / "whole", *lines)
    replies = sum(number * json.loads(body).get("n", 1) for body, number in killing.answered.items())
    assert replies == stored_answers(tmp_path / "mlruns")
