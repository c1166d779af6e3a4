"""Right answers of lm-eval's documents, by their structure."""

import json
from pathlib import Path

import pytest

from robust_eval.interop.lm_eval_key import CONTRADICTED, Key, chosen_key, generated_key

DOCUMENTS = json.loads(Path(__file__).with_name("lm_eval_documents.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", DOCUMENTS, ids=[case["about"] for case in DOCUMENTS])
def test_a_document_has_the_key_that_its_structure_tells_or_a_reason(case: dict):
    record = {"doc": case["doc"], "target": case["target"], "metrics": case.get("metrics", ["exact_match"])}
    found = generated_key(record, case.get("config"), case.get("prompt", "Q?"))
    wanted = Key(
        tuple(case.get("answers", ())),
        tuple(case.get("choices", ())),
        case.get("correct"),
        case.get("unknown", ""),
    )
    assert found == wanted


def chosen(target: str, continuations: list[str], likeliest: int, **record: object) -> Key:
    return chosen_key({"doc": {}, "target": target, **record}, continuations, likeliest)


def test_the_target_of_continuations_is_an_index_or_a_text():
    assert chosen("1", ["no", "yes"], 0) == Key(choices=("no", "yes"), correct=1)
    assert chosen("yes", ["no", "yes"], 0) == Key(choices=("no", "yes"), correct=1)
    assert chosen("maybe", ["no", "yes"], 0).unknown == "the target is not one of the choices"
    assert chosen("[0, 1]", ["no", "yes"], 0).unknown == "the target names several choices, but only one can be right"


def test_letters_stand_for_the_choices_that_the_document_lists():
    doc = {"choices": ["ice", "iron"]}
    assert chosen("1", ["A", "B"], 0, doc=doc) == Key(choices=("ice", "iron"), correct=1)
    assert chosen("1", ["A", "B", "C"], 0, doc=doc) == Key(choices=("A", "B", "C"), correct=1)


def test_an_index_that_is_a_text_as_well_is_told_apart_by_columns_and_by_acc():
    numbers = ["1", "0"]
    assert chosen("0", numbers, 0).correct == 0
    column = {"doc": {"answer": "0"}}
    assert chosen("0", numbers, 0, acc=1.0, **column).correct == 0
    assert chosen("0", numbers, 0, acc=0.0, **column).correct == 1
    assert "the index of one choice and the text of another" in chosen("0", numbers, 0, **column).unknown


@pytest.mark.parametrize(("likeliest", "acc"), [(0, 1.0), (1, 0.0), (1, 0.6)])
def test_a_target_that_contradicts_the_log_s_acc_is_no_key(likeliest: int, acc: float):
    assert chosen("1", ["no", "yes"], likeliest, acc=acc) == Key(unknown=CONTRADICTED)
