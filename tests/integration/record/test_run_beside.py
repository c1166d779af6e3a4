"""Runs that are recorded by a process of their own: as by this one, and whatever happens to either process."""

import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import mlflow
import pyarrow as pa
import pytest
from unseen import HOSTILE, unseen

from robust_eval.error import UserError
from robust_eval.metric.score import Score
from robust_eval.question import Question
from robust_eval.record.mlflow_tracker import Mlflow
from robust_eval.record.run_beside import recorded_beside
from robust_eval.record.tracking import Run, Untracked
from robust_eval.stats.estimate import Estimate

SCORE = Score(values={"frs.d1": Estimate(0.5, 0.4, 0.6)}, curves={"accuracy": {0.2: Estimate(1.0), 1.0: Estimate(0.5)}})


def fill(record: Run, folder: Path) -> None:
    """Record something of everything."""
    record.leave_id(folder / "mlflow_run.txt")
    record.parameters({"model.name": "tiny", "trials": 10})
    record.tags({"git.commit": "abc"})
    record.dataset("facts", "facts.jsonl", [Question("q1", "Why?", ("because",))], "0123456789" * 6)
    record.scores([SCORE], {"questions.kept": 3})
    record.note("half")
    record.tables({"questions": pa.table({"question": ["Why?"], "frs.d1": [0.5]})})
    record.folder(folder)


def found(mlruns: Path) -> dict[str, mlflow.entities.Run]:
    client = mlflow.MlflowClient(f"sqlite:///{mlruns}/mlflow.db")
    experiment = client.get_experiment_by_name("robust_eval")
    return {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}


@pytest.fixture(scope="module")
def mlruns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the same run recorded both ways, and one that was stopped."""
    path, folder = tmp_path_factory.mktemp("mlruns"), tmp_path_factory.mktemp("run")
    with Mlflow().run("here", path) as record:
        fill(record, folder)
    with recorded_beside(Mlflow(), "beside", path) as record:
        fill(record, folder)
        assert record.run_id == found(path)["beside"].info.run_id
        assert (folder / "mlflow_run.txt").read_text() == f"{record.run_id}\n"
    with pytest.raises(KeyboardInterrupt), recorded_beside(Mlflow(), "stopped", path):
        raise KeyboardInterrupt(HOSTILE)
    return path


def test_a_run_that_another_process_records_is_the_same(mlruns: Path):
    here, beside = (found(mlruns)[name] for name in ("here", "beside"))
    assert beside.info.status == here.info.status == "FINISHED"
    assert (beside.data.params, beside.data.metrics) == (here.data.params, here.data.metrics)
    own = {"mlflow.runName", "mlflow.artifactLocation"}
    tags = [{name: value for name, value in run.data.tags.items() if name not in own} for run in (here, beside)]
    assert tags[0] == tags[1]  # the name of the program among them
    assert [each.dataset.to_dictionary() for each in beside.inputs.dataset_inputs] == [
        each.dataset.to_dictionary() for each in here.inputs.dataset_inputs
    ]
    table = mlruns / "artifacts" / beside.info.run_id / "artifacts" / "tables" / "questions.json"
    assert json.loads(table.read_text()) == {"columns": ["question", "frs.d1"], "data": [["Why?", 0.5]]}


def test_a_run_that_is_stopped_is_killed_and_says_why(mlruns: Path):
    stopped = found(mlruns)["stopped"]
    assert stopped.info.status == "KILLED"
    assert stopped.data.tags["error"].startswith(r"KeyboardInterrupt: \x00\x01")
    assert unseen(stopped.data.tags["error"]) == set()


def test_a_store_that_cannot_be_used_is_named_before_anything_is_asked(tmp_path: Path):
    asked: list[str] = []

    def measure() -> None:
        with recorded_beside(Mlflow(uri="nonsense://x"), "a", tmp_path) as record:
            assert record.run_id
            asked.append("a model")

    with pytest.raises(UserError, match=r"^tracking: nonsense://x cannot be used: "):
        measure()
    assert asked == []


def test_a_server_that_is_not_there_stops_no_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    uri = "http://127.0.0.1:9"
    with caplog.at_level(logging.WARNING), recorded_beside(Mlflow(uri=uri), "a", tmp_path) as record:
        fill(record, tmp_path)
        assert record.run_id is None
    assert not (tmp_path / "mlflow_run.txt").exists()
    said = [each.getMessage() for each in caplog.records if each.name == "robust_eval.record.mlflow_tracker"]
    assert [words.partition(": ")[2].partition(uri)[0] for words in said] == ["", "not all of this run is in "]


def measure_without_process(mlruns: Path, problem: Exception | None = None) -> None:
    """Kill the process that records a run, which then has something to record or ends with a problem."""
    with recorded_beside(Mlflow(), "lost", mlruns) as record:
        assert record.run_id
        os.kill(record._process._process.pid, signal.SIGKILL)
        if problem is not None:
            raise problem
        record.tags({"never": "recorded"})


def test_a_process_that_is_ended_from_outside_is_said_in_one_sentence(mlruns: Path):
    with pytest.raises(UserError, match=r"^tracking: the process that records the run was ended from outside$"):
        measure_without_process(mlruns)


def test_what_is_wrong_with_the_run_is_raised_and_not_that_it_could_not_be_recorded(
    mlruns: Path, caplog: pytest.LogCaptureFixture
):
    with pytest.raises(UserError, match=r"^the disk is full$"):
        measure_without_process(mlruns, UserError("the disk is full"))
    assert [each.getMessage() for each in caplog.records if each.name.startswith("robust_eval")] == [
        "the run could not be marked as failed: tracking: the process that records the run was ended from outside"
    ]


@pytest.mark.parametrize("unread", [0, 50])
def test_where_the_process_that_measures_is_gone_the_run_is_killed_and_nothing_goes_on(mlruns: Path, unread: int):
    name = f"gone with {unread} answers unread"
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from robust_eval.record.mlflow_tracker import Mlflow\n"
        "from robust_eval.record.run_beside import recorded_beside\n"
        f"with recorded_beside(Mlflow(), '{name}', Path(sys.argv[1])) as record:\n"
        "    assert record.run_id\n"
        "    print(record._process._process.pid, flush=True)\n"
        f"    for _ in range({unread}): record._process._pipe.send(('tags', {{'a': 'b'}}))\n"
        f"    while {unread} and not record._process._pipe.poll(0.01): pass\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(mlruns)], stdout=subprocess.PIPE, text=True)
    # standard output ends when the last of both processes has ended, so that nothing is waited for here
    assert ended.returncode == -signal.SIGKILL
    assert "robust_eval.record.run_beside" not in cmdline(int(ended.stdout))
    gone = found(mlruns)[name]
    assert (gone.info.status, gone.data.tags["error"]) == ("KILLED", "the process that measured was ended from outside")


def cmdline(process: int) -> str:
    """The command of a process; nothing where it has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except OSError:
        return ""


def test_a_process_beside_is_for_those_that_have_not_imported_mlflow(monkeypatch: pytest.MonkeyPatch):
    assert not Mlflow().beside()
    monkeypatch.delitem(sys.modules, "mlflow")
    assert Mlflow().beside()
    assert not Untracked().beside()
    monkeypatch.setenv("ROBUST_EVAL_SWEEP", "the id of its parent")  # the next job will need it here as well
    assert not Mlflow().beside()
