import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import mlflow
import pyarrow as pa
import pytest
from shell import Shell
from unseen import HOSTILE, unseen

from robust_eval.error import UserError
from robust_eval.metric.metric_spec import DETAIL, MetricSpec
from robust_eval.metric.score import Score
from robust_eval.question import Question
from robust_eval.stats.estimate import Estimate
from robust_eval.tracking.base import TracedAnswer, Tracking
from robust_eval.tracking.mlflow_run import integer_steps
from robust_eval.tracking.mlflow_tracker import VIEW, Mlflow
from robust_eval.tracking.run_folder import ERROR

SCORE = Score(
    values={"frs.d1": Estimate(0.5, 0.4, 0.6), "frs.count.broken": Estimate(3.0), "odd": Estimate(float("nan"))},
    curves={"accuracy": {0.2: Estimate(1.0, 0.9, 1.0), 0.6: Estimate(0.75), 1.0: Estimate(0.5, 0.4, 0.6)}},
    of_questions={"frs.d1": 3, "accuracy.t1": 2},
)

ANSWER = TracedAnswer(
    {"question": "Why?"}, "so", {"question_id": "q1", "sampler": "greedy", "outcome": "ok"}, True, "it says so", "gpt"
)


@pytest.fixture(scope="module")
def mlruns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one good run and one that failed."""
    path = tmp_path_factory.mktemp("mlruns")
    folder = tmp_path_factory.mktemp("run")
    (folder / "report.html").write_text("<p>report")
    with Mlflow().run("good", path) as record:
        record.parameters({"model.name": "tiny", "sampler.temperature_sweep.trials": 10})
        record.tags({"git.commit": "abc"})
        record.dataset("facts", "facts.jsonl", [Question("q1", "Why?", ("because",))], "0123456789" * 6)
        record.scores([SCORE], {"questions.kept": 3})
        record.note("**half** of it\n\n| a |\n| - |\n| 1 |")
        record.tables({"questions": pa.table({"question": ["Why?", "<b>"], "frs.d1": [0.5, float("nan")]})})
        record.folder(folder)
    with pytest.raises(KeyboardInterrupt), Mlflow().run("bad", path):
        raise KeyboardInterrupt(HOSTILE)
    return path


def runs(mlruns: Path) -> dict[str, mlflow.entities.Run]:
    client = mlflow.MlflowClient(f"sqlite:///{mlruns}/mlflow.db")
    experiment = client.get_experiment_by_name("robust_eval")
    return {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}


def test_a_run_holds_parameters_metrics_tags_data_and_artifacts(mlruns: Path):
    good = runs(mlruns)["good"]
    assert good.info.status == "FINISHED"
    assert good.data.params == {"model.name": "tiny", "sampler.temperature_sweep.trials": "10"}
    assert good.data.tags["git.commit"] == "abc"
    assert good.data.metrics == {
        "frs.d1": 0.5,
        "frs.d1.low": 0.4,
        "frs.d1.high": 0.6,
        "frs.count.broken": 3.0,
        "questions.kept": 3.0,
        "accuracy.t0.2": 1.0,  # of the temperatures those that tell most, as scalars by which runs can be sorted
        "accuracy.t0.2.low": 0.9,
        "accuracy.t0.2.high": 1.0,
        "accuracy.t1": 0.5,
        "accuracy.t1.low": 0.4,
        "accuracy.t1.high": 0.6,
        "curve/accuracy by t in hundredths": 0.5,  # MLflow shows the last step, which nobody may take for the figure
    }
    history = mlflow.MlflowClient(f"sqlite:///{mlruns}/mlflow.db").get_metric_history(
        good.info.run_id, "curve/accuracy by t in hundredths"
    )
    assert [(point.step, point.value) for point in history] == [(20, 1.0), (60, 0.75), (100, 0.5)]
    (data,) = good.inputs.dataset_inputs
    assert (data.dataset.name, data.dataset.digest) == ("facts", ("0123456789" * 6)[:36])
    assert (mlruns / "artifacts" / good.info.run_id / "artifacts" / "report.html").read_text() == "<p>report"


def test_the_page_of_a_run_shows_its_note_and_its_tables(mlruns: Path):
    good = runs(mlruns)["good"]
    assert good.data.tags["mlflow.note.content"] == "**half** of it\n\n| a |\n| - |\n| 1 |"
    # the kind of file and the tag that let MLflow's page show a table
    assert json.loads(good.data.tags["mlflow.loggedArtifacts"]) == [{"path": "tables/questions.json", "type": "table"}]
    table = mlruns / "artifacts" / good.info.run_id / "artifacts" / "tables" / "questions.json"
    assert json.loads(table.read_text()) == {
        "columns": ["question", "frs.d1"],
        "data": [["Why?", 0.5], ["<b>", None]],
    }


def test_an_interrupted_run_is_killed_and_says_why(mlruns: Path):
    bad = runs(mlruns)["bad"]
    assert bad.info.status == "KILLED"
    assert bad.data.tags["error"].startswith(r"KeyboardInterrupt: \x00\x01")
    assert unseen(bad.data.tags["error"]) == set()
    client = mlflow.MlflowClient(f"sqlite:///{mlruns}/mlflow.db")
    assert unseen(Path(client.download_artifacts(bad.info.run_id, ERROR)).read_text()) == set()


def test_several_processes_can_start_a_fresh_store(shell: Shell, tmp_path: Path):
    code = (
        "import os, sys; from pathlib import Path; from robust_eval.tracking.mlflow_tracker import Mlflow\n"
        "children = []\n"
        "for i in range(3):\n"
        "    children.append(os.fork())\n"
        "    if not children[-1]:\n"
        "        with Mlflow().run(f'run{i}', Path(sys.argv[1])): pass\n"
        "        os._exit(0)\n"
        "print([os.waitpid(child, 0)[1] for child in children])"
    )
    done = shell.python(["-c", code, str(tmp_path)])
    assert done.stdout == "[0, 0, 0]\n", done.stderr
    assert {name: run.info.status for name, run in runs(tmp_path).items()} == dict.fromkeys(
        ["run0", "run1", "run2"], "FINISHED"
    )


def test_the_command_of_the_user_interface_names_the_store(mlruns: Path):
    assert Mlflow().command(mlruns) == f"{sys.executable} -m mlflow ui --backend-store-uri sqlite:///{mlruns}/mlflow.db"
    assert Mlflow(uri="http://server:5000").command(mlruns) is None


def test_a_store_that_cannot_be_used_is_named(tmp_path: Path):
    with (
        pytest.raises(UserError, match=r"^tracking: nonsense://x cannot be used: "),
        Mlflow(uri="nonsense://x").run("a", tmp_path),
    ):
        pass


def test_a_server_that_is_not_there_stops_no_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    uri = "http://127.0.0.1:9"
    with caplog.at_level(logging.WARNING), Mlflow(uri=uri).run("a", tmp_path) as record:
        record.write_id(tmp_path / "mlflow_run.txt")
        record.scores([SCORE], {"questions.kept": 3})
        assert record.run_id is None
    assert not (tmp_path / "mlflow_run.txt").exists()
    assert [words.partition(": ")[2].partition(uri)[0] for words in said(caplog)] == ["", "this run is incomplete in "]


def test_a_fresh_store_prints_nothing_and_on_a_full_disk_one_sentence(
    tmp_path: Path,
):
    code = (
        "import os, resource, sys; from pathlib import Path\n"
        "from robust_eval.tracking.mlflow_tracker import Mlflow; from robust_eval.error import UserError\n"
        "with Mlflow().run('quiet', Path(sys.argv[1], 'quiet')) as run:\n"
        "    run.parameters({'a': 1}); run.scores([], {'b': 1})\n"
        "os.dup2(os.open(os.devnull, os.O_WRONLY), 2)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 17, resource.RLIM_INFINITY))\n"
        "try:\n"
        "    with Mlflow().run('full', Path(sys.argv[1], 'full')): raise AssertionError('never reached')\n"
        "except UserError as problem: print(problem)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    said = "(sqlite3.OperationalError) disk I/O error"
    assert done.stdout == f"tracking: sqlite:///{tmp_path}/full/mlflow.db cannot be used: {said}\n"
    assert done.stderr == ""
    assert not list((tmp_path / "full").glob("mlflow.db*"))


def test_the_parent_of_a_running_sweep_has_the_values_of_its_finished_jobs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    specs = [
        MetricSpec("lag", "a lag", more_is_better=False),
        MetricSpec("size", "a size"),
        MetricSpec("x", "", shown=DETAIL),
    ]
    with Mlflow().sweep("sweep", tmp_path, tmp_path / "jobs"):
        for name, lag in (("one", 3.0), ("two", 2.0)):
            with Mlflow().run(name, tmp_path) as record:
                record.scores([], {"lag": lag, "size": lag, "x": lag, "lag.low": 0.0})
                record.best_of_sweep(specs)
            if name == "one":
                assert runs(tmp_path)["sweep"].data.metrics["lag.best"] == 3.0
        found = runs(tmp_path)
        assert found["sweep"].info.status == "RUNNING"
        assert found["sweep"].data.metrics == {
            "lag.minimum": 2.0,
            "lag.maximum": 3.0,
            "lag.best": 2.0,
            "size.minimum": 2.0,
            "size.maximum": 3.0,
        }
        assert found["sweep"].data.tags["best.lag"] == f"two ({found['two'].info.run_id})"
    monkeypatch.setenv("ROBUST_EVAL_SWEEP", "0" * 32)  # a parent that somebody has deleted for good
    with caplog.at_level(logging.WARNING), Mlflow().run("orphan", tmp_path) as record:
        record.scores([], {"lag": 1.0})
        record.best_of_sweep(specs)
    (warning,) = said(caplog)
    assert warning.startswith("tracking: the best values of the sweep are not recorded: ")
    assert runs(tmp_path)["orphan"].info.status == "FINISHED"


def test_a_saved_view_of_the_runs_shows_headline_metrics_and_stays_as_a_user_changes_it(tmp_path: Path):
    with Mlflow().run("first", tmp_path):
        pass
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    experiment = client.get_experiment_by_name("robust_eval")
    view = json.loads(experiment.tags[VIEW])
    columns = json.loads(view["state"])["selectedColumns"]
    assert {"params.`model`", "metrics.`frs`", "metrics.`frs.best`", "metrics.`agreement.kappa.t1.best`"} <= {*columns}
    client.set_experiment_tag(experiment.experiment_id, VIEW, "changed")
    with Mlflow().run("second", tmp_path):
        pass
    assert client.get_experiment_by_name("robust_eval").tags[VIEW] == "changed"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A tracking server in a process of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{tmp_path}/server.db", "--artifacts-destination", f"{tmp_path}/kept"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    no_jobs = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}  # eight more processes, which are not tested here
    process = subprocess.Popen(command, cwd=tmp_path, start_new_session=True, env=os.environ | no_jobs, **quiet)
    until = time.monotonic() + 120
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
            break
        except OSError:
            assert time.monotonic() < until
            time.sleep(0.2)
    yield f"http://127.0.0.1:{port}", process
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What this program logged, without the libraries' words."""
    return [record.getMessage() for record in caplog.records if record.name.startswith("robust_eval")]


