import hashlib
import json

import pytest

from robust_eval.question import Question, Scenario, fingerprint

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
