import math

import pyarrow as pa
import pytest
from answer_rows import answer_row

from robust_eval.answer import answer_table
from robust_eval.error import UserError
from robust_eval.question import Question
from robust_eval.sampler.exact import Exact
from robust_eval.sampler.known_facts import KnownFacts
from robust_eval.sampler.perturbation import Perturbation
from robust_eval.sampler.temperature_sweep import TemperatureSweep

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


GRID = [0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0]
OF_SWEEPS = {"temperatures": GRID, "max_new_tokens": 5, "selection": "exact_match", "max_questions": 1000}


@pytest.mark.parametrize(
    ("sampler", "defaults"),
    [
        (KnownFacts, OF_SWEEPS | {"min_confidence": 0}),
        (TemperatureSweep, OF_SWEEPS | {"trials": 10, "estimator": "trials", "stop_on_match": False}),
        (
            Exact,
            OF_SWEEPS
            | {"nodes": 128, "precision": 0.0, "draws": 8, "max_temperature": 4.0}
            | {"estimator": "exact", "repetitions": math.inf},
        ),
        (
            Perturbation,
            {"rewrites": 5, "temperatures": [1.0], "trials": 1, "max_new_tokens": 16, "estimator": "trials"},
        ),
    ],
)
def test_the_defaults_are_those_of_the_papers(sampler: type, defaults: dict[str, object]):
    assert {name: getattr(sampler(), name) for name in defaults} == defaults


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({}, "035"),
        ({"selection": "contains"}, "0135"),
        ({"selection": "none"}, "012345"),
        ({"min_confidence": 0.5}, "05"),
    ],
)
def test_questions_are_kept_by_their_greedy_answers_and_confidence(settings: dict[str, object], kept: str):
    assert KnownFacts(**settings).select(QUESTIONS, BASELINE, seed=0) == [QUESTIONS[int(place)] for place in kept]


def test_a_model_without_temperature_0_is_not_asked_for_a_baseline_that_nothing_needs():
    assert KnownFacts(selection="none").select(QUESTIONS, BASELINE.slice(0, 0), seed=0) == QUESTIONS


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


def test_only_questions_that_are_left_are_chosen():
    assert [q.id for q in KnownFacts().select(QUESTIONS[3:], BASELINE, seed=0)] == ["q3", "q5"]


NONE_RIGHT = graded(*[(f"q{i}", f"wrong {i}", False, False, 0.5) for i in range(5)])


@pytest.mark.parametrize(
    ("asked", "baseline", "settings", "reason", "advice"),
    [
        (QUESTIONS[2:3], BASELINE, {}, "for example 'Question 2?' → 'no'", "sampler.selection=contains"),
        (QUESTIONS[2:3], BASELINE, {"selection": "contains"}, "for example 'Question 2", "sampler.selection=none"),
        (QUESTIONS[:5], NONE_RIGHT, {}, "'Question 0?' → 'wrong 0'; ", "a larger model, easier questions, or sampler."),
        (
            QUESTIONS[:1],
            BASELINE,
            {"min_confidence": 0.95},
            "all have a confidence below min_confidence=0.95",
            "a lower sampler.min_confidence",
        ),
    ],
)
def test_a_run_that_keeps_nothing_says_why_and_what_would_keep_more(asked, baseline, settings, reason, advice):
    with pytest.raises(UserError, match=r"^none of the questions passes sampler\.selection=") as problem:
        KnownFacts(**settings).select(asked, baseline, seed=0)
    said, _, tried = str(problem.value).partition("; try ")
    assert reason in said
    assert advice in tried


def test_a_limit_takes_questions_in_seeded_order():
    facts = KnownFacts(selection="none", max_questions=3)
    chosen = {seed: [q.id for q in facts.select(QUESTIONS, BASELINE, seed)] for seed in range(20)}
    assert all(len(set(ids)) == 3 for ids in chosen.values())
    assert chosen[0] == [q.id for q in facts.select(QUESTIONS, BASELINE, 0)]
    assert {question_id for ids in chosen.values() for question_id in ids} == {q.id for q in QUESTIONS}
