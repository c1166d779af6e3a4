import json
from functools import cache
from pathlib import Path

import pytest
from answer_rows import answer_row
from hypothesis import given, settings
from hypothesis import strategies as st
from json_lines import cases

from robust_eval.answer import answer_table
from robust_eval.grader.levenshtein import Levenshtein
from robust_eval.question import Question

JUDGED = [
    json.loads(line) for line in Path(__file__).with_name("judged_spellings.jsonl").read_text("utf-8").splitlines()
]
PROPERTY = settings(max_examples=50, deadline=None, database=None, derandomize=True)
PROCESS = Question("process", "By which process do plants make sugar?", answers=("Photosynthesis", "the Calvin cycle"))
FORCE = Question("force", "What is the unit of force?", choices=("joule", "newton"), correct=1)
OPEN = Question("open", "What is your favourite colour?")


def verdicts(grader, *replies):
    """(label, correct, exact, outcome) of each reply (question, text, outcome)."""
    rows = [answer_row(q.id, text=text, outcome=outcome) for q, text, outcome in replies]
    graded = grader.grade(list({q.id: q for q, _, _ in replies}.values()), answer_table(rows))
    return list(zip(*(graded[name].to_pylist() for name in ("label", "correct", "exact", "outcome")), strict=True))


def right(reply, *answers, similarity=0.8):
    question = Question("q", "Q?", answers=answers)
    [(_, correct, _, _)] = verdicts(Levenshtein(similarity), (question, reply, "ok"))
    return correct


def test_a_reply_is_right_if_it_is_spelt_almost_like_an_accepted_answer():
    replies = (
        "photosynthesis.",
        "Photosynthessis",
        "fotosynthesis",
        "Calvin cicle",
        "photosynthetic",
        "chemosynthesis",
    )
    assert verdicts(Levenshtein(), *((PROCESS, reply, "ok") for reply in replies)) == [
        ("photosynthesis", True, True, "ok"),
        ("photosynthessis", True, False, "ok"),
        ("fotosynthesis", True, False, "ok"),
        ("calvin cicle", True, False, "ok"),
        ("photosynthetic", True, False, "ok"),  # 2 of 14 letters
        ("chemosynthesis", False, False, "ok"),  # 4 of 14
    ]


@pytest.mark.parametrize(("reply", "expected"), [("as", False), ("S", True), ("'s", True), ("x", False)])
def test_a_single_letter_is_like_nothing_but_itself_however_little_is_asked(reply, expected):
    assert right(reply, "'s", similarity=0.1) is expected


def test_the_whole_reply_is_compared_and_not_a_part_of_it():
    assert right("It is photosynthesis", "photosynthesis") is False
    assert right("photosynthesis\nQuestion: what else?", "photosynthesis") is True


@pytest.mark.parametrize(
    ("reply", "answer", "similarity", "expected"), cases(__file__, "a_similarity_that_equals_the_threshold_is_enough")
)
def test_a_similarity_that_equals_the_threshold_is_enough(reply, answer, similarity, expected):
    assert right(reply, answer, similarity=similarity) is expected


@pytest.mark.parametrize(("reply", "answer", "expected"), cases(__file__, "different_numbers_are_never_alike"))
def test_different_numbers_are_never_alike(reply, answer, expected):
    assert right(reply, answer) is expected


def test_judged_spellings_are_graded_as_judged_in_both_directions():
    misjudged = [
        case
        for case in JUDGED
        for one, other in ([case["reply"], *case["answers"]], [*case["answers"], case["reply"]])
        if right(one, other) is not case["want"]
    ]
    assert len(JUDGED) > 150
    assert not misjudged


@pytest.mark.parametrize(
    ("reply", "answer"),
    [("Iceland", "Ireland"), ("photon", "proton"), ("neuron", "neutron"), ("stalagmite", "stalactite")],
)
def test_other_words_that_no_affix_tells_apart_are_taken_for_misspellings(reply, answer):
    assert right(reply, answer) is True


def test_letters_empty_replies_failures_and_questions_without_gold_are_as_with_every_grader():
    assert verdicts(
        Levenshtein(),
        (FORCE, "B) newton", "ok"),
        (FORCE, "newton", "ok"),
        (PROCESS, "", "empty"),
        (PROCESS, "photosynthesis", "refused"),
        (PROCESS, "photosynthesis", "error"),
        (OPEN, "Blue", "ok"),
    ) == [
        ("B", True, True, "ok"),
        (None, False, False, "invalid"),
        (None, False, False, "empty"),
        (None, False, False, "refused"),
        (None, None, None, "error"),
        ("blue", None, None, "ok"),
    ]


def test_a_spelling_can_only_be_compared_when_it_is_whole():
    assert [Levenshtein().matcher(question) for question in (PROCESS, FORCE, OPEN)] == [None, None, None]


def distance(one, other):
    """The least number of letters to insert, delete or replace, by its definition."""

    @cache
    def left(i, j):
        if i == len(one) or j == len(other):
            return len(one) - i + len(other) - j
        return min(left(i + 1, j) + 1, left(i, j + 1) + 1, left(i + 1, j + 1) + (one[i] != other[j]))

    return left(0, 0)


WORD = st.text("bcdé", min_size=1, max_size=9).map("k{}".format)  # of two letters, and with one beginning


@PROPERTY
@given(WORD, st.lists(WORD, min_size=1, max_size=3), st.integers(1, 10))
def test_it_is_one_minus_the_distance_by_the_length_of_the_longer(reply, answers, tenths):
    enough = [
        10 * (longer - distance(reply, answer)) >= tenths * longer
        for answer in answers
        for longer in [max(len(reply), len(answer))]
    ]
    assert right(reply, *answers, similarity=tenths / 10) is any(enough)