def test_a_server_that_goes_away_stops_no_run(
    server: tuple[str, subprocess.Popen[bytes]], tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    uri, process = server
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "report.html").write_text("<p>report")
    tracking = Mlflow(uri=uri)
    with tracking.run("whole", tmp_path / "mlruns") as record:
        record.model("a/b", {"model.path": "x"})
        record.scores([SCORE], {})
        record.folder(folder)
        record.answers([ANSWER])
    assert said(caplog) == []
    client = mlflow.MlflowClient(uri)
    (whole,) = client.search_runs([client.get_experiment_by_name("robust_eval").experiment_id])
    assert (whole.info.status, whole.data.metrics["frs.d1"]) == ("FINISHED", 0.5)
    assert [file.path for file in client.list_artifacts(whole.info.run_id)] == ["report.html"]
    (trace,) = client.search_traces(locations=[whole.info.experiment_id], run_id=whole.info.run_id)
    (span,), (verdict,) = trace.data.spans, trace.info.assessments
    assert (span.inputs, span.outputs, span.attributes["question_id"]) == ({"question": "Why?"}, "so", "q1")
    assert (verdict.value, verdict.source.source_type, verdict.source.source_id) == (True, "LLM_JUDGE", "gpt")
    (model,) = client.search_logged_models([whole.info.experiment_id])
    assert (model.name, trace.info.trace_metadata["mlflow.modelId"]) == ("a-b", model.model_id)

    with tracking.run("cut off", tmp_path / "mlruns") as record:
        record.parameters({"a": 1})
        os.killpg(process.pid, signal.SIGKILL)
        record.scores([SCORE], {})
        record.note("lost")
        record.tables({"lost": pa.table({"a": [1]})})
        record.answers([ANSWER])
        record.folder(folder)
    went_away, make_up = said(caplog)
    assert went_away.startswith("tracking: the server is unreachable: ")
    assert make_up == (
        f"tracking: this run is incomplete in {uri}, but complete in its folder; repeat the command when the server is "
        "back, to record the run from the store"
    )
    for never_there in (tracking.run("run", tmp_path), tracking.sweep("sweep", tmp_path, tmp_path / "sweep")):
        caplog.clear()
        with never_there as record:
            record.folder(folder)
        not_there, make_up = said(caplog)
        assert not_there.startswith(f"tracking: {uri} cannot be used: ")
        assert make_up.startswith(f"tracking: this run is incomplete in {uri}, ")


