import math

import pytest

from robust_eval.metric.classification import classification, confusion_matrix
from robust_eval.metric.score import proportion


def test_rows_are_true_classes_and_columns_predicted_ones():
    truth, predicted = ["HUM", "HUM", "LOC", "NUM"], ["HUM", "NUM", "LOC", "HUM"]
    assert confusion_matrix(truth, predicted, ["HUM", "LOC", "NUM"]).tolist() == [[1, 0, 1], [0, 1, 0], [1, 0, 0]]


def test_a_classifier_is_scored_as_a_whole_and_by_class():
    truth, predicted = ["HUM", "HUM", "HUM", "LOC"], ["HUM", "HUM", "LOC", "LOC"]
    score = classification(truth, predicted, ["HUM", "LOC", "NUM"])
    assert {name: estimate.value for name, estimate in score.values.items()} == pytest.approx(
        {
            "accuracy": 0.75,
            "recall.HUM": 2 / 3,
            "precision.HUM": 1.0,
            "recall.LOC": 1.0,
            "precision.LOC": 0.5,
            "recall.NUM": math.nan,
            "precision.NUM": math.nan,
            "confusion.HUM.HUM": 2,
            "confusion.HUM.LOC": 1,
            "confusion.HUM.NUM": 0,
            "confusion.LOC.HUM": 0,
            "confusion.LOC.LOC": 1,
            "confusion.LOC.NUM": 0,
            "confusion.NUM.HUM": 0,
            "confusion.NUM.LOC": 0,
            "confusion.NUM.NUM": 0,
        },
        nan_ok=True,
    )
    assert score.values["accuracy"] == proportion(3, 4)
    assert score.tables["confusion_matrix"].to_pylist() == [
        {"true": "HUM", "HUM": 2, "LOC": 1, "NUM": 0},
        {"true": "LOC", "HUM": 0, "LOC": 1, "NUM": 0},
        {"true": "NUM", "HUM": 0, "LOC": 0, "NUM": 0},
    ]
