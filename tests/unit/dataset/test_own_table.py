"""Tables as spreadsheets, programs and people write them: each is read as it was meant, or refused in a sentence.

``tables/judged.jsonl`` says of each what a person expects: the questions, or what the sentence must (and must not) say.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from json_lines import cases

from robust_eval.dataset.own_table import OwnTable
from robust_eval.error import UserError
from robust_eval.question import Question

WORDS = Question("1", "Who drew?", ("Karl", "Karl Berg"), context="Karl drew.", category="art", group="p")
LETTERS = Question("2", "What grinds?", choices=("mill", "hill", "pill"), correct=0)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "quiz.csv"


def load(file, content=None, **more):
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return OwnTable(name="quiz", path=str(file), **more).load()


def test_columns_with_our_names_need_no_mapping(file):
    header = "id,question,answers,context,category,group,note\n"
    row = '1,Who drew?,"[""Karl"", ""Karl Berg""]",Karl drew.,art,p,x\n'
    assert load(file, header + row) == [WORDS]


@pytest.mark.parametrize(("cell", "separator", "found"), cases(__file__, "several_answers_in_one_cell"))
def test_several_answers_in_one_cell(file, cell, separator, found):
    quoted = cell.replace('"', '""')
    (question,) = load(file, f'question,answers\nWho?,"{quoted}"\n', separator=separator)
    assert question.answers == tuple(found)


@pytest.mark.parametrize("separator", [";", "|"])
def test_a_separator_divides_the_answers_of_a_cell(file, separator):
    quiz = (
        "question,answers\n"
        f"Who wrote Hamlet?,William Shakespeare{separator}Shakespeare\n"
        "Who wrote Emma?,Jane Austen\n"
        "Who?,\n"
    )
    answers = [question.answers for question in load(file, quiz, separator=separator, max_invalid_fraction=0.5)]
    assert answers == [("William Shakespeare", "Shakespeare"), ("Jane Austen",)]


def test_a_separator_in_fewer_than_half_of_the_answers_is_part_of_them_with_a_warning(file, caplog):
    quiz = "question,answers\nOne?,a; b\nTwo?,c|d\nThree?,e\nFour?,f\nFive?,g\n"
    with caplog.at_level("WARNING"):
        assert [question.answers for question in load(file, quiz)] == [("a; b",), ("c|d",), ("e",), ("f",), ("g",)]
    assert [record.getMessage() for record in caplog.records] == [
        f"1 of the 5 cells with answers in {file} contains a {separator!r}, for example {cell!r}: each cell is read "
        f"as one value; set 'dataset.separator={separator}' to split it"
        for separator, cell in ((";", "a; b"), ("|", "c|d"))
    ]


def test_a_separator_is_looked_for_in_all_files_and_all_kinds_of_them(tmp_path):
    (tmp_path / "a.csv").write_text("question,answers\nOne?,u\nTwo?,v\n")
    (tmp_path / "b.jsonl").write_text('{"question": "Three?", "answers": "c;d"}\n{"question": "Four?", "answers": 4}\n')
    assert len(load(tmp_path)) == 4
    (tmp_path / "c.csv").write_text("question,answers\nFive?,e;f\nSix?,g;h\n")
    with pytest.raises(
        UserError, match=rf"^3 of the 6 cells with answers in {tmp_path} contain a ';', for example 'c;d'"
    ):
        load(tmp_path)


def test_answers_in_columns_of_their_own(file):
    (question,) = load(file, "q,a1,a2\nWho?,Karl,\n", columns={"question": "q", "answers": ["a1", "a2"]})
    assert question.answers == ("Karl",)


@pytest.mark.parametrize(("correct", "key"), cases(__file__, "the_right_choice_in_every_way_to_name_it"))
def test_the_right_choice_in_every_way_to_name_it(file, correct, key):
    columns = {"question": "q", "choices": ["x", "y", "z"], "correct": "key"}
    table = f"id,q,x,y,z,key\n2,What grinds?,mill,hill,pill,{key}\n"
    assert load(file, table, columns=columns, correct=correct) == [LETTERS]


def test_fewer_choices_leave_their_last_columns_empty(file):
    columns = {"choices": ["x", "y", "z"], "correct": "key"}
    table = "id,question,x,y,z,key\n1,What?,a,b,,B\n2,Which?,a,,c,C\n3,Where?,a,,,A\n"
    loaded = load(file, table, columns=columns, max_invalid_fraction=0.7)
    assert loaded == [Question("1", "What?", choices=("a", "b"), correct=1)]
    assert loaded.unusable == {"malformed choices": 2}


def test_a_row_may_have_choices_or_answers(tmp_path):
    file = tmp_path / "quiz.jsonl"
    rows = [
        {"id": "2", "question": "What grinds?", "choices": ["mill", "hill", "pill"], "correct": "A"},
        {"id": "1", "question": "Who drew?", "answers": "Karl"},
        {"id": "3", "question": "How many?", "answers": 3},
        {"id": "4", "question": "Who?", "answers": None},
        {"id": "5", "question": "Is it?", "answers": True},
    ]
    loaded = load(file, "\n".join(map(json.dumps, rows)), max_invalid_fraction=0.5)
    assert loaded == [LETTERS, Question("1", "Who drew?", ("Karl",)), Question("3", "How many?", ("3",))]
    assert loaded.unusable == {"no accepted answer": 1, "neither text, number nor list": 1}


def test_another_encoding_is_named(file):
    content = "question,answers\nWer schrieb Émile?,Rousseau\n".encode("latin-1")
    assert load(file, content, encoding="latin-1")[0].text == "Wer schrieb Émile?"


def test_a_column_that_is_null_is_not_read(file):
    table = "question,answers,context,category\nWho drew?,Karl,Karl drew.,art\n"
    (question,) = load(file, table, columns={"context": None, "category": "context"})
    assert (question.context, question.category) == ("", "Karl drew.")


def test_a_column_that_stands_for_another_does_not_stand_for_its_namesake(file):
    loaded = load(file, "question,context,answers\nShort,Long question?,Karl\n", columns={"question": "context"})
    assert [(q.text, q.context) for q in loaded] == [("Long question?", "")]


def test_a_folder_of_files_is_one_data_set(tmp_path):
    for name in ("b", "a"):
        (tmp_path / f"{name}.csv").write_text(f"question,answers\nWho is {name}?,Karl\n")
    assert [question.text for question in load(tmp_path)] == ["Who is a?", "Who is b?"]


TABLES = Path(__file__).with_name("tables")
JUDGED = [json.loads(line) for line in (TABLES / "judged.jsonl").read_text(encoding="utf-8").splitlines()]


def test_every_table_is_judged():
    assert {case["table"] for case in JUDGED} == {file.name for file in TABLES.iterdir()} - {"judged.jsonl"}


@pytest.mark.parametrize("case", JUDGED, ids=[case["table"] for case in JUDGED])
def test_a_table_is_read_as_it_was_meant_or_refused_in_a_sentence(case: dict[str, Any]):
    table = OwnTable(name="quiz", path=str(TABLES / case["table"]), **case.get("settings", {}))
    if "questions" in case:
        found = [
            [question.text, list(question.choices), question.correct]
            if question.choices
            else [question.text, list(question.answers)]
            for question in table.load()
        ]
        assert found == case["questions"]
        return
    with pytest.raises(UserError) as caught:
        table.load()
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert [part for part in case["refused"] if part not in sentence] == [], sentence
    assert [part for part in case.get("never", []) if part in sentence] == [], sentence
