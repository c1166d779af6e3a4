from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from robust_eval.grader.answer_matcher import AnswerMatcher
from robust_eval.model.base import Enumeration, Request
from robust_eval.prompt.prompt import Prompt
from robust_eval.store import keys_and_rows
from robust_eval.store.keys_and_rows import Tables, answers_key

FILES, SERVED, OTHER = {"files": "1"}, {"server": "http://localhost", "model": "a model"}, {"files": "1", "kind": "own"}
KINDS = {str(FILES): {"seedless_greedy": True}, str(SERVED): {"remote": True}}
SAMPLED = Request("q", 0, Prompt("", (), "Where?"), (0.5,), 2, 5, seed=3, matcher=AnswerMatcher(["paris"]))
GREEDY = replace(SAMPLED, temperatures=(0.0,), trials=1)
ENUMERATED = replace(SAMPLED, enumeration=Enumeration(9, (0.5, 1.0)))
PRECISE = replace(SAMPLED, enumeration=Enumeration(9, (0.5, 1.0), precision=0.02))
ROME = {"matcher": AnswerMatcher(["rome"])}


@pytest.mark.parametrize(
    ("identity", "asked", "change", "differs"),
    [
        (FILES, SAMPLED, {"question_id": "b"}, True),
        (FILES, SAMPLED, {"variant": 1}, True),
        (FILES, SAMPLED, {"prompt": Prompt("", (("Why?", "So."),), "Where?")}, True),
        (FILES, SAMPLED, {"prompt": Prompt("Be brief.", (), "Where?")}, True),
        (FILES, SAMPLED, {"seed": 4}, True),
        (FILES, SAMPLED, {"max_new_tokens": 6}, True),
        (FILES, SAMPLED, {"top_logprobs": 2}, True),
        (FILES, SAMPLED, {"stop_on_match": True}, True),
        (FILES, SAMPLED, {"enumeration": ENUMERATED.enumeration}, True),
        # what is right determines answers that end once they are right, or are enumerated
        (FILES, SAMPLED, ROME, False),
        (FILES, replace(SAMPLED, stop_on_match=True), ROME, True),
        (FILES, ENUMERATED, ROME, True),
        (FILES, ENUMERATED, {"matcher": AnswerMatcher(["paris"])}, False),
        # greedy answers of a local model have no seed, unless an enumeration is thinned by it
        (FILES, GREEDY, {"seed": 4}, False),
        (FILES, replace(GREEDY, enumeration=Enumeration(8, (0.0, 1.0))), {"seed": 4}, True),
        (SERVED, GREEDY, {"seed": 4}, True),
        (OTHER, GREEDY, {"seed": 4}, True),
        # only a server draws answers that it cannot enumerate
        (FILES, ENUMERATED, {"enumeration": Enumeration(9, (0.5, 1.0), draws=10)}, False),
        (SERVED, ENUMERATED, {"enumeration": Enumeration(9, (0.5, 1.0), draws=10)}, True),
        *((identity, ENUMERATED, {"enumeration": PRECISE.enumeration}, True) for identity in (FILES, SERVED)),
        (FILES, PRECISE, {"enumeration": Enumeration(9, (0.5, 1.0), precision=0.01)}, True),
    ],
)
def test_a_key_has_all_that_determines_the_answers_and_nothing_else(
    identity: dict[str, str], asked: Request, change: dict[str, Any], differs: bool
):
    kind = KINDS.get(str(identity), {})
    assert (answers_key(identity, replace(asked, **change), **kind) != answers_key(identity, asked, **kind)) == differs
    assert answers_key({"files": "2"}, asked, **kind) != answers_key(identity, asked, **kind)


@pytest.mark.parametrize(("identity", "differs"), [(FILES, False), (SERVED, True)])
def test_another_number_of_further_draws_is_another_key_of_a_server(
    monkeypatch: pytest.MonkeyPatch, identity: dict[str, str], differs: bool
):
    kind = KINDS.get(str(identity), {})
    before = answers_key(identity, ENUMERATED, **kind)
    monkeypatch.setattr(keys_and_rows, "FURTHER_DRAWS", 3)
    assert (answers_key(identity, ENUMERATED, **kind) != before) == differs


N = pa.schema({"n": pa.int64(), "text": pa.string()})


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": list(numbers), "text": [f"row {n}" for n in numbers]}, schema=N)


def test_many_tables_come_back_in_any_order():
    tables = Tables[int](N)
    for name in range(2500):
        tables[name] = rows(*range(name, name + name % 3))
    names = [*range(2499, -1, -2), *range(0, 2500, 2)]
    expected = [n for name in names for n in range(name, name + name % 3)]
    found = tables.together(names)
    assert found == rows(*expected)
    assert all(column.num_chunks == 1 for column in found.columns)
    assert tables.names() == set(range(2500))


def test_the_last_table_of_a_name_counts_and_others_may_be_left_out():
    tables = Tables[str](N)
    tables["a"], tables["b"], tables["c"] = rows(1), rows(2, 3), rows(4)
    tables["a"] = rows(5)
    assert "a" in tables
    assert "d" not in tables
    assert tables.together(["a", "c"]) == rows(5, 4)
    assert tables.together(["a", "b", "c"]) == rows(5, 2, 3, 4)


def test_no_table_is_an_empty_one_and_an_unknown_name_is_refused():
    tables = Tables[str](N)
    assert tables.together([]) == rows()
    with pytest.raises(KeyError):
        tables.together(["a"])
