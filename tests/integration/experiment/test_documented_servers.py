"""Runs of models behind services as their documentation describes them: each method ends with figures."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from documented_server import METHODS, SERVERS, THINKING, DocumentedServer
from experiments import ask
from scripted_server import ScriptedServer, scripted_server

from robust_eval.error import UserError
from robust_eval.report.warnings import warnings

OWN_TEMPERATURE = ("opus 5", "gpt-5", "openrouter")
LETTERS = [
    *("experiment=certainty", "dataset.limit=3", "sampler.repetition.trials=2", "model.max_completion_tokens=300"),
    "sampler.repetition.structured=true",
]


@pytest.fixture(params=SERVERS, scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[ScriptedServer]:
    with scripted_server(DocumentedServer(**SERVERS[request.param]), honest=False) as server:
        yield server


def named(server: ScriptedServer) -> DocumentedServer:
    assert isinstance(server.answer, DocumentedServer)
    return server.answer


def test_repetition_rewording_and_challenge_end_with_figures(server: ScriptedServer, tmp_path: Path):
    figures = ask(server.url, tmp_path / "run", *METHODS).summary()
    own = named(server).name in OWN_TEMPERATURE
    for figure, temperature in (
        ("certainty.entropy", 0.7),
        ("agreement.accuracy", 1),
        ("challenge.unbroken_share", 0.3),
    ):
        assert figures[f"{figure}.{'own' if own else f't{temperature:g}'}"] is not None


def test_an_effort_that_a_service_drops_is_a_warning(server: ScriptedServer, tmp_path: Path):
    result = ask(server.url, tmp_path / "run", *THINKING)
    assert result.summary()[f"thinking.accuracy.{'own' if named(server).name in OWN_TEMPERATURE else 't1'}"] is not None
    is_warned = any("shows no significant increase in tokens" in caution.problem for caution in warnings(result))
    assert is_warned == ("reasoning_effort" in named(server).dropped)


def test_letters_come_as_a_service_restricts_them_or_are_refused(server: ScriptedServer, tmp_path: Path):
    if named(server).restricts:
        result = ask(server.url, tmp_path / "run", *LETTERS)
        assert set(result.graded_by_sampler["repetition"]["text"].to_pylist()) <= {*"ABCDE"}
        return
    with pytest.raises(UserError) as refused:
        ask(server.url, tmp_path / "run", *LETTERS)
    assert str(refused.value) == (
        f"sampler.structured=true: {server.url} restricts replies neither by a grammar nor by response_format with a "
        "JSON schema: remove it"
    )
