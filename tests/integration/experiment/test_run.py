import errno
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import mlflow
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from experiments import Runs, configuration, run_experiment, runs_of_tiny_model
from filelock import FileLock
from json_lines import cases
from omegaconf import OmegaConf
from tiny_model import KNOWN, plain_settings, save_tiny_encoder, save_tiny_model

from robust_eval.answer import SCHEMA
from robust_eval.error import UserError
from robust_eval.experiment.plan import stages_of
from robust_eval.model.local.model_files import folder_hash
from robust_eval.model.local.transformers import Transformers
from robust_eval.report.run_summary import sentence
from robust_eval.report.warnings import few_kept
from robust_eval.tracking.flat_settings import flat
from robust_eval.tracking.result import Result

FILES = {
    "loaded.json",
    "answers.parquet",
    "config.yaml",
    "environment.json",
    "figures",
    "metrics.json",
    "frs.parquet",
    "frs_accuracy.parquet",
    "frs_certainty.parquet",
    "frs_types.parquet",
    "graded.parquet",
    "questions.parquet",
    "report.html",
    "summary.json",
}
DRAWN = {"figures", "metrics.json"}
FIGURES = {
    "accuracy_by_fact",
    "accuracy_by_temperature",
    "entropy_by_breaking_temperature",
    "frs_by_d",
    "frs_by_entropy_and_breaking",
    "frs_density",
    "question_types",
    "reply_certainty_by_temperature",
    "survival",
}


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("model"), letters=True)


@pytest.fixture(scope="module")
def tiny(tiny_folder: Path) -> list[str]:
    """Settings of a run of a tiny random model that keeps whatever it answers, without tracking."""
    few = ["sampler.temperature_sweep.selection=none", "sampler.temperature_sweep.trials=3"]
    return [*plain_settings(tiny_folder), *few, "tracking=none"]


@pytest.fixture(scope="module")
def measure(tiny: list[str], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Result, Path]]:
    """Run an experiment on a tiny random model, without figures unless asked."""

    def run(
        *overrides: str, base: Path | None = None, folder: str | None = None, figures: bool = False
    ) -> tuple[Result, Path]:
        base = base or tmp_path_factory.mktemp("measure")
        folder = base / (folder or f"run{len(list(base.glob('run*')))}")
        folder.mkdir(parents=True, exist_ok=True)
        known = [] if any(each.startswith("dataset=") for each in overrides) else KNOWN
        settings = [*tiny, "dataset.limit=12", *known, f"paths.mlruns={base / 'mlruns'}"]
        return run_experiment(folder, *settings, *overrides, figures=figures), folder

    return run


