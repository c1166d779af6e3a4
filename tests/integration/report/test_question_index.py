import random
from dataclasses import replace
from typing import Any

import pytest
from experiments import without_figures
from recorded_run import recorded_run

from robust_eval.report.question_table import TEXT, number_columns, question_index
from robust_eval.tracking.result import Result

LONG = ["".join(random.Random(number).choices("abcdefghijklmnop", k=500)) for number in range(8)]
SHOWN = [1, 3]


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The odd ones of eight questions have a long text, and one was answered wrong."""
    with without_figures():
        return recorded_run(
            tmp_path_factory.mktemp("run") / "run",
            8,
            text=["" if number % 2 == 0 else LONG[number] for number in range(8)],
        )


def index_of(result: Result) -> dict[str, Any]:
    return question_index(result, SHOWN, number_columns(result)[0])


def test_every_question_is_there_with_its_headline_figure(result: Result):
    found = index_of(result)
    assert found.pop("headline")[1:] == [*result.scores["frs"].tables["frs"]["frs_d1"].to_pylist()[:6], None]
    texts = found.pop("texts")
    assert texts[::2] == [f"What is fact {number}? " for number in range(0, 8, 2)]
    length = len(f"What is fact 1? {LONG[1]}")
    assert texts[1::2] == [f"{question.text[:TEXT]}… ({length} characters)" for question in result.questions[1::2]]
    assert found == {
        "shown": SHOWN,
        "ids": [f"q{number}" for number in range(8)],
        "words": {
            "status": [["not kept, wrong", "kept, right"], [0, 1, 1, 1, 1, 1, 1, 0]],
            "type": [["Location", "Human", "Numerical", "Entity"], [0, 1, 2, 3, 0, 1, 2, 3]],
        },
    }


def test_a_run_without_figures_has_no_headline(result: Result):
    assert question_index(result, SHOWN, None)["headline"] == []


def test_a_question_without_a_text_is_called_by_its_id(result: Result):
    keys_alone = replace(result, questions=[replace(question, text="") for question in result.questions])
    found = index_of(keys_alone)
    assert found["texts"] == found["ids"]
