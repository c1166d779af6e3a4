"""Whole runs of a model behind a server, from the questions to the report."""

import contextlib
import json
import logging
import os
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pyarrow.parquet as pq
import pytest
from api_server import api_server
from experiments import run_experiment
from fading_server import FadingServer
from fault_proxy import FaultProxy
from scripted_server import Body, Scripted, ScriptedServer, scripted_server
from shell import Shell

from robust_eval.config.overrides import checked_overrides
from robust_eval.config.schema import register
from robust_eval.error import UserError
from robust_eval.model.served import completions
from robust_eval.tracking.result import Result

Ask = Callable[..., tuple[Result, Path]]
KEY = "sk-planted-0123456789"
SWEEP = ["sampler.temperature_sweep.temperatures=[0.5,1.0,2.0]", "sampler.temperature_sweep.trials=3"]
REPETITION = ["sampler.repetition.trials=4", "sampler.repetition.max_new_tokens=6"]
PERTURBATION = ["sampler.perturbation.rewrites=2", "sampler.perturbation.max_new_tokens=6"]


@pytest.fixture(scope="module")
def proxy() -> Iterator[FaultProxy]:
    """One that injects nothing but counts, in front of llama.cpp's server."""
    with api_server() as url, FaultProxy(url, rate=0.0) as started:
        yield started


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where it is remembered what the server can do, but for this module."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def private_cache(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setattr("robust_eval.runtime.cache.cache_folder", lambda: cache)


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory, proxy: FaultProxy) -> Ask:
    """Run an experiment with the model behind the server; all share a store."""
    mlruns = tmp_path_factory.mktemp("mlruns")

    def run(*overrides: str) -> tuple[Result, Path]:
        register()
        place = tmp_path_factory.mktemp("run")
        settings = ["dataset.limit=8", "tracking=none", f"paths.mlruns={mlruns}"]
        if not any(line.startswith("model=") for line in overrides):
            settings += ["model=openai_compatible", f"model.base_url={proxy.base_url}", "model.model=smollm2"]
        checked = checked_overrides([*settings, *overrides])
        return run_experiment(place, *checked.overrides), place

    return run


PROFILE = [
    "experiment=profile",
    "aggregator=text",
    "sampler.temperature_sweep.selection=contains",
    *("sampler.challenge.turns=1", "sampler.challenge.trials=2"),
    *SWEEP,
    *PERTURBATION,
    *REPETITION,
]
"""Each method at once."""
FIGURES = {"profile.robust", "frs.d1", "accuracy.t1", "agreement.accuracy.t1", "certainty.error_rate.t0.7"}


def test_a_profile_runs_with_a_server_and_then_finds_everything_in_the_store(ask: Ask, proxy: FaultProxy):
    result, folder = ask(*PROFILE)
    assert result.prompts_asked > 0
    answers = pq.read_table(folder / "answers.parquet")
    assert set(answers["outcome"].to_pylist()) <= {"ok", "empty"}
    places = answers.select(["sampler", "question_id", "rewrite", "temperature", "trial"]).to_pylist()
    assert len(set(map(str, places))) == len(places)
    summary = json.loads((folder / "summary.json").read_text())
    assert summary == result.summary() | {name: summary[name] for name in summary if summary[name] is None}
    for name in FIGURES:
        assert np.isfinite(summary[name])
    assert proxy.base_url in (folder / "report.html").read_text()

    sent = len(proxy.log)
    again, second = ask(*PROFILE)
    assert len(proxy.log) == sent
    assert (again.prompts_asked, again.cache_hits) == (0, result.prompts_asked + result.cache_hits)
    assert pq.read_table(second / "answers.parquet") == answers
    np.testing.assert_equal(figures(again), figures(result))


def figures(result: Result) -> dict[str, float]:
    return {name: value for score in result.scores.values() for name, value in score.flat().items()}


def test_a_model_behind_a_server_is_found_as_robust_as_the_same_one_in_this_process(ask: Ask):
    settings = [
        "dataset.limit=24",
        "sampler.selection=contains",
        "sampler.temperatures=[0.5,1.0,2.0]",
        "sampler.trials=4",
    ]
    served_model, _ = ask(*settings)
    here, _ = ask("model=smollm2_135m", "model.prompt_style=chat", "engine.threads=1", *settings)
    theirs, ours = served_model.scores["frs"].values, here.scores["frs"].values
    kept = [{question.id for question in result.kept} for result in (served_model, here)]
    assert len(kept[0] & kept[1]) >= 0.9 * len(kept[0] | kept[1])
    assert len(kept[0] & kept[1]) >= 6
    assert abs(theirs["frs.entropy.mean"].value - ours["frs.entropy.mean"].value) < 0.02
    for name in ("frs.d1", "frs.d2"):
        if name in ours:
            assert theirs[name].low <= ours[name].high
            assert ours[name].low <= theirs[name].high
    for temperature in ("0.5", "1", "2"):
        mine, other = (result.summary()[f"accuracy.t{temperature}"] for result in (here, served_model))
        assert abs(mine - other) < 0.25  # type: ignore[operator]


