import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlflow
import pyarrow.parquet as pq
import pytest
from json_lines import cases
from safetensors.torch import load_file, save_file
from shell import Shell
from tiny_model import KNOWN, save_tiny_model
from unseen import HOSTILE, unseen

from robust_eval.cli import run as cli_run
from robust_eval.cli.compare import main as report
from robust_eval.cli.run import run, run_sweep, write_error
from robust_eval.error import OtherRunError, UserError
from robust_eval.runtime.text import printable_lines
from robust_eval.tracking.base import Tracking
from robust_eval.tracking.run_folder import SUMMARY

FIGURES = (
    *(
        "headline",
        "accuracy_by_fact",
        "frs_by_d",
        "accuracy_by_temperature",
        "survival",
        "differences",
        "most_robust_by_type",
    ),
    *("reply_certainty", "entropy_by_breaking_temperature", "frs_by_entropy_and_breaking", "frs_density"),
)
COUNTING = """
import pathlib, runpy, sys
from transformers.models.llama.modeling_llama import LlamaModel
from robust_eval.plot import figure_files
forward, passes = LlamaModel.forward, []
figure_files.registered = list  # the comparison has its own
def counted(*arguments, **options):
    passes.append(1)
    return forward(*arguments, **options)
LlamaModel.forward = counted
file = pathlib.Path(sys.argv.pop(1))
try:
    runpy.run_path("run.py", run_name="__main__")
finally:
    file.write_text(str(len(passes)))
"""

SUBMITTED = """
import runpy, submitit
executor = submitit.AutoExecutor
submitit.AutoExecutor = lambda cluster, **options: executor(cluster="debug", **options)
runpy.run_path("run.py", run_name="__main__")
"""
"""Jobs of submitit run in this process; those of joblib have processes of their own."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two models of the same size that are not the same."""
    one, two = (save_tiny_model(tmp_path_factory.mktemp(name), letters=True) for name in ("one", "two"))
    weights = load_file(two / "model.safetensors")
    save_file({name: 1.1 * weight for name, weight in weights.items()}, two / "model.safetensors", {"format": "pt"})
    return [one, two]


def settings(mlruns: Path, *overrides: str) -> list[str]:
    fixed = ["model=transformers", "model.name=tiny", "model.prompt_style=plain", *KNOWN, "dataset.limit=6"]
    fixed += ["sampler.selection=none", "sampler.trials=2", "engine.threads=1", f"paths.mlruns={mlruns}"]
    return [*fixed, *overrides]


def recorded(mlruns: Path) -> tuple[mlflow.entities.Run, list[mlflow.entities.Run]]:
    """The parent run and its children."""
    client = mlflow.MlflowClient(f"sqlite:///{mlruns}/mlflow.db")
    runs = client.search_runs([client.get_experiment_by_name("robust_eval").experiment_id])
    (parent,) = [found for found in runs if "mlflow.parentRunId" not in found.data.tags]
    children = [found for found in runs if found is not parent]
    assert {child.data.tags["mlflow.parentRunId"] for child in children} == {parent.info.run_id}
    return parent, children


D = ("1", "5")