@pytest.mark.parametrize(
    ("problem", "sentence"),
    [
        ("raise UserError('the disk is full')", "the disk is full"),
        ("(mlruns / 'large').write_bytes(bytes(2 * size))", "tracking: {} failed: [Errno 27] File too large"),
    ],
)
def test_a_run_is_marked_as_failed_where_no_file_can_grow_any_more(
    shell: Shell, tmp_path: Path, problem: str, sentence: str
):
    """As on a full disk: from some point on, no file of this process may grow beyond a size that the database has."""
    code = (
        "import resource, sys; from pathlib import Path\n"
        "from robust_eval.tracking.mlflow_tracker import Mlflow; from robust_eval.error import UserError\n"
        "mlruns = Path(sys.argv[1])\n"
        "with Mlflow().run('full', mlruns):\n"
        "    size = (mlruns / 'mlflow.db').stat().st_size\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))\n"
        f"    {problem}\n"
    )
    process = shell.python(["-c", code, str(tmp_path)])
    assert process.returncode == 1
    last = process.stderr.strip().splitlines()[-1]
    assert last == f"robust_eval.error.UserError: {sentence.format(f'sqlite:///{tmp_path}/mlflow.db')}"
    assert runs(tmp_path)["full"].info.status == "FAILED"


def test_a_failure_that_cannot_be_recorded_is_marked_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def refuse(*_: object) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(mlflow.MlflowClient, "set_tag", refuse)
        with pytest.raises(KeyError), Mlflow().run("full", tmp_path):
            raise KeyError("x")
    assert said(caplog) == ["the run could not be marked as failed: no space left"]
    with Mlflow().run("next", tmp_path):
        assert runs(tmp_path)["full"].info.status == "KILLED"