# ---------------------------------------------------------------------------------------------------- the key


def holding(folder: Path, secret: str) -> list[str]:
    """The files that hold a secret, also as the text of a table or of a database."""
    found = []
    for file in folder.rglob("*"):
        if not file.is_file():
            continue
        content = file.read_bytes()
        if file.suffix == ".parquet":
            content += str(pq.read_table(file).to_pydict()).encode()
        if content.startswith(b"SQLite format 3"):
            with sqlite3.connect(file) as connection:
                content += "\n".join(connection.iterdump()).encode()
            connection.close()
        if secret.encode() in content:
            found.append(file.name)
    return found


class Crash:
    """Raises what nobody expects, once ``after`` replies were read."""

    def __init__(self, after: int) -> None:
        self.left = after
        self.whole = completions.completions

    def __call__(self, *arguments: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("what nobody expects")
        return self.whole(*arguments)


@pytest.fixture
def fading(tmp_path: Path) -> Iterator[tuple[ScriptedServer, list[str]]]:
    """A server that wants a key, and the settings of a tracked run that asks it."""
    with scripted_server(FadingServer()) as server:
        yield (
            server,
            [
                *("model=openai_compatible", f"model.base_url={server.url}", "model.model=m", "model.retries=0"),
                *("model.api_key_env=PLANTED_KEY", "tracking=mlflow", f"paths.mlruns={tmp_path / 'mlruns'}"),
                *("dataset.limit=6", *SWEEP),
            ],
        )


@pytest.mark.parametrize("end", ["success", "key refused", "bad requests", "crash"])
def test_a_key_is_found_nowhere_whatever_becomes_of_the_run(
    fading: tuple[ScriptedServer, list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    end: str,
):
    server, settings = fading
    monkeypatch.setenv("PLANTED_KEY", KEY)
    monkeypatch.setattr("robust_eval.runtime.cache.cache_folder", lambda: tmp_path / "cache")
    caplog.set_level(logging.DEBUG)
    folder = tmp_path / "run"
    folder.mkdir()
    if end == "success":
        run_experiment(folder, *settings)
        assert server.received[-1].headers["authorization"] == f"Bearer {KEY}"
    elif end == "crash":
        monkeypatch.setattr(completions, "completions", Crash(after=15))
        with pytest.raises(RuntimeError, match="what nobody expects"):
            run_experiment(folder, *settings)
    else:
        status, said = (401, f"Incorrect API key provided: {KEY}.") if end == "key refused" else (400, f"Who is {KEY}?")
        server.answer = lambda _: (status, {}, {"error": {"message": said, "type": "invalid", "code": said}})
        with pytest.raises(UserError) as problem:
            run_experiment(folder, *settings)
        assert "…" in str(problem.value)
        assert KEY not in str(problem.value)
    printed = "".join(capfd.readouterr())
    assert KEY not in caplog.text + printed
    assert holding(tmp_path, KEY) == []

    if end in ("key refused", "bad requests"):  # nothing was asked, and nothing is left
        assert not folder.exists()
        assert holding(tmp_path, "PLANTED_KEY") == []
        return
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'mlruns' / 'mlflow.db'}")
    (recorded,) = client.search_runs(["1"])
    assert recorded.info.status == ("FINISHED" if end == "success" else "FAILED")
    assert recorded.data.params["model.api_key_env"] == "PLANTED_KEY"  # the search looks where it should
    assert holding(tmp_path, "PLANTED_KEY")
    assert (end == "crash") == bool(holding(tmp_path, "Traceback") and holding(tmp_path, "what nobody expects"))


def test_a_key_is_in_no_file_of_the_home_and_in_no_argument_of_a_process_that_is_killed(
    fading: tuple[ScriptedServer, list[str]], shell: Shell, tmp_path: Path
):
    server, settings = fading
    served, waiting, killed = FadingServer(), threading.Event(), threading.Event()

    def answer(body: Body) -> Scripted:
        """Nothing any more, once twenty answers have come."""
        if served.answered.total() == 20:
            waiting.set()
            killed.wait(60)
        return served(body)

    def kill(process: int) -> None:
        waiting.wait(60)
        arguments = arguments_of_all_processes()
        os.kill(process, signal.SIGKILL)
        killed.set()
        assert KEY not in arguments

    server.answer = answer
    ended = shell.python(
        ["run.py", *settings, "model.max_concurrency=1"], meanwhile=kill, PLANTED_KEY=KEY, HOME=str(tmp_path)
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert KEY not in ended.stdout + ended.stderr
    assert holding(tmp_path, "PLANTED_KEY")  # the search looks where it should
    assert holding(tmp_path, KEY) == []


def arguments_of_all_processes() -> str:
    arguments = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            arguments.append(file.read_text(errors="replace"))
    return "\n".join(arguments)