@pytest.fixture(scope="module")
def complete(measure: Callable[..., tuple[Result, Path]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose store has all answers of a run."""
    base = tmp_path_factory.mktemp("complete")
    measure(base=base)
    return base


def test_a_run_leaves_its_answers_tables_figures_and_report(measure: Callable, capsys: pytest.CaptureFixture[str]):
    result, folder = measure(figures=True)
    assert {path.name for path in folder.iterdir()} == FILES
    assert {path.name for path in (folder / "figures").iterdir()} == {
        f"{f}.{e}" for f in FIGURES for e in ("png", "svg")
    }
    answers, graded = pq.read_table(folder / "answers.parquet"), pq.read_table(folder / "graded.parquet")
    assert answers.schema.equals(SCHEMA.append(pa.field("sampler", pa.string())))
    assert set(answers["sampler"].to_pylist()) == {"greedy", "temperature_sweep"}
    assert answers.num_rows == 12 + 12 * 10 * 3
    grading = ["label", "correct", "exact", "answer", "rule", "reason", "uncertain"]
    assert answers.drop_columns(grading) == graded.drop_columns([*grading, "ensemble"])
    summary = json.loads((folder / "summary.json").read_text())
    assert summary == result.summary()
    assert (summary["questions.asked"], summary["questions.kept"]) == (12, 12)
    assert sum(summary[f"outcomes.{outcome}"] for outcome in ("ok", "empty")) == 360
    questions = pq.read_table(folder / "questions.parquet")
    assert questions["question_id"].to_pylist() == [question.id for question in result.questions]
    assert questions["group"].to_pylist() == [question.group for question in result.questions]
    assert set(questions["scenario"].to_pylist()) == {"abstractive"}
    for figure in ("accuracy.greedy", "frs.d1", "frs.unbroken_share", "frs.entropy.mean", "accuracy.t0.2"):
        assert np.nanmean(questions[figure].to_numpy()) == pytest.approx(summary[figure], abs=1e-12)
    assert OmegaConf.load(folder / "config.yaml").sampler.temperature_sweep.trials == 3
    shown = capsys.readouterr().out
    assert "tiny on facts: 12 of 12 questions kept" in shown
    assert str(folder / "report.html") in shown
    assert "mean FRS (d = 1)" in shown


def test_a_tracked_run_shows_the_summary_in_mlflow(measure: Callable):
    result, folder = measure("tracking=mlflow", "metric=[frs,certainty]", "dataset.limit=4")
    client = mlflow.MlflowClient(f"sqlite:///{folder.parent}/mlruns/mlflow.db")
    (found,) = client.search_runs([client.get_experiment_by_name("robust_eval").experiment_id])
    assert found.info.status == "FINISHED"
    assert found.info.run_name == "frs+certainty, tiny, facts"
    finite = {name: value for name, value in result.summary().items() if value is not None}
    singles = {name: value for name, value in found.data.metrics.items() if not name.startswith("curve/")}
    assert singles == {name: finite[name] for name in singles}
    assert {"frs", "frs.d1", "frs.d1.low", "accuracy.greedy", "accuracy.t1", "questions.kept", "prompts.asked"} <= {
        *singles
    }
    assert len(found.data.metrics) < 100 < len(finite)
    table = json.loads(Path(client.download_artifacts(found.info.run_id, "tables/metrics.json")).read_text())
    named = {row[0]: row[2] for row in table["data"]}
    assert {name for name in named if named[name] is not None} >= {
        name for name in finite if not name.endswith((".low", ".high", ".n"))
    }
    assert found.data.params["sampler.temperature_sweep.trials"] == "3"
    assert found.data.params["model.dtype"] in ("float32", "bfloat16")
    assert not [name for name in found.data.params if name.startswith(("loaded.", "identity."))]
    files = folder_hash(Path(found.data.params["model.path"]))
    assert found.data.params["model.files"] == files
    assert {path.path for path in client.list_artifacts(found.info.run_id)} - DRAWN == FILES - DRAWN | {
        *("certainty.parquet", "mlflow_run.txt", "tables"),
    }
    assert found.data.tags["mlflow.note.content"].startswith(
        f"- {sentence(result)}\n- {few_kept(result)}\n\n**Metrics**\n\n| metric |"
    )


def failed_run(base: Path) -> mlflow.entities.Run:
    client = mlflow.MlflowClient(f"sqlite:///{base}/mlruns/mlflow.db")
    (found,) = client.search_runs([client.get_experiment_by_name("robust_eval").experiment_id])
    return found


def test_a_run_that_keeps_no_question_fails_and_keeps_what_it_asked(measure: Callable, tmp_path: Path):
    with pytest.raises(UserError, match=r"^none of the questions passes sampler\.selection"):
        measure("dataset=facts", "sampler.temperature_sweep.selection=exact_match", "tracking=mlflow", base=tmp_path)
    assert failed_run(tmp_path).info.status == "FAILED"
    assert failed_run(tmp_path).data.tags["error"].startswith("NothingKeptError: none of the questions")
    assert pq.read_table(tmp_path / "run0" / "answers.parquet").num_rows == 12


def left(base: Path) -> list[str]:
    """What lies in a folder besides the store, which every run opens."""
    files = [path for path in base.rglob("*") if not path.is_relative_to(base / "mlruns" / "store")]
    return sorted(str(path.relative_to(base)) for path in files)


@pytest.mark.parametrize(
    ("mistake", "said"), cases(__file__, "a_mistake_that_is_found_before_anything_was_asked_leaves_no_run")
)
def test_a_mistake_that_is_found_before_anything_was_asked_leaves_no_run(
    measure: Callable, tmp_path: Path, mistake: str, said: str
):
    (tmp_path / "empty").mkdir()
    (tmp_path / "untold").mkdir()
    (tmp_path / "untold" / "config.json").touch()
    (tmp_path / "quiz.csv").write_text("question,choices,correct\nWho?,\"['a', 'b']\",A\nWhere?,\"['c', 'd']\",B\n")
    (tmp_path / "mars.csv").write_text("question,answers\nWhich planet is known as the Red Planet?,Mars\n")
    (tmp_path / "plain.jsonl").write_text('{"id": "1", "question": "Who?", "answers": ["Karl"]}\n')
    there = left(tmp_path)
    with pytest.raises(UserError) as problem:
        measure("tracking=mlflow", *mistake.format(base=tmp_path).split(), base=tmp_path)
    assert str(problem.value).startswith(said.format(base=tmp_path))
    assert [name for name in left(tmp_path) if name not in ("mlruns", "mlruns/mlflow.lock")] == there


def test_a_run_that_is_stopped_before_anything_was_asked_leaves_nothing(
    measure: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def stopped(_: Transformers) -> None:
        (tmp_path / "run0" / "run.log").write_text("WARNING: stopped")  # as logged where Hydra sets logging up
        raise KeyboardInterrupt

    monkeypatch.setattr(Transformers, "load", stopped)
    with pytest.raises(KeyboardInterrupt):
        measure("tracking=mlflow", base=tmp_path)
    assert left(tmp_path) == ["mlruns"]


def test_a_mistake_leaves_no_folder_of_its_day_but_those_of_others(measure: Callable, tmp_path: Path):
    mistake = ("dataset=jsonl", f"dataset.path={tmp_path}/none.jsonl")
    with pytest.raises(UserError):
        measure(*mistake, base=tmp_path, folder="mlruns/runs/today/1")
    assert left(tmp_path / "mlruns" / "runs") == []
    (tmp_path / "mlruns" / "runs" / "today" / "0").mkdir(parents=True)
    with pytest.raises(UserError):
        measure(*mistake, base=tmp_path, folder="mlruns/runs/today/1")
    assert left(tmp_path / "mlruns" / "runs") == ["today", "today/0"]


def test_a_mistake_leaves_what_was_in_the_folder_before(measure: Callable, tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    (tmp_path / "mine" / "run.log").write_text("mine")
    with pytest.raises(UserError):
        measure("dataset=jsonl", f"dataset.path={tmp_path}/none.jsonl", base=tmp_path, folder="mine")
    assert left(tmp_path) == ["mine", "mine/notes.txt", "mine/run.log", "mlruns"]


@pytest.mark.parametrize(
    ("store", "again"),
    [
        ("sqlite", "repeat the command to resume from the answers in the store"),
        ("none", "no answer was stored (store=none)"),
    ],
)
def test_a_full_disk_fails_the_run_in_one_sentence(
    measure: Callable, tmp_path: Path, store: str, again: str, monkeypatch: pytest.MonkeyPatch
):
    def full(table: pa.Table, file: Path, **_: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("robust_eval.answer.pq.write_table", full)
    with pytest.raises(UserError) as problem:
        measure("tracking=mlflow", f"store={store}", base=tmp_path, folder="full")
    assert str(problem.value) == f"{tmp_path / 'full'}: No space left on device; {again}"
    assert failed_run(tmp_path).info.status == "FAILED"


def test_a_run_that_is_complete_in_the_store_asks_nothing(
    measure: Callable, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    first, folder = measure(base=tmp_path)
    answers = pq.read_table(folder / "answers.parquet")
    assert (first.prompts_asked, first.cache_hits) == (24, 0)
    with caplog.at_level("INFO"):
        again, folder = measure(base=tmp_path)
    assert pq.read_table(folder / "answers.parquet") == answers
    assert (again.prompts_asked, again.cache_hits) == (0, 24)
    assert "all answers are in the store: no request was sent, and the model was not loaded" in caplog.messages
    loaded = {name: value for name, value in first.description.items() if name.startswith("loaded.")}
    assert {name: again.description[name] for name in loaded} == loaded
    figures = {name: value for name, value in first.summary().items() if not name.startswith(("seconds.", "prompts."))}
    assert {name: again.summary()[name] for name in figures} == figures


@pytest.mark.parametrize(("other", "asked"), cases(__file__, "other_answers_are_asked_for_and_other_scores_are_not"))
def test_other_answers_are_asked_for_and_other_scores_are_not(tiny: list[str], complete: Path, other: str, asked: bool):
    stages = stages_of(configuration(*tiny, *KNOWN, f"paths.mlruns={complete / 'mlruns'}", other))
    assert any(stage.missing for stage in stages) == asked


def test_a_larger_k_is_asked_for_before_it_is_needed(measure: Callable):
    result, _ = measure("metric.frs.k=30", "dataset.limit=3")
    baseline = result.graded_baseline["top_logprobs"].to_pylist()
    assert {len(token) for tokens in baseline for token in tokens} == {30}
    assert result.scores["frs"].values["frs.entropy.mean"].value > 0


def test_what_a_data_set_leaves_out_is_on_record(measure: Callable, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    file = tmp_path / "quiz.csv"
    file.write_text("question,answers\nWho drew the maps?,Karl\nWho?,\nWhere?,\u200b\nWhen was it?,1832\n")
    with caplog.at_level("INFO"):
        result, _ = measure("dataset=local", f"dataset.path={file}", "dataset.max_invalid_fraction=0.5")
    recorded = {name: value for name, value in result.description.items() if name.startswith("loaded.dataset.")}
    digest = recorded.pop("loaded.dataset.fingerprint")
    assert recorded == {"loaded.dataset.unusable.no_accepted_answer": 2, "loaded.dataset.unusable_aliases": 0}
    assert f"data set local: 2 questions, fingerprint {digest[:12]}, 2 no accepted answer" in caplog.messages


def test_questions_without_a_type_are_given_one_by_a_classifier(measure: Callable, tmp_path: Path):
    from robust_eval.question_type.classifier import from_encoder

    from_encoder(str(save_tiny_encoder(tmp_path / "encoder"))).save(tmp_path / "types")
    lines = [{"id": f"{place}", "question": f"what is it {place}?", "answers": ["kkkkk"]} for place in range(4)]
    lines[0]["type"] = "fish"
    file = tmp_path / "mine.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    mine = ["dataset=jsonl", f"dataset.path={file}", "dataset.name=mine"]
    result, folder = measure(*mine, f"question_types={tmp_path / 'types'}")
    first, *others = pq.read_table(folder / "questions.parquet")["type"].to_pylist()
    assert first == "fish"
    assert set(others) <= {"ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM"}
    assert result.description["loaded.question_types.predicted"] == 3
    assert result.description["loaded.question_types.sha256"] == folder_hash(tmp_path / "types")
    assert "3 of the questions asked have a type predicted by the classifier" in (folder / "report.html").read_text()


def test_a_folder_holds_one_run(measure: Callable, tmp_path: Path):
    measure("dataset.limit=2", base=tmp_path, folder="mine")
    result, _ = measure("dataset.limit=2", base=tmp_path, folder="mine")  # the same once more
    assert result.prompts_asked == 0
    before = {path: path.read_bytes() for path in (tmp_path / "mine").rglob("*") if path.is_file()}
    with pytest.raises(UserError) as problem:
        measure("dataset.limit=2", "seed=1", base=tmp_path, folder="mine")
    assert str(problem.value) == (
        f"{tmp_path / 'mine'} contains a run with other settings: choose another folder (hydra.run.dir)"
    )
    with FileLock(tmp_path / "mine.lock"), pytest.raises(UserError) as problem:
        measure(base=tmp_path, folder="mine")
    assert str(problem.value) == (f"another run is using {tmp_path / 'mine'}: choose another folder (hydra.run.dir)")
    assert {path: path.read_bytes() for path in (tmp_path / "mine").rglob("*") if path.is_file()} == before


@pytest.fixture(scope="module")
def enumerate_facts(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    settings = ("sampler=exact", "dataset.limit=3", "sampler.exact.selection=none", "sampler.exact.nodes=20")
    return runs_of_tiny_model(tmp_path_factory, *settings, shared=False)


def test_an_exact_run_gives_an_ordinary_table_of_probabilities(enumerate_facts: Runs):
    result, folder = enumerate_facts("metric=[frs,certainty]")
    graded = pq.read_table(folder / "graded.parquet")
    sampled = graded.filter(pc.greater(graded["temperature"], 0))
    assert sampled.drop_columns(["sampler", "ensemble"]).schema.equals(SCHEMA)
    sums = sampled.group_by(["question_id", "temperature"]).aggregate([("weight", "sum")])
    assert sums.num_rows == 3 * 10
    assert sums["weight_sum"].to_pylist() == pytest.approx([1.0] * 30)
    curves = pq.read_table(folder / "curves.parquet")
    grid = [0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0]
    beyond = [2.2, 2.4, 2.6, 2.8, 3.0, 3.2, 3.4, 3.6, 3.8, 4.0]
    assert sorted(set(curves["temperature"].to_pylist())) == [0.05, 0.1, *grid, *beyond]
    summary = result.summary()
    assert summary["outcomes.ok"] + summary["outcomes.empty"] == pytest.approx(30)
    assert {"frs.offgrid.d1", "accuracy_certified_lower.t0.2", "certainty.entropy.t1"} <= summary.keys()
    assert result.description["loaded.dtype"] == "float32"


def test_an_exact_run_reads_the_letters_of_multiple_choice_questions(enumerate_facts: Runs):
    result, folder = enumerate_facts("dataset=physics", "metric=[frs,certainty]")
    graded = pq.read_table(folder / "graded.parquet")
    at_one = graded.filter(pc.equal(graded["temperature"], 1.0))
    assert set(at_one["label"].to_pylist()) == {"A", "B", "C", "D", "E", None}
    assert set(at_one["outcome"].to_pylist()) <= {"ok", "invalid", "empty"}
    assert at_one.num_rows == 3 * 6
    assert result.scores["certainty"].curves["certainty.entropy"][1.0].value > 1  # a random model is uncertain


def test_what_a_grader_cannot_tell_an_exact_sampler_is_said_before_a_model_loads(enumerate_facts: Runs, tmp_path: Path):
    (tmp_path / "config.json").touch()
    with pytest.raises(UserError, match=r"^sampler=exact cannot grade the answers to question .*: it needs"):
        enumerate_facts("grader.contains=substring", f"model.path={tmp_path}")  # there is no model


def test_figures_are_nested_settings_by_dotted_names():
    assert flat({"a": {"b": 1, "c": {"d": [2]}}, "e": None}) == {"a.b": 1, "a.c.d": [2], "e": None}


Command = Callable[..., subprocess.CompletedProcess[str]]


def test_the_smoke_preset_runs_from_the_command_line(command: Command, tiny_folder: Path, tmp_path: Path):
    tiny = [*plain_settings(tiny_folder), *KNOWN]
    process = command("experiment=smoke", *tiny, f"paths.mlruns={tmp_path}", figures=False)
    assert process.returncode == 0, process.stderr
    (report,) = tmp_path.glob("runs/*/*/report.html")
    assert f"report:  {report}" in process.stdout
    assert f"-m mlflow ui --backend-store-uri sqlite:///{tmp_path}/mlflow.db" in process.stdout
    assert "greedy answers: 4 of 12 questions kept" in process.stderr
    assert "Traceback" not in process.stdout + process.stderr
