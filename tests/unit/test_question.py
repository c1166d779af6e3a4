import hashlib
import json

import numpy as np
import pytest

from robust_eval.error import UserError
from robust_eval.question import UNANSWERABLE, Question, Scenario, fingerprint

EXAMPLE = Question(
    id="q1",
    text="Who wrote Émile?",
    answers=("Rousseau", "J.-J. Rousseau"),
    type="HUM",
    level=3,
    rewrites=("Émile is by whom?",),
    incorrect=("Voltaire",),
)
OTHER = Question(id="q2", text="Which?", choices=("this", "that"), correct=1)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, Scenario.ABSTRACTIVE),
        ({"answers": ("x",)}, Scenario.ABSTRACTIVE),
        ({"context": "c"}, Scenario.EXTRACTIVE),
        ({"choices": ("x", "y")}, Scenario.MULTIPLE_CHOICE),
        ({"choices": ("x", "y"), "context": "c"}, Scenario.MULTIPLE_CHOICE),
    ],
)
def test_the_scenario_is_what_a_question_shows_besides_its_text(more, expected):
    assert Question("q", "Q?", **more).scenario is expected


def test_a_scenario_is_its_name():
    assert [str(scenario) for scenario in Scenario] == ["extractive", "multiple_choice", "abstractive"]


def test_the_fingerprint_is_the_hash_of_one_sorted_json_object_a_line():
    first = {
        "answers": ["Rousseau", "J.-J. Rousseau"],
        "category": "",
        "choices": [],
        "context": "",
        "correct": None,
        "group": "",
        "id": "q1",
        "incorrect": ["Voltaire"],
        "level": 3,
        "rewrites": ["Émile is by whom?"],
        "text": "Who wrote Émile?",
        "type": "HUM",
    }
    second = (
        '{"answers": [], "category": "", "choices": ["this", "that"], "context": "", "correct": 1, "group": "", '
        '"id": "q2", "incorrect": [], "level": null, "rewrites": [], "text": "Which?", "type": ""}'
    )
    lines = json.dumps(first, ensure_ascii=False) + "\n" + second + "\n"
    assert fingerprint([EXAMPLE, OTHER]) == hashlib.sha256(lines.encode("utf-8")).hexdigest()


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"answers": "Rome"}, "answers must be a tuple of strings, not 'Rome'"),  # R, o, m and e are no answers
        ({"answers": (3,)}, "answers must be a tuple of strings, not (3,)"),
        ({"rewrites": None}, "rewrites must be a tuple of strings, not None"),
        ({"text": None}, "text must be a string, not None"),
        (
            {"choices": ("x", "y"), "correct": 2},
            "correct must be the index of one of the 2 choices, from 0, not 2",
        ),
        (
            {"choices": ("x", "y"), "correct": "B"},
            "correct must be the index of one of the 2 choices, from 0, not 'B'",
        ),
        ({"level": "hard"}, "level must be a whole number, not 'hard'"),  # as in a log that somebody has edited
    ],
)
def test_a_field_of_another_type_is_refused(fields, sentence):
    with pytest.raises(UserError) as refused:
        Question(**{"id": "q", "text": "Q?"} | fields)
    assert str(refused.value) == f"question 'q': {sentence}"


def test_a_list_of_answers_is_as_good_as_a_tuple():
    question = Question("q", "Q?", [UNANSWERABLE])
    assert question.is_unanswerable
    assert question == Question("q", "Q?", (UNANSWERABLE,))


def test_an_index_may_be_one_of_numpy():
    question = Question("q", "?", choices=("a", "b"), correct=np.int64(1))
    assert (question.correct, type(question.correct)) == (1, int)
