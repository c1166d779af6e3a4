import hashlib
import json

import pytest
from json_lines import cases

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


def test_the_fingerprint_stays_the_same_from_release_to_release():
    assert fingerprint([EXAMPLE, OTHER]) == "a4af0a7b2ed2f14b81c4c0cfd16239822089b686ba0014cab58f34c50cb6f461"
    assert fingerprint([]) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"  # of no bytes


@pytest.mark.parametrize("change", cases(__file__, "the_fingerprint_changes_with_every_field"))
def test_the_fingerprint_changes_with_every_field(change):
    fields = {name: getattr(EXAMPLE, name) for name in Question.__dataclass_fields__}
    assert fingerprint([Question(**(fields | change))]) != fingerprint([EXAMPLE])


def test_the_fingerprint_changes_with_the_order_and_the_number_of_the_questions():
    sets = [[], [EXAMPLE], [OTHER], [EXAMPLE, OTHER], [OTHER, EXAMPLE], [EXAMPLE, EXAMPLE]]
    assert len({fingerprint(questions) for questions in sets}) == len(sets)


def test_equal_questions_have_equal_fingerprints():
    again = Question(**{name: getattr(EXAMPLE, name) for name in Question.__dataclass_fields__})
    assert again is not EXAMPLE
    assert fingerprint([again, OTHER]) == fingerprint((EXAMPLE, OTHER))
