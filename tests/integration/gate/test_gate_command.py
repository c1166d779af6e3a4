"""A gate of a model behind a server: what it asks, and how it ends when something is away."""

import html
import json
import math
import re
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlflow
import pyarrow.parquet as pq
import pytest
import yaml
from experiments import run_experiment
from json_lines import cases
from junitparser import JUnitXml
from numbered_server import settings, write_questions
from scripted_server import Body, ScriptedServer, certain_reply, scripted_server

from robust_eval.cli import gate
from robust_eval.gate.baselines import set_baseline

QUESTIONS = 200


@dataclass
class Server:
    """Knows the answers to numbers from ``known`` on, holds each up to a temperature of its own, or fails."""

    known: int = 0
    firmer: float = 0.0
    refuses: bool = False
    fails: bool = False

    def __call__(self, body: Body) -> tuple[int, Mapping[str, str], Any]:
        text, t, seed = body["messages"][-1]["content"], body.get("temperature", 1.0), body.get("seed", 0)
        found = re.findall(r"number (\d+)\?", text)
        if body.get("n", 1) > 1:
            return 400, {}, {"error": {"message": "one choice at a time", "code": None}}
        if not found:
            return certain_reply("a llama")
        if self.refuses:
            return 401, {}, {"error": {"message": "no such key", "code": "invalid_api_key"}}
        number, drawn = int(found[-1]), zlib.crc32(f"{found[-1]} {t!r} {seed}".encode()) % 1000 / 1000
        if self.fails and t > 0 and drawn < 0.2:
            return 400, {}, {"error": {"message": "bad luck", "code": None}}
        firm = 0.6 + zlib.crc32(found[-1].encode()) % 101 / 100 + self.firmer
        right = number >= self.known and (t == 0 or drawn < 1.5 - t / firm)
        return certain_reply(f"word{number}" if right else "Xanadu")


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server(Server()) as server:
        yield server


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with questions and a baseline that knows all the answers."""
    place = tmp_path_factory.mktemp("measured")
    folder = place / "mlruns" / "runs" / "base"
    folder.mkdir(parents=True)
    with scripted_server(Server()) as server:
        run_experiment(
            folder,
            *(*settings(server, place, QUESTIONS), "experiment=frs", "model.retries=0"),
            *("sampler.temperature_sweep.trials=1", "sampler.temperature_sweep.temperatures=[0.5,1]"),
        )
    return place


@pytest.fixture
def place(measured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the baseline."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(measured / "mlruns" / "runs", tmp_path / "mlruns" / "runs")
    return tmp_path


Gate = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def gated(place: Path, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> Gate:
    """The exit status and the verdict of a candidate behind the same server, without figures."""
    monkeypatch.setattr("robust_eval.plot.figure_files.registered", list)

    def gated(*words: str, baseline: str = "mlruns/runs/base") -> tuple[int, dict[str, Any]]:
        own = [f"model.base_url={server.url}", "model.name=new"]
        for group in ("store", "tracking"):
            if not any(word.startswith(f"{group}=") for word in words):
                own.append(f"{group}=none")
        arguments = ["gate", baseline, *(own if not words or "=" in words[0] else ()), *words, "--output", "out"]
        monkeypatch.setattr("sys.argv", arguments)
        with pytest.raises(SystemExit) as ended:
            gate.main()
        file = place / "out" / "verdict.json"
        found = json.loads(file.read_text()) if file.is_file() else {}
        return int(ended.value.code or 0), found

    return gated


def test_it_runs_the_candidate_and_fails_one_that_forgot_facts_and_is_firmer_on_the_rest(
    gated: Gate, server: ScriptedServer, place: Path
):
    server.answer = Server(known=30, firmer=0.6)
    status, found = gated()
    assert (status, found["outcome"]) == (1, "FAIL")
    knowledge, firmness = found["metrics"]
    assert (knowledge["outcome"], knowledge["n"], knowledge["difference"]) == ("FAIL", 200, -0.15)
    assert (firmness["outcome"], firmness["n"]) == ("PASS", 170)
    assert firmness["difference"] > 0.02
    assert {fact["question_id"] for fact in found["facts"]["forgotten"]} == {f"q{number}" for number in range(30)}
    (suite,) = JUnitXml.fromfile(str(place / "out" / "junit.xml"))
    assert (suite.failures, suite.errors) == (2, 0)


def test_a_run_against_itself_passes_and_says_that_the_answers_are_identical(
    gated: Gate, capsys: pytest.CaptureFixture[str]
):
    status, found = gated("mlruns/runs/base")
    assert (status, found["outcome"], found["identical"]) == (0, "PASS", True)
    assert found["reasons"] == ["The answers of both runs are identical."]
    assert "The answers of both runs are identical." in capsys.readouterr().out


def test_a_candidate_that_knows_nothing_fails_on_knowledge_and_as_a_baseline_gates_knowledge_alone(
    gated: Gate, server: ScriptedServer, place: Path, capsys: pytest.CaptureFixture[str]
):
    server.answer = Server(known=QUESTIONS)
    status, found = gated("dataset.limit=60")
    assert (status, found["outcome"]) == (1, "FAIL")
    knowledge, firmness = found["metrics"]
    assert (knowledge["outcome"], knowledge["n"], knowledge["candidate"]) == ("FAIL", 60, 0)
    assert (firmness["outcome"], firmness["n"], firmness["candidate"]) == ("INCONCLUSIVE", 0, None)
    assert "no fact has a value in both runs" in found["reasons"][1]
    assert len(found["facts"]["forgotten"]) == 60
    (folder,) = (file.parent for file in place.glob("mlruns/runs/*/*/questions.parquet"))
    assert (folder / "error.txt").read_text().startswith("none of the questions passes sampler.selection")
    assert not (folder / "summary.json").exists()
    status, again = gated(str(folder))
    assert status == 1
    assert again["metrics"] == found["metrics"]
    status, found = gated("mlruns/runs/base", baseline=str(folder))
    assert (status, [each["difference"] for each in found["metrics"]]) == (0, [1])
    assert "PASS: the candidate may replace the baseline, judged on knowledge alone." in capsys.readouterr().out


def test_a_candidate_that_knows_nothing_is_not_asked_for_longer_than_it_takes(gated: Gate, server: ScriptedServer):
    server.answer = Server(known=QUESTIONS)
    status, found = gated("early_stop=true")
    assert (status, found["outcome"]) == (1, "FAIL")
    assert found["asked"] == {"taken": 30, "left": QUESTIONS - 30}


def test_a_candidate_that_knows_nothing_fails_again_by_its_stored_answers(gated: Gate, server: ScriptedServer):
    server.answer = Server(known=QUESTIONS)
    first = gated("dataset.limit=60", "store=sqlite")
    received = len(server.received)
    again = gated("dataset.limit=60", "store=sqlite")
    assert [(status, found["outcome"]) for status, found in (first, again)] == [(1, "FAIL")] * 2
    assert again[1]["metrics"] == first[1]["metrics"]
    assert len(server.received) == received


def test_candidates_in_mlflow_get_the_verdict_and_are_found_by_their_ids(
    gated: Gate,
    server: ScriptedServer,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    server.answer = Server(known=10)
    _, found = gated("tracking=mlflow", "dataset.limit=40")
    client = mlflow.MlflowClient(f"sqlite:///{place}/mlruns/mlflow.db")
    (run,) = client.search_runs([client.get_experiment_by_name("robust_eval").experiment_id])
    tags = {name: value for name, value in run.data.tags.items() if name.startswith("gate.")}
    assert tags == {
        "gate.verdict": "FAIL",
        "gate.baseline": "mlruns/runs/base",
        "gate.accuracy.greedy": "FAIL",
        "gate.frs.d1": found["metrics"][1]["outcome"],
    }
    assert {name: value for name, value in run.data.metrics.items() if name.startswith("gate.")} == {
        f"gate.{figure['name']}.{key}": pytest.approx(figure[key])
        for figure in found["metrics"]
        for key in ("difference", "low", "high")
    }
    status, again = gated(run.info.run_id)
    assert (status, again["metrics"]) == (1, found["metrics"])
    monkeypatch.setattr("sys.argv", ["baseline", "set", "new", run.info.run_id])
    gate.baseline()
    (place / "new").mkdir()  # a folder that is no run hides no baseline
    status, again = gated(run.info.run_id, baseline="new")
    assert (status, again["identical"]) == (0, True)
    assert gated("0" * 32)[0] == 2
    assert "no run with this id" in " ".join(capsys.readouterr().err.split())

    for server.answer in (Server(known=QUESTIONS), Server(refuses=True)):
        gated("tracking=mlflow", "dataset.limit=40")
    ids = {
        run.data.tags["error"].partition(":")[0]: run.info.run_id
        for run in client.search_runs([run.info.experiment_id], "attributes.status = 'FAILED'")
    }
    status, found = gated(ids["NothingKeptError"])
    assert (status, found["outcome"], found["metrics"][0]["candidate"]) == (1, "FAIL", 0)
    status, found = gated(ids["OutageError"])
    assert (status, found["outcome"], found["metrics"]) == (3, "INCONCLUSIVE", [])
    assert "has not finished (FAILED): OutageError: " in found["reasons"][0]


def test_facts_that_break_earlier_are_listed_where_trials_stopped_early(
    gated: Gate, server: ScriptedServer, place: Path
):
    early = ("sampler.early_stop=true", "sampler.trials=1", "dataset.limit=40")
    base = place / "mlruns" / "runs" / "base" / "config.yaml"
    base.write_text(base.read_text().replace("early_stop: false", "early_stop: true"))
    _, found = gated(*early)
    (folder,) = (file.parent for file in place.glob("mlruns/runs/*/*/summary.json"))
    server.answer = Server(firmer=-0.4)
    _, found = gated(*early, baseline=str(folder))
    (other,) = (file.parent for file in place.glob("mlruns/runs/*/*/summary.json") if file.parent != folder)
    before, after = (_breaking(run) for run in (folder, other))
    assert {fact["question_id"] for fact in found["facts"]["less_robust"]} == {
        name for name in before if after[name] < before[name]
    }
    assert len(found["facts"]["less_robust"]) > 5
    assert found["facts"]["note"].startswith("Trials stopped early")
    report = (folder / "report.html").read_text()
    assert "sampler.early_stop=true requested only what breaking temperatures need." in report


def _breaking(folder: Path) -> dict[str, float]:
    """Where each fact breaks; infinite where it does not."""
    table = pq.read_table(folder / "frs.parquet").to_pydict()
    breaks = [math.inf if t is None or math.isnan(t) else t for t in table["breaking_temperature"]]
    return dict(zip(table["question_id"], breaks, strict=True))


def test_it_ends_when_it_is_decided(gated: Gate, server: ScriptedServer, place: Path):
    server.answer = Server(known=190)
    status, found = gated("early_stop=true")
    (report,) = place.glob("mlruns/runs/*/*/report.html")
    text = " ".join(html.unescape(re.sub(r"<[^>]*>", " ", report.read_text(encoding="utf-8"))).split())
    sentence = f"The gate's early_stop=true left {found['asked']['left']} of {QUESTIONS} questions unasked."
    assert f"{sentence} Omit early_stop=true to ask all." in text
    assert (status, found["outcome"]) == (1, "FAIL")
    assert found["asked"]["taken"] + found["asked"]["left"] == QUESTIONS
    assert found["asked"]["left"] > 100
    assert found["metrics"][0]["n"] == found["asked"]["taken"]


DEAR = ("model.prompt_price=1000", "model.completion_price=1000", "model.budget=1")


@pytest.mark.parametrize(
    ("answer", "words", "said"),
    [
        (Server(refuses=True), (), "no such key"),
        (Server(), ("model.base_url=http://127.0.0.1:9/v1",), "127.0.0.1:9"),
        (Server(fails=True), ("model.max_error_rate=0.02", "dataset.limit=100"), "failed"),
        (Server(fails=True), ("model.max_error_rate=1", "dataset.limit=100"), "are missing"),
        (Server(), DEAR, "could exceed model.budget=1 USD"),
    ],
    ids=["key refused", "server away", "errors of the run", "errors of the gate", "budget spent"],
)
def test_a_candidate_whose_answers_do_not_come_leaves_it_open(
    gated: Gate, server: ScriptedServer, answer: Server, words: tuple[str, ...], said: str
):
    server.answer = answer
    status, found = gated(*words)
    assert (status, found["outcome"]) == (3, "INCONCLUSIVE")
    assert said in found["reasons"][0]


def test_a_grader_that_cannot_be_loaded_leaves_it_open(gated: Gate, place: Path):
    base = place / "mlruns" / "runs" / "base" / "config.yaml"
    settings = yaml.safe_load(base.read_text())
    defaults = [entry for entry in settings["defaults"] if not str(entry).startswith("/schema/grader/")]
    grader = {name: value for name, value in settings["grader"].items() if name not in ("contains", "spelling")}
    grader |= {"model": str(place / "moved"), "similarity": 0.6}
    settings |= {"defaults": ["/schema/grader/cosine@grader", *defaults], "grader": grader}
    base.write_text(yaml.safe_dump(settings))
    status, found = gated("dataset.limit=5")
    assert (status, found["outcome"], found["metrics"]) == (3, "INCONCLUSIVE", [])
    model = f"sentence-embedding model {place / 'moved'}"
    assert found["reasons"][0].startswith(f"{model} cannot be loaded: there is no folder")


@pytest.mark.parametrize(("words", "said"), cases(__file__, "a_mistake_in_the_call_ends_with_2_and_a_sentence"))
def test_a_mistake_in_the_call_ends_with_2_and_a_sentence(
    gated: Gate, words: list[str], said: str, place: Path, capsys: pytest.CaptureFixture[str]
):
    other = {"id": "q3", "question": "What is number 3?", "answers": ["word4"]}
    (place / "other.jsonl").write_text(json.dumps(other) + "\n")
    assert gated(*words) == (2, {})
    assert said in " ".join(capsys.readouterr().err.split())
    assert [folder.name for folder in (place / "mlruns" / "runs").iterdir()] == ["base"]


def test_a_baseline_that_is_written_wrongly_is_a_mistake_that_names_those_that_there_are(
    gated: Gate, place: Path, capsys: pytest.CaptureFixture[str]
):
    set_baseline(place / "mlruns", "production", "mlruns/runs/base")
    assert gated(baseline="producton") == (2, {})
    said = " ".join(capsys.readouterr().err.split())
    assert "there is no baseline producton (baselines are production); there is no MLflow database" in said


def test_questions_that_the_baseline_was_not_asked_are_left_out_which_is_said(
    gated: Gate, place: Path, caplog: pytest.LogCaptureFixture
):
    write_questions(place / "more.jsonl", QUESTIONS + 7)
    status, found = gated("dataset.path=more.jsonl")
    assert (status, found["shared_questions"]) == (0, QUESTIONS)
    assert "questions left out because the baseline did not ask them: 7" in caplog.text


def test_a_damaged_baseline_is_a_mistake(gated: Gate, place: Path, capsys: pytest.CaptureFixture[str]):
    (place / "mlruns" / "runs" / "base" / "questions.parquet").write_bytes(b"none")
    assert gated() == (2, {})
    assert "its questions.parquet is damaged" in " ".join(capsys.readouterr().err.split())
