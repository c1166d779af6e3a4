import json
import logging
import re
import sys
from collections.abc import Callable
from pathlib import Path

import mlflow
import pyarrow.parquet as pq
import pytest
from tiny_model import save_tiny_encoder

from robust_eval.cli import train_question_types as train
from robust_eval.question import QUESTION_TYPES
from robust_eval.question_type.classifier import read_classifier
from robust_eval.question_type.training import Settings

WORDS = {"what": "ENTY:other", "who": "HUM:ind", "where": "LOC:other", "when": "NUM:date"}
TRAINING = [f"{label} {word} is {'it' * place} ?" for word, label in WORDS.items() for place in range(6)]
TEST = [*(f"{label} {word} is that ?" for word, label in WORDS.items()), TRAINING[0]]
LEARN = ["--learning-rate", "0.01", "--batch-size", "4", "--epochs", "30", "--seed", "4"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder, and questions to learn from and to test with."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "train.label").write_text("\n".join(TRAINING), encoding="latin-1")
    (folder / "test.label").write_text("\n".join(TEST), encoding="latin-1")
    save_tiny_encoder(folder / "encoder")
    return folder


@pytest.fixture
def command(files: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """The command line, in this process."""

    def run(*arguments: str) -> None:
        given = [f"--train={files / 'train.label'}", f"--test={files / 'test.label'}", f"--encoder={files / 'encoder'}"]
        monkeypatch.setattr(sys, "argv", ["train", *given, *arguments])
        monkeypatch.setenv("COLUMNS", "200")
        train.main()

    yield run
    logging.getLogger("robust_eval").setLevel(logging.NOTSET)


def refusal(command: Callable[..., None], capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The sentence with which the command line exits."""
    with pytest.raises(SystemExit) as ended:
        command(*arguments)
    assert ended.value.code == 1
    return capsys.readouterr().err.removeprefix("error: ").strip()


def test_a_training_leaves_a_classifier_its_evaluation_and_a_record(
    command: Callable[..., None], files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = tmp_path / "made" / "classifier"
    command(*LEARN, "--output", str(folder), "--mlruns", str(tmp_path / "mlruns"))
    texts = [line.partition(" ")[2] for line in TEST]
    types = [line.partition(":")[0] for line in TEST]
    assert read_classifier(folder).predict(texts) == types

    evaluation = folder / "evaluation"
    names = {"confusion_matrix.parquet", "confusion_matrix.png", "confusion_matrix.svg", "summary.json"}
    assert {file.name for file in evaluation.iterdir()} == names | {"test_questions.parquet"}
    expected = [
        {"line": line, "question": text, "type": kind, "predicted": kind}
        for line, (text, kind) in enumerate(zip(texts, types, strict=True), start=1)
    ]
    assert pq.read_table(evaluation / "test_questions.parquet").to_pylist() == expected
    confusion = [
        {"true": true, **{name: types.count(true) * (name == true) for name in QUESTION_TYPES}}
        for true in QUESTION_TYPES
    ]
    assert pq.read_table(evaluation / "confusion_matrix.parquet").to_pylist() == confusion
    summary = json.loads((evaluation / "summary.json").read_text())
    assert (summary["accuracy"], summary["accuracy.high"], summary["recall.ABBR"]) == (1.0, 1.0, None)
    assert [summary[f"questions.{name}"] for name in ("train", "test", "test_in_train")] == [24, 5, 1]

    client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'mlruns' / 'mlflow.db'}")
    (run,) = client.search_runs([client.get_experiment_by_name("question_types").experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params == {
        "encoder": str(files / "encoder"),
        "seed": "4",
        "learning_rate": "0.01",
        "batch_size": "4",
        "epochs": "30",
        "weight_decay": "0.01",
        "train": str(files / "train.label"),
        "test": str(files / "test.label"),
    }
    assert run.data.tags["classifier"] == str(folder)
    assert run.data.metrics == pytest.approx({name: value for name, value in summary.items() if value is not None})
    assert {file.path for file in client.list_artifacts(run.info.run_id)} == names | {"test_questions.parquet"}

    shown = capsys.readouterr().out
    assert re.search(r"│ HUM +│ +0 │ +0 │ +0 │ +1 │ +0 │ +0 │ +1.000 │ 0.207 to 1.000 │", shown)
    assert "test accuracy: 100.0% (5 of 5; 95 % interval, Wilson: 56.6% to 100.0%)\n" in shown
    assert "1 of the test questions are among those it learned from.\n" in shown
    assert f"classifier: {folder}\nuse it:     python run.py question_types={folder}\n" in shown


def test_a_folder_that_holds_something_is_not_written_to(
    command: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "mine.txt").write_text("mine")
    said = refusal(command, capsys, "--output", str(tmp_path))
    assert said == f"the classifier cannot be saved in {tmp_path}, which is not empty: choose another --output"
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]


def test_a_folder_that_cannot_be_made_is_said_before_anything_is_trained(
    command: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "classifier"
    said = refusal(command, capsys, "--output", str(folder))
    assert said == f"the classifier cannot be saved in {folder}: Not a directory"


def test_mistakes_exit_with_one_sentence(
    command: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert refusal(command, capsys, "--epochs", "0") == "the epochs must be at least 1, not 0"
    assert refusal(command, capsys, "--seed", "-1") == "the seed must be 0 or more, not -1"
    assert refusal(command, capsys, "--test", "none.label") == "none.label cannot be read: No such file or directory"
    said = refusal(command, capsys, "--encoder", "nowhere", "--mlruns", str(tmp_path))
    assert said == "encoder nowhere: there is no such folder"
    said = refusal(command, capsys, "--uri", "http://me:abc@host", "--mlruns", str(tmp_path))
    assert said.startswith("--uri must not hold a secret, ")
    assert list(tmp_path.iterdir()) == []


def test_the_embedded_encoder_takes_the_place_of_one_that_is_out_of_reach(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(train, "ENCODER", "nobody/nothing-of-this-name")
    assert train._encoder(None) == train.EMBEDDED
    (record,) = caplog.records
    assert record.message.startswith(
        "nobody/nothing-of-this-name is no folder here, and cannot be loaded from the hub: "
    )
    assert record.message.endswith(f"; the embedded encoder {train.EMBEDDED} takes its place")


def test_the_encoder_of_the_paper_is_taken_where_the_hub_has_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(train, "hub_commit", lambda repository, revision: "6cdc0aad91f5ae2e6712e91bc7b65d1cf5c05411")
    assert train._encoder(None) == train.ENCODER == "distilbert/distilbert-base-uncased"


def test_the_encoder_that_is_asked_for_is_taken():
    assert train._encoder("mine/encoder") == "mine/encoder"


def test_an_encoder_is_trained_as_in_the_paper_unless_it_is_the_embedded_one():
    def settings(encoder: str, *given: str) -> Settings:
        arguments = train._parser().parse_args(["--train", "a", "--test", "b", *given])
        return train._settings(arguments, encoder)

    assert settings("other") == Settings(2e-5, 16, 3, weight_decay=0.01)
    assert settings(train.EMBEDDED) == train.FOR_EMBEDDED
    assert settings("other", "--epochs", "7") == Settings(2e-5, 16, 7)
