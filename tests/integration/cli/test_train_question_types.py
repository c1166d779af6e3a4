import re
from pathlib import Path

import pytest
from shell import Shell
from tiny_model import save_tiny_encoder

from robust_eval.question_type.classifier import read_classifier

TYPES = {"what": "ENTY", "who": "HUM", "where": "LOC", "when": "NUM"}
TRAINING = [f"{kind}:other {word} is {'it' * place} ?" for word, kind in TYPES.items() for place in range(6)]
TEST = [f"{kind}:other {word} is that ?" for word, kind in TYPES.items()]
COMMAND = ["-m", "robust_eval", "train-question-types"]
LEARN = ["--learning-rate", "0.01", "--batch-size", "4", "--epochs", "30", "--seed", "4"]


def test_an_encoder_learns_the_types_of_questions_and_is_saved(shell: Shell, tmp_path: Path):
    (tmp_path / "train.label").write_text("\n".join(TRAINING), encoding="latin-1")
    (tmp_path / "test.label").write_text("\n".join(TEST), encoding="latin-1")
    encoder = save_tiny_encoder(tmp_path / "encoder")
    files = ["--train=train.label", "--test=test.label", "--output=classifier", f"--encoder={encoder}"]
    done = shell.python([*COMMAND, *files, *LEARN], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "epoch 30 of 30: mean loss 0.0" in done.stdout
    assert re.search(r"^HUM +0 +0 +0 +1 +0 +0 *$", done.stdout, re.M)
    texts = [line.partition(" ")[2] for line in TRAINING]
    kinds = [line.partition(":")[0] for line in TRAINING]
    assert read_classifier(tmp_path / "classifier").predict(texts) == kinds


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has no questions"),
        ("DESC What is it ?", "line 1: a line must be a coarse class"),
        ("DESC:def What is it ?\nODD:x Why ?", "line 2: 'ODD' must be one of the classes"),
    ],
)
def test_a_file_that_is_not_of_trec_is_named(shell: Shell, tmp_path: Path, text: str, problem: str):
    (tmp_path / "train.label").write_text(text)
    done = shell.python([*COMMAND, "--train=train.label", "--test=train.label", "--output=classifier"], tmp_path)
    assert done.returncode == 1
    assert f"error: train.label{', ' if 'line' in problem else ' '}{problem}" in done.stderr
