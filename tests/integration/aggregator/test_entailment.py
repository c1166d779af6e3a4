"""Answers that entail one another, by a model with random weights: whatever it says, the clusters follow from it."""

import json
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from answer_rows import answer_row
from tiny_model import save_tiny_cross_encoder
from transformers import BertForSequenceClassification

from robust_eval.aggregator.base import ENSEMBLE
from robust_eval.aggregator.entailment import Entailment
from robust_eval.answer import answer_table
from robust_eval.error import UserError
from robust_eval.grader.matching import Matching
from robust_eval.model.local.sentences import cross_encoder, entailed, inference_model, loaded_cross_encoder
from robust_eval.question import Question

CITY = Question("city", "which city?", ("paris",))
SEA = Question("sea", "which sea?", ("north sea",))
LETTER = Question("letter", "which?", choices=("this", "that"), correct=0)
TEXTS = ("paris", "rome", "the rome", "paris", "oslo", "a b c", "rome!", "bonn")


def named(folder: Path, *labels: str) -> str:
    """Name the labels of a saved model."""
    file = folder / "config.json"
    config = json.loads(file.read_text())
    config["id2label"] = {str(number): label for number, label in enumerate(labels)}
    config["label2id"] = {label: number for number, label in enumerate(labels)}
    file.write_text(json.dumps(config))
    return str(folder)


def pairs_of(question: Question, texts: Sequence[str]) -> list[tuple[str, str]]:
    return [(f"{question.text} {one}", f"{question.text} {other}") for one in texts for other in texts]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model with random weights, of which the last label is the most likely one for about half of the pairs."""
    folder = tmp_path_factory.mktemp("inference")
    path = named(save_tiny_cross_encoder(folder, labels=3), "contradiction", "neutral", "Entailment")
    scores = loaded_cross_encoder(path).predict(pairs_of(CITY, TEXTS), activation_fn=torch.nn.Identity())
    model = BertForSequenceClassification.from_pretrained(path)
    with torch.no_grad():
        model.classifier.bias[2] += float(np.median(scores[:, :2].max(axis=1) - scores[:, 2]))
    model.save_pretrained(folder)
    return path


def rows(question: Question, *texts: str) -> list[dict[str, object]]:
    return [answer_row(question.id, trial=trial, text=text) for trial, text in enumerate(texts)]


def test_entailment_is_the_most_likely_of_the_labels(tiny: str):
    pairs = pairs_of(CITY, TEXTS)
    scores = inference_model(tiny)[0].predict(pairs, activation_fn=torch.nn.Identity())
    assert entailed(tiny, pairs) == [bool(row.argmax() == 2) for row in scores]
    assert 0 < sum(entailed(tiny, pairs)) < len(pairs)


def test_an_answer_joins_the_first_cluster_whose_head_it_entails_and_is_entailed_by(tiny: str):
    questions = [CITY, SEA, LETTER]
    table = answer_table([*rows(CITY, *TEXTS), *rows(SEA, "north sea", "the med"), *rows(LETTER, "A", "B", "A")])
    graded = Matching().grade(questions, table)
    found = Entailment(tiny).aggregate(questions, graded)

    def same(question: Question, one: str, other: str) -> bool:
        said = [f"{question.text} {text}" for text in (one, other)]
        return all(entailed(tiny, [tuple(said), tuple(reversed(said))]))

    expected: dict[str, str] = {}
    first = dict(zip(reversed(graded["label"].to_pylist()[:8]), reversed(TEXTS), strict=True))
    for label in ["rome", "paris", *sorted({*first} - {"paris", "rome"}, key=lambda form: (len(form), form))]:
        heads = [head for head, named_so in expected.items() if head == named_so]
        expected[label] = next((head for head in heads if same(CITY, first[head], first[label])), label)
    assert found["label"].to_pylist()[:8] == [expected[label] for label in graded["label"].to_pylist()[:8]]
    assert len(set(expected.values())) < len(expected)
    assert any(not same(CITY, one, other) for one, other in combinations(first.values(), 2))
    assert found["label"].to_pylist()[-3:] == ["A", "B", "A"]
    assert found.drop_columns(["label", ENSEMBLE]) == graded.drop_columns("label")


def test_a_model_that_knows_no_entailment_is_refused(tmp_path: Path):
    folder = named(save_tiny_cross_encoder(tmp_path / "other", labels=3), "LABEL_0", "LABEL_1", "LABEL_2")
    with pytest.raises(
        UserError, match="cannot classify entailment: its labels are LABEL_0, LABEL_1, LABEL_2, but one must"
    ):
        entailed(folder, [("a", "b")])
    with pytest.raises(UserError, match="cannot rank answers"):
        cross_encoder(folder)


def test_where_no_weights_are_to_be_had_it_is_said(tmp_path: Path):
    graded = Matching().grade([CITY], answer_table(rows(CITY, "paris", "rome")))
    with pytest.raises(UserError, match="cross-encoder nowhere: there is no such folder"):
        Entailment("nowhere").aggregate([CITY], graded)
    with pytest.raises(UserError, match="contains no model"):
        Entailment(str(tmp_path)).aggregate([CITY], graded)
    with pytest.raises(UserError, match=r"cross-encoder cross-encoder/nli-deberta-v3-base cannot be loaded: "):
        Entailment("cross-encoder/nli-deberta-v3-base").aggregate([CITY], graded)
    assert Entailment("nowhere").aggregate([CITY], graded.slice(0, 1))["label"].to_pylist() == ["paris"]
