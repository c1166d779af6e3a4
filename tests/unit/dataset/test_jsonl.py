import os

import pytest

from robust_eval.dataset.jsonl import JsonLines
from robust_eval.error import UserError
from robust_eval.question import Question


@pytest.fixture
def file(tmp_path):
    return tmp_path / "questions.jsonl"


def load(path):
    return JsonLines(name="mine", path=str(path)).load()


def refusal(path):
    with pytest.raises(UserError) as caught:
        load(path)
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


def test_a_pipe_in_place_of_a_file_is_refused_and_not_waited_for(file):
    os.mkfifo(file)
    assert refusal(file) == f"the data file {file} cannot be read: it is a named pipe, not a file"


@pytest.mark.parametrize("name", ["facts", "nope.jsonl"])
def test_an_unknown_built_in_name_lists_those_there_are(name):
    assert refusal(f"builtin:{name}") == (
        f"there is no built-in set builtin:{name}: choose builtin:facts.jsonl, builtin:passages.jsonl, "
        "builtin:physics.jsonl, builtin:unanswerable.jsonl, or the path of a file"
    )
