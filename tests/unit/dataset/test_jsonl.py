import json
import os

import pytest
from json_lines import cases

from robust_eval.dataset.jsonl import JsonLines
from robust_eval.error import UserError
from robust_eval.question import Question

GOOD = {"id": "a", "question": "Who?", "answers": ["Anna"]}


@pytest.fixture
def file(tmp_path):
    return tmp_path / "questions.jsonl"


def write(file, *records):
    file.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")


def load(path, **more):
    return JsonLines(name="mine", path=str(path), **more).load()


def refusal(path, **more):
    with pytest.raises(UserError) as caught:
        load(path, **more)
    return str(caught.value)


def test_a_good_file_is_loaded_whole_and_in_its_order(file):
    file.write_text(
        '{"id": "z", "question": "Who wrote Émile?", "answers": ["Rousseau", "J.-J. Rousseau"], "type": "HUM", '
        '"level": 3, "rewrites": ["Émile is by whom?", "Name the author of Émile."]}\n'
        "\n"
        '{"id": "c", "question": "What is the unit of force?", "choices": ["joule", "newton"], "correct": 1, '
        '"category": "D", "answers": ["newton"]}\n'
        '  {"id": "b", "question": "Who drew?", "answers": ["Karl"], "context": "Karl drew.", "group": "p1", '
        '"incorrect": ["Anna", "Ann"]}  \n'
        '{"id": "a", "question": "Why?", "answers": ["\\u00e9"], "level": null}',
        encoding="utf-8",
    )
    assert load(file) == [
        Question(
            id="z",
            text="Who wrote Émile?",
            answers=("Rousseau", "J.-J. Rousseau"),
            type="HUM",
            level=3,
            rewrites=("Émile is by whom?", "Name the author of Émile."),
        ),
        Question(
            id="c",
            text="What is the unit of force?",
            answers=("newton",),
            choices=("joule", "newton"),
            correct=1,
            category="D",
        ),
        Question(
            id="b", text="Who drew?", answers=("Karl",), context="Karl drew.", group="p1", incorrect=("Anna", "Ann")
        ),
        Question(id="a", text="Why?", answers=("é",)),
    ]


def test_broken_json_names_file_line_and_column_and_loads_nothing(file):
    file.write_text('{"id": "a", "question": "Who?", "answers": ["Anna"]}\n\n{"id": "b"\n', encoding="utf-8")
    assert refusal(file) == (f"{file}, line 3: broken JSON (Expecting ',' delimiter at column 11)")


@pytest.mark.parametrize(("line", "kind"), [("[1]", "list"), ('"Who?"', "str"), ("3", "int"), ("null", "NoneType")])
def test_a_line_that_is_no_object_is_refused(file, line, kind):
    file.write_text(f"{json.dumps(GOOD)}\n{line}")
    assert refusal(file) == f"{file}, line 2: a question is a JSON object, not {kind}"


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"question,answers\nWho?,Anna\n", "line 1 is 'question,answers', and each line must be an object such as "),
        (b"\n[\n" + json.dumps(GOOD).encode() + b"]\n", "line 2 is '[', and each line must be an object such as "),
        (b"x" * 100, f"line 1 is '{'x' * 60}…', and each line must be an object such as "),
    ],
)
def test_a_file_that_is_a_table_is_refused_with_how_it_is_read(file, content, what):
    file.write_bytes(content)
    example = '{"id": "1", "question": "…?", "answers": ["…"]}'
    assert refusal(file) == (
        f"{file} is not a JSON Lines file: {what}{example}; dataset=local dataset.path={file} reads tables (CSV, TSV, "
        "JSON, Parquet), in any encoding"
    )


@pytest.mark.parametrize(("record", "message"), cases(__file__, "a_wrong_field_is_refused_with_its_line"))
def test_a_wrong_field_is_refused_with_its_line(file, record, message):
    write(file, GOOD | {"id": "good before"}, record)
    assert refusal(file) == f"{file}, line 2: {message}"


def test_an_id_that_stands_twice_is_refused_with_both_lines(file):
    file.write_text("\n".join([json.dumps(GOOD), "", json.dumps(GOOD | {"id": "b"}), json.dumps(GOOD)]))
    assert refusal(file) == f"{file}, line 4: id 'a' stands already in line 1"


@pytest.mark.parametrize("content", ["", "\n \n\t\n", "\ufeff"])
def test_a_file_without_questions_is_refused(file, content):
    file.write_text(content, encoding="utf-8")
    assert refusal(file) == f"the data set mine is empty: {file} holds no question"


def test_a_pipe_in_place_of_a_file_is_refused_and_not_waited_for(file):
    os.mkfifo(file)
    assert refusal(file) == f"the data file {file} cannot be read: it is a named pipe, not a file"


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(None, ["c", "a", "b"]), (1, ["c"]), (2, ["c", "a"]), (3, ["c", "a", "b"]), (9, ["c", "a", "b"])],
)
def test_the_limit_takes_the_first_questions(file, limit, expected):
    write(file, *(GOOD | {"id": name} for name in "cab"))
    assert [question.id for question in load(file, limit=limit)] == expected


def test_a_broken_line_behind_the_limit_is_refused_all_the_same(file):
    file.write_text(json.dumps(GOOD) + "\n{")
    assert refusal(file, limit=1) == (
        f"{file}, line 2: broken JSON (Expecting property name enclosed in double quotes at column 2)"
    )


@pytest.mark.parametrize("name", ["facts", "nope.jsonl"])
def test_an_unknown_built_in_name_lists_those_there_are(name):
    assert refusal(f"builtin:{name}") == (
        f"there is no data file builtin:{name}; "
        "there are builtin:facts.jsonl, builtin:passages.jsonl, builtin:physics.jsonl"
    )
