import math

import pyarrow as pa
import pytest
from answer_rows import answer_row

from robust_eval.answer import answer_table
from robust_eval.error import UserError
from robust_eval.question import Question
from robust_eval.sampler.known_facts import KnownFacts

QUESTIONS = [Question(f"q{index}", f"Question {index}?", ("yes",)) for index in range(6)]


def graded(*rows: tuple[str, str, bool, bool, float]) -> pa.Table:
    """Greedy answers: question id, text, exact, correct, probability of each of two answer tokens."""
    return answer_table(
        answer_row(
            question_id,
            temperature=0.0,
            text=text,
            exact=exact,
            correct=correct,
            token_logprobs=[math.log(p), math.log(p), math.log(0.001)],
            answer_tokens=2,
        )
        for question_id, text, exact, correct, p in rows
    )


BASELINE = graded(
    ("q0", "yes", True, True, 0.9),
    ("q1", "yes indeed", False, True, 0.8),
    ("q2", "no", False, False, 0.7),
    ("q3", "yes", True, True, 0.3),
    ("q4", "maybe", False, False, 0.2),
    ("q5", "yes", True, True, 0.6),
)


def kept(**settings: object) -> list[str]:
    return [question.id for question in KnownFacts(**settings).select(QUESTIONS, BASELINE, seed=0)]


def test_the_defaults_are_those_of_the_paper():
    facts = KnownFacts()
    assert facts.temperatures == [0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0]
    assert (facts.max_new_tokens, facts.selection, facts.max_questions) == (5, "exact_match", 1000)
    assert facts.min_confidence == 0


def test_questions_answered_exactly_right_go_on():
    assert kept() == ["q0", "q3", "q5"]


SENTENCES = graded(
    *((f"q{place}", "yes", True, True, 0.9) for place in range(2)),
    *((f"q{place}", "It is yes.", False, True, 0.9) for place in range(2, 4)),
    *((f"q{place}", "no", False, False, 0.9) for place in range(4, 6)),
)


@pytest.mark.parametrize(
    ("baseline", "settings", "said"),
    [
        (
            SENTENCES,
            {},
            (
                "2 right answers contain more than an accepted answer; sampler.selection=exact_match keeps only the "
                "other 2. For a model that answers in sentences, set sampler.selection=contains, which keeps all"
            ),
        ),
        (SENTENCES, {"selection": "contains"}, ""),
        (BASELINE, {}, ""),  # one of four
    ],
)
def test_a_model_that_answers_in_sentences_is_told_of_the_wider_selection(
    baseline: pa.Table, settings: dict[str, str], said: str, caplog: pytest.LogCaptureFixture
):
    KnownFacts(**settings).select(QUESTIONS, baseline, seed=0)
    assert caplog.messages == [said] * bool(said)


def test_the_selection_can_be_wider():
    assert kept(selection="contains") == ["q0", "q1", "q3", "q5"]
    assert kept(selection="none") == ["q0", "q1", "q2", "q3", "q4", "q5"]
    # a model without temperature 0 is not asked for a baseline that nothing needs
    assert KnownFacts(selection="none").select(QUESTIONS, BASELINE.slice(0, 0), seed=0) == QUESTIONS


def test_questions_that_have_no_right_answer_are_candidates_only_where_nothing_is_selected():
    open_question = Question("open", "Why?", ())
    choice = Question("choice", "Which?", (), choices=("one", "two"), correct=1)
    unsettled = Question("unsettled", "Which?", (), choices=("one", "two"))
    questions = [open_question, QUESTIONS[0], choice, unsettled]
    assert KnownFacts().candidates(questions) == [QUESTIONS[0], choice]
    assert KnownFacts(selection="contains").candidates(questions) == [QUESTIONS[0], choice]
    assert KnownFacts(selection="none").candidates(questions) == questions
    with pytest.raises(UserError, match=r"none of the questions has an accepted .*sampler\.selection=none selects all"):
        KnownFacts().candidates([open_question, unsettled])


def test_only_questions_that_are_left_are_chosen_and_shown():
    assert [q.id for q in KnownFacts().select(QUESTIONS[3:], BASELINE, seed=0)] == ["q3", "q5"]
    with pytest.raises(UserError, match=r"none of the questions passes sampler\.selection=.*: for example 'Question 2"):
        KnownFacts().select(QUESTIONS[2:3], BASELINE, seed=0)


@pytest.mark.parametrize(
    ("asked", "settings", "advice"),
    [
        (QUESTIONS[2:3], {}, "a larger model, easier questions, or sampler.selection=contains"),
        (QUESTIONS[2:3], {"selection": "contains"}, "a larger model, easier questions, or sampler.selection=none"),
        (QUESTIONS[:1], {"min_confidence": 1.0}, "a lower sampler.min_confidence"),
    ],
)
def test_a_run_that_keeps_nothing_is_advised_what_would_keep_more(asked, settings, advice):
    with pytest.raises(UserError, match=f"; try {advice}$"):
        KnownFacts(**settings).select(asked, BASELINE, seed=0)


def test_answers_below_the_confidence_are_left_out():
    assert kept(min_confidence=0.5) == ["q0", "q5"]


def test_a_limit_takes_questions_in_seeded_order():
    facts = KnownFacts(selection="none", max_questions=3)
    chosen = {seed: [q.id for q in facts.select(QUESTIONS, BASELINE, seed)] for seed in range(20)}
    assert all(len(set(ids)) == 3 for ids in chosen.values())
    assert chosen[0] == [q.id for q in facts.select(QUESTIONS, BASELINE, 0)]
    assert {question_id for ids in chosen.values() for question_id in ids} == {q.id for q in QUESTIONS}


def test_a_run_that_keeps_nothing_says_what_was_answered():
    nothing = graded(*[(f"q{i}", f"wrong {i}", False, False, 0.5) for i in range(5)])
    with pytest.raises(
        UserError, match=r"none of the questions .*: for example 'Question 0\?' → 'wrong 0'; .*larger model"
    ):
        KnownFacts().select(QUESTIONS[:5], nothing, seed=0)


def test_a_run_that_keeps_nothing_for_lack_of_confidence_says_so():
    right = graded(("q0", "yes", True, True, 0.5))
    with pytest.raises(UserError) as problem:
        KnownFacts(min_confidence=0.9).select(QUESTIONS[:1], right, seed=0)
    assert "all have a confidence below min_confidence=0.9" in str(problem.value)