def test_a_failure_whose_traceback_finds_no_room_is_marked_and_keeps_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_: object) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(mlflow.MlflowClient, "log_text", refuse)
        with pytest.raises(KeyError), Mlflow().run("full", tmp_path):
            raise KeyError("x")
    with Mlflow().run("next", tmp_path):
        full = runs(tmp_path)["full"]
    assert (full.info.status, full.data.tags["error"]) == ("FAILED", "KeyError: 'x'")


def test_runs_and_jobs_that_were_killed_are_marked_when_the_next_one_begins(shell: Shell, tmp_path: Path):
    code = (
        "import os, signal, sys; from pathlib import Path; from robust_eval.tracking.mlflow_tracker import Mlflow\n"
        "mlruns = Path(sys.argv[1])\n"
        "with Mlflow().sweep('sweep', mlruns, mlruns / 'jobs'):\n"
        "    with Mlflow().run('whole', mlruns): pass\n"
        "    with Mlflow().run('cut off', mlruns): os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert shell.python(["-c", code, str(tmp_path)]).returncode == -signal.SIGKILL
    assert {name: run.info.status for name, run in runs(tmp_path).items()} == {
        "sweep": "RUNNING",
        "whole": "FINISHED",
        "cut off": "RUNNING",
    }
    with Mlflow().run("next", tmp_path), Mlflow().run("beside it", tmp_path):
        found = runs(tmp_path)
    assert {name: run.info.status for name, run in found.items()} == {
        "sweep": "KILLED",
        "whole": "FINISHED",
        "cut off": "KILLED",
        "next": "RUNNING",
        "beside it": "RUNNING",
    }
    assert found["cut off"].data.tags["error"] == "the process of the run was killed"
    assert [*tmp_path.glob("alive-*")] == []


def test_without_tracking_nothing_is_written_and_mlflow_not_imported(tmp_path: Path):
    code = (
        "import sys; from pathlib import Path; from robust_eval.tracking.base import TracedAnswer, Tracking\n"
        "with Tracking().run('x', Path(sys.argv[1])) as run:\n    run.parameters({'a': 1}); run.scores([], {})\n"
        "    run.note('x'); run.tables({})\n"
        "assert 'mlflow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert list(tmp_path.iterdir()) == []
    assert Tracking().command(tmp_path) is None


def test_steps_are_hundredths_unless_the_grid_is_finer():
    assert integer_steps([0.2, 0.4, 2.0]) == ("hundredths", [20, 40, 200])
    assert integer_steps([0.25, 0.5]) == ("hundredths", [25, 50])
    assert integer_steps([0.1 + 0.2, 1.0]) == ("hundredths", [30, 100])
    assert integer_steps([0.125, float("nan")]) == ("thousandths", [125, 0])
    assert integer_steps([1 / 3]) == ("millionths", [333333])


def test_of_declared_figures_those_that_a_person_wants_first_are_metrics(tmp_path: Path):
    figures = [MetricSpec("frs.d{}", "mean FRS", primary=True), MetricSpec("odd", "an odd one", shown=DETAIL)]
    with Mlflow().run("declared", tmp_path) as record:
        record.scores([replace(SCORE, specs=figures)], {})
    assert runs(tmp_path)["declared"].data.metrics == {"frs.d1": 0.5, "frs.d1.low": 0.4, "frs.d1.high": 0.6}


def test_a_run_that_takes_long_records_what_the_machine_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("robust_eval.tracking.mlflow_tracker.LONG", 0.0)
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.1")
    with Mlflow().run("long", tmp_path):
        while "system/cpu_utilization_percentage" not in runs(tmp_path)["long"].data.metrics:
            time.sleep(0.05)
    assert runs(tmp_path)["long"].info.status == "FINISHED"
    assert not [thread for thread in threading.enumerate() if thread.name == "SystemMetricsMonitor"]


def test_a_short_run_records_nothing_of_the_machine(mlruns: Path):
    assert not [name for run in runs(mlruns).values() for name in run.data.metrics if name.startswith("system/")]


def test_a_data_set_of_a_hub_is_recorded_with_its_address(tmp_path: Path):
    address = "https://huggingface.co/datasets/rajpurkar/squad"
    with Mlflow().run("hub", tmp_path) as record:
        record.dataset("squad", address, [Question("q1", "Why?", ("because",))], "0123456789" * 6)
    (used,) = runs(tmp_path)["hub"].inputs.dataset_inputs
    assert (used.dataset.source_type, json.loads(used.dataset.source)) == ("http", {"url": address})