@pytest.fixture(scope="module")
def swept(shell: Shell, models: list[Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    """A sweep of two models and two values of d: its mlruns, a file with the number of forward passes, its output."""
    folder = tmp_path_factory.mktemp("swept")
    overrides = [f"model.path={models[0]},{models[1]}", f"metric.frs.d={','.join(D)}", "tracking.traces=8"]
    counted = ["-c", COUNTING, str(folder / "passes"), "-m", *settings(folder / "mlruns", *overrides)]
    done = shell.python(counted)
    assert done.returncode == 0, done.stderr
    return folder / "mlruns", folder / "passes", done.stdout


def test_a_sweep_asks_each_model_once(shell: Shell, models: list[Path], swept: tuple[Path, Path, str], tmp_path: Path):
    mlruns, passes, _ = swept
    single = []
    for number, model in enumerate(models):
        alone = settings(tmp_path / f"single{number}", f"model.path={model}", "tracking=none")
        done = shell.python(["-c", COUNTING, str(tmp_path / "passes"), *alone])
        assert done.returncode == 0, done.stderr
        single.append(int((tmp_path / "passes").read_text()))
    assert int(passes.read_text()) == sum(single) > 0
    _, children = recorded(mlruns)
    jobs = Counter((child.data.params["model.path"], child.data.params["metric.frs.d"]) for child in children)
    assert jobs == Counter((str(model), d) for model in models for d in D)
    assert Counter(child.data.metrics["prompts.asked"] for child in children) == {12: 2, 0: 2}


def test_the_jobs_of_a_sweep_are_named_after_what_differs(models: list[Path], swept: tuple[Path, Path, str]):
    mlruns, _, output = swept
    parent, children = recorded(mlruns)
    assert parent.info.run_name == f"sweep over model.path={models[0]},{models[1]}, metric.frs.d=1,5"
    names = {f"tiny on facts, metric.frs.d={d},model.path={model}" for model in models for d in D}
    tracked = {f"frs, tiny, facts, metric.frs.d={d},model.path={model}" for model in models for d in D}
    assert {child.info.run_name for child in children} == tracked
    assert {parent.info.status, *(child.info.status for child in children)} == {"FINISHED"}
    for child in children:  # under one name, so that the tracker can draw it against d
        assert child.data.metrics["frs"] == child.data.metrics[f"frs.d{child.data.params['metric.frs.d']}"]
    for name in names:
        assert f"{name}: 6 of 6 questions kept; mean FRS (d = " in output
    jobs = re.findall(r"^\[[^]]+\]\[HYDRA\] #(\d) : ", output, re.MULTILINE)
    assert jobs == ["0", "1", "2", "3"]
    assert not re.search(r"\bmetric\b\W+value", output)  # the table of a single run


def test_the_parent_of_a_sweep_has_its_comparison(models: list[Path], swept: tuple[Path, Path, str]):
    mlruns, _, output = swept
    parent, children = recorded(mlruns)
    (folder,) = mlruns.glob("sweeps/*/*/comparison")
    files = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
    figures = {f"figures/{name}.{end}" for name in FIGURES for end in ("png", "svg")}
    assert files == {"comparison.html", "comparison.md", "runs.parquet", "pairs.parquet", "questions.parquet"} | figures
    client = mlflow.MlflowClient(f"sqlite:///{mlruns}/mlflow.db")
    tracked = Path(client.download_artifacts(parent.info.run_id, "."))
    assert all((tracked / file).read_bytes() == (folder / file).read_bytes() for file in files)
    assert f"comparison: {folder / 'comparison.html'}" in output
    runs = pq.read_table(folder / "runs.parquet").to_pylist()
    shown = {(row["run"], row["metric"]): row["value"] for row in runs}
    for child in children:
        model, d = child.data.params["model.path"], child.data.params["metric.frs.d"]
        for figure in ("frs", "frs.entropy.mean", "frs.unbroken_share", "accuracy.greedy"):
            assert shown[f"path={model}, d={d}", figure] == child.data.metrics[figure]
    (pair,) = {(row["measured"], row["against"]) for row in pq.read_table(folder / "pairs.parquet").to_pylist()}
    assert pair == (f"path={models[0]}", f"path={models[1]}")


def test_a_search_for_runs_gives_a_table_and_the_parent_has_the_best_values(swept: tuple[Path, Path, str]):
    mlruns, _, _ = swept
    parent, children = recorded(mlruns)
    mlflow.set_tracking_uri(f"sqlite:///{mlruns}/mlflow.db")
    table = mlflow.search_runs(experiment_names=["robust_eval"], filter_string="params.method = 'frs'")
    assert len(table) == len(children)
    told = table[[f"params.{name}" for name in ("method", "model", "dataset", "sampler", "d")]].drop_duplicates()
    expected = {("frs", "tiny", "facts", "temperature_sweep", d) for d in D}
    assert set(told.itertuples(index=False, name=None)) == expected
    metrics = [name for name in table.columns if name.startswith("metrics.")]
    assert len(metrics) < 50
    for name in ("frs", "accuracy.greedy", "frs.unbroken_share"):
        values = table[f"metrics.{name}"]
        assert values.notna().all()
        ends = {"minimum": values.min(), "maximum": values.max(), "best": values.max()}
        assert {end: parent.data.metrics[f"{name}.{end}"] for end in ends} == ends
    best = max(reversed(children), key=lambda child: child.data.metrics["frs"])
    assert parent.data.tags["best.frs"] == f"{best.info.run_name} ({best.info.run_id})"
    history = mlflow.MlflowClient().get_metric_history(parent.info.run_id, "frs.best")
    assert [point.step for point in history] == [1, 2, 3, 4, 4]  # after each job, and with the comparison


def test_runs_of_one_model_share_a_logged_model_that_has_their_metrics(swept: tuple[Path, Path, str]):
    mlruns, _, _ = swept
    _, children = recorded(mlruns)
    client = mlflow.MlflowClient(f"sqlite:///{mlruns}/mlflow.db")
    models = {model.model_id: model for model in client.search_logged_models([children[0].info.experiment_id])}
    paths: dict[str, set[str]] = {}
    for child in map(client.get_run, [child.info.run_id for child in children]):
        (used,), (data,) = child.inputs.model_inputs, child.inputs.dataset_inputs
        model = models[used.model_id]
        assert (model.name, model.status) == ("tiny", "READY")
        values = {metric.key: metric for metric in model.metrics if metric.run_id == child.info.run_id}
        assert values["frs"].value == child.data.metrics["frs"]
        assert (values["frs"].dataset_name, values["frs"].dataset_digest) == (data.dataset.name, data.dataset.digest)
        paths.setdefault(used.model_id, set()).add(child.data.params["model.path"])
    assert paths.keys() == models.keys()
    assert [len(of_model) for of_model in paths.values()] == [1, 1]


def test_answers_are_traces_with_their_verdicts(swept: tuple[Path, Path, str]):
    mlruns, _, _ = swept
    _, children = recorded(mlruns)
    client, first = mlflow.MlflowClient(f"sqlite:///{mlruns}/mlflow.db"), children[0].info
    found = client.search_traces(locations=[first.experiment_id], max_results=100)
    of_runs = Counter(trace.info.trace_metadata["mlflow.sourceRun"] for trace in found)
    assert of_runs == {child.info.run_id: 8 for child in children}
    own = client.search_traces(locations=[first.experiment_id], run_id=first.run_id)
    answers = pq.read_table(next(mlruns.glob("sweeps/*/*")) / "3" / "graded.parquet").to_pylist()
    for trace in own:
        tags, (span,), (verdict,) = trace.info.tags, trace.data.spans, trace.info.assessments
        wanted = (tags["question_id"], tags["sampler"], float(tags["temperature"]), int(tags["trial"]))
        (answer,) = (
            each
            for each in answers
            if wanted == tuple(each[name] for name in ("question_id", "sampler", "temperature", "trial"))
        )
        assert span.outputs == printable_lines(answer["text"])
        condition = ", ".join(f"{name} {tags[name]}" for name in ("sampler", "temperature", "trial"))
        assert trace.info.request_preview == f"{span.inputs['question']} [{condition}]"
        assert (verdict.name, verdict.value) == ("correct", answer["correct"])
        assert (verdict.source.source_type, verdict.rationale.partition(";")[2]) == ("CODE", " accepted: kkkkk")
    assert all(len({trace.info.tags[tag] for trace in own}) > 4 for tag in ("question_id", "temperature"))


@pytest.mark.parametrize("named", ["experiment", "sweep", "runs", "folder"])
def test_the_comparison_of_a_sweep_can_be_made_again(
    swept: tuple[Path, Path, str],
    named: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    mlruns, _, _ = swept
    parent, children = recorded(mlruns)
    (folder,) = mlruns.glob("sweeps/*/*/comparison")
    by_start = sorted(children, key=lambda child: child.info.start_time)
    chosen = {
        "experiment": ["--experiment", "robust_eval"],
        "sweep": [parent.info.run_id],
        "runs": [child.info.run_id for child in by_start],
        "folder": [str(folder.parent)],
    }
    arguments = [*chosen[named], "--mlruns", str(mlruns), "--output", str(tmp_path / "again")]
    monkeypatch.setattr(sys, "argv", ["report", *arguments])
    monkeypatch.setattr("robust_eval.report.comparison_gallery.save_comparison_figures", lambda *_: [])
    once = re.sub(r"!\[.*\]\(.*\)\n\n", "", (folder / "comparison.md").read_text())
    report()
    assert (tmp_path / "again" / "comparison.md").read_text() == once
    assert f"comparison: {tmp_path / 'again' / 'comparison.html'}" in capsys.readouterr().out


@pytest.mark.parametrize(("arguments", "reason"), cases(__file__, "what_cannot_be_compared_is_said_in_one_sentence"))
def test_what_cannot_be_compared_is_said_in_one_sentence(
    swept: tuple[Path, Path, str],
    arguments: list[str],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    mlruns, _, _ = swept
    known = {"mlruns": str(mlruns), "uri": f"sqlite:///{mlruns}/mlflow.db"}
    filled = [argument.format(**known) for argument in arguments]
    monkeypatch.setattr(sys, "argv", ["report", "--mlruns", str(mlruns), *filled])
    with pytest.raises(SystemExit) as end:
        report()
    assert end.value.code == 1
    assert capsys.readouterr() == ("", f"error: {reason.format(**known)}\n")


def test_a_job_that_fails_stops_no_other_and_is_not_hidden(
    command: Callable[..., subprocess.CompletedProcess[str]], models: list[Path], tmp_path: Path
):
    empty = tmp_path / "empty"
    empty.mkdir()
    done = command("-m", *settings(tmp_path / "sweep", f"model.path={empty},{models[0]}"), figures=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    (folder,) = (tmp_path / "sweep" / "sweeps").glob("*/*")
    reason = (folder / "0" / "error.txt").read_text().splitlines()[0]
    assert reason.startswith(f"model.path of tiny: the folder {empty} contains no model: it is empty, ")
    assert done.stderr.splitlines()[-1] == f"error: 1 of 2 jobs failed, in {folder}: 0: {reason}"
    assert (folder / "comparison" / "comparison.html").is_file()  # of the job that did not fail
    parent, children = recorded(tmp_path / "sweep")
    assert parent.info.status == "FAILED"
    assert parent.data.tags["error"] == f"UserError: 1 of 2 jobs failed, in {folder}: 0: {reason}"
    (finished,) = children  # nothing was asked by the other
    assert (finished.data.params["model.path"], finished.info.status) == (str(models[0]), "FINISHED")
    assert parent.data.metrics["frs.best"] == finished.data.metrics["frs"]
    assert [path.name for path in (folder / "0").iterdir()] == ["error.txt"]


def test_a_job_that_fails_after_it_has_asked_is_recorded_with_its_traceback(
    command: Callable[..., subprocess.CompletedProcess[str]], models: list[Path], tmp_path: Path
):
    whole = settings(tmp_path, f"model.path={models[0]}")
    alike = [each for each in whole if not each.startswith(("sampler.selection", "dataset.path"))]  # it knows no others
    done = command("-m", *alike, "sampler.selection=none,exact_match", figures=False)
    assert done.returncode == 1
    parent, children = recorded(tmp_path)
    assert parent.info.status == "FAILED"
    by_status = {child.info.status: child for child in children}
    assert set(by_status) == {"FINISHED", "FAILED"}
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    kept = client.download_artifacts(by_status["FAILED"].info.run_id, "error.txt", str(tmp_path))
    assert Path(kept).read_text().startswith("Traceback (most recent call last):\n")
    assert "NothingKeptError: none of the questions passes sampler.selection" in Path(kept).read_text()


def test_a_sweep_of_which_no_job_has_asked_anything_leaves_nothing(
    command: Callable[..., subprocess.CompletedProcess[str]], models: list[Path], tmp_path: Path
):
    missing = f"dataset=jsonl dataset.path={tmp_path}/none.jsonl dataset.name=none".split()
    done = command("-m", *settings(tmp_path / "mlruns", f"model.path={models[0]},{models[1]}", *missing), figures=False)
    assert done.returncode == 1
    reason = f"dataset.path={tmp_path}/none.jsonl: there is no such file"
    assert done.stderr.splitlines()[-1] == f"error: 2 of 2 jobs failed before the first request: 0, 1: {reason}"
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/mlruns/mlflow.db")
    assert client.search_runs([client.get_experiment_by_name("robust_eval").experiment_id]) == []
    assert not list((tmp_path / "mlruns").glob("sweeps/*/*"))
    assert not (tmp_path / "mlruns" / "artifacts").exists()


@pytest.mark.parametrize(
    ("program", "launcher", "contains", "devices"),
    [(["run.py"], "joblib", "word,equal", ["0", "1"]), (["-c", SUBMITTED], "submitit_local", "word", ["0"])],
    ids=["joblib", "submitit"],
)
def test_jobs_of_launchers_share_a_fresh_store_and_database_and_have_a_device_each(
    shell: Shell,
    models: list[Path],
    tmp_path: Path,
    program: list[str],
    launcher: str,
    contains: str,
    devices: list[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    swept = [f"model.path={models[0]}", f"grader.contains={contains}", f"hydra/launcher={launcher}"]
    swept += ["metric=certainty"]  # of which each job draws the fewest figures
    swept += ["+hydra.job.env_set.CUDA_VISIBLE_DEVICES=${own_device:2}", f"hydra.sweep.dir={tmp_path / 'sweep'}"]
    done = shell.python([*program, "-m", *settings(tmp_path, *swept)], figures=False)
    assert done.returncode == 0, done.stderr
    environments = [tmp_path / "sweep" / str(job) / "environment.json" for job in range(len(devices))]
    assert [json.loads(file.read_text())["visible_gpus"] for file in environments] == devices
    parent, children = recorded(tmp_path)
    assert [found.info.status for found in (parent, *children)] == ["FINISHED"] * (1 + len(devices))
    assert Counter(child.data.metrics["prompts.asked"] for child in children) == Counter({12: 1, 0: len(devices) - 1})


def test_why_a_job_failed_is_written_down_in_what_can_be_seen(tmp_path: Path):
    write_error(UserError(f"no {HOSTILE}\nforged"), tmp_path / "job")
    first, _, *others = (tmp_path / "job" / "error.txt").read_text().split("\n")
    assert first.startswith(r"no \x00\x01")
    assert unseen("\n".join([first, *others])) == set()


def test_a_reason_that_cannot_be_written_hides_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """On a full disk, for example: the run still ends with its own error."""
    (tmp_path / "job").write_text("no folder")
    write_error(UserError("no model"), tmp_path / "job")
    assert "error.txt cannot be written" in caplog.text


@pytest.mark.parametrize(("failure", "traces"), [(UserError, {"error.txt"}), (OtherRunError, set())])
def test_a_job_that_fails_in_the_folder_of_an_earlier_one_is_no_success_and_leaves_no_trace_in_one_of_another_run(
    failure: type[UserError], traces: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(composed: Any) -> None:
        raise failure("other settings")

    for job in ("0", "1"):
        (tmp_path / job).mkdir()
        (tmp_path / job / SUMMARY).write_text("{}")
    config: Any = SimpleNamespace(tracking=Tracking(), paths=SimpleNamespace(mlruns=tmp_path))
    monkeypatch.setattr(cli_run, "to_config", refuse)
    monkeypatch.setattr(cli_run, "_compare", lambda *_: None)
    with pytest.raises(UserError, match="1 of 1 jobs failed before the first request: 0: other settings"):
        run_sweep(lambda: run(config, str(tmp_path / "0"), "seed=1"), config, [], 1, tmp_path)
    assert {file.name for file in (tmp_path / "0").iterdir()} == {SUMMARY} | traces
    assert {file.name for file in tmp_path.iterdir()} == {"0", "1"}
