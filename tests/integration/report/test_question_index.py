import base64
import gzip
import json
import random
from dataclasses import replace
from typing import Any

import pytest
from experiments import without_figures
from recorded_run import recorded_run

from robust_eval.report import question_table as module
from robust_eval.report.question_table import TEXT, TEXTS, Index, number_columns, question_index
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


def data(index: Index) -> Any:
    return json.loads(gzip.decompress(base64.b64decode(index.data)))


def index_of(result: Result, limit: int) -> Index:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "INDEX_LIMIT", limit)
        return question_index(result, SHOWN, number_columns(result)[0])


def test_every_question_is_there_with_its_headline_figure(result: Result):
    index = question_index(result, SHOWN, number_columns(result)[0])
    assert (index.texts, index.is_complete) == (TEXT, True)
    found = data(index)
    assert found.pop("headline")[1:] == [*result.scores["frs"].tables["frs"]["frs_d1"].to_pylist()[:6], None]
    texts = found.pop("texts")
    assert texts[::2] == [f"What is fact {number}? " for number in range(0, 8, 2)]
    length = len(f"What is fact 1? {LONG[1]}")
    assert texts[1] == f"{result.questions[1].text[:TEXT]}… ({length} characters)"  # as it is shown
    assert texts[5] == result.questions[5].text[:TEXT]
    assert found == {
        "shown": SHOWN,
        "ids": [f"q{number}" for number in range(8)],
        "words": {
            "status": [["not kept, wrong", "kept, right"], [0, 1, 1, 1, 1, 1, 1, 0]],
            "type": [["Location", "Human", "Numerical", "Entity"], [0, 1, 2, 3, 0, 1, 2, 3]],
        },
    }


def test_where_it_is_too_large_the_texts_of_those_that_are_not_shown_are_cut_and_then_left_out(result: Result):
    sizes = [TEXT]
    found = question_index(result, SHOWN, number_columns(result)[0])
    while found.is_complete:
        cut = data(found)["texts"]
        assert [len(cut[row]) for row in (0, 5)] == [min(found.texts, 16), found.texts]
        assert cut[3].startswith(result.questions[3].text[:TEXT])
        found = index_of(result, len(found.data) - 1)
        sizes.append(found.texts)
    assert sizes == [*TEXTS, TEXT]


def test_where_the_ids_alone_are_too_large_only_those_shown_are_left(result: Result):
    index = index_of(result, 0)
    assert (index.texts, index.is_complete) == (TEXT, False)
    found = data(index)
    assert (found["shown"], found["ids"]) == ([0, 1], ["q1", "q3"])
    assert found["words"]["status"] == [["kept, right"], [0, 0]]


def test_a_run_without_figures_has_no_headline(result: Result):
    assert data(question_index(result, SHOWN, None))["headline"] == []


def test_a_question_without_a_text_is_called_by_its_id(result: Result):
    keys_alone = replace(result, questions=[replace(question, text="") for question in result.questions])
    found = data(question_index(keys_alone, SHOWN, number_columns(result)[0]))
    assert found["texts"] == found["ids"]
