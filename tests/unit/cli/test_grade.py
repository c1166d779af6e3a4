"""The command that shows why one reply is right or wrong."""

import sys
from collections.abc import Callable

import pytest

from robust_eval.cli import graders as command
from robust_eval.grader.graded_reply import GradedReply

Grade = Callable[..., list[str]]


@pytest.fixture
def grade(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Grade:
    """The command; the lines that it prints."""

    def grade(*words: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", ["robust-eval grade", *words])
        command.grade_one()
        return capsys.readouterr().out.splitlines()

    return grade


def test_a_free_reply_is_shown_with_its_answer_and_the_accepted_ones(grade: Grade):
    lines = grade("The answer is Paris", "--answers", "City of Light", "Paris", " ")
    assert lines[0] == "extracted answer: Paris"
    assert lines[1].startswith("rule:             ")
    assert lines[2:] == [
        "normalised form:  paris",
        "accepted answers: City of Light (normalised: city of light)",
        "                  Paris (normalised: paris)",
        "                    (normalised: )",
        "verdict:          right",
        "uncertain:        no",
    ]


def test_accepted_answers_of_repeated_options_add_up(grade: Grade):
    assert "verdict:          right" in grade("Rome", "--answers", "Rome", "--answers", "Paris")


def test_a_choice_is_shown_with_its_letter(grade: Grade):
    lines = grade("The answer is B.", "--choices", "3 m/s", "4 m/s", "--answers", "A")
    assert lines[0] == "extracted answer: B"
    assert lines[2:] == [
        "letter:           B",
        "verdict:          wrong",
        "uncertain:        no",
    ]


def test_a_reply_without_an_answer_says_why(grade: Grade):
    assert grade("<think>Paris", "--answers", "Paris") == [
        "extracted answer: none (reasoning not ended)",
        "accepted answers: Paris (normalised: paris)",
        "verdict:          wrong",
        "uncertain:        no",
    ]
    assert grade(" ", "--answers", "Paris")[0] == "extracted answer: none (the reply is empty)"


def test_an_uncertain_verdict_says_so(grade: Grade, monkeypatch: pytest.MonkeyPatch):
    doubtful = GradedReply(True, "paris", "Paris", "explicit answer", "", True)
    monkeypatch.setattr(command, "grade_reply", lambda *_, **__: doubtful)
    last = grade("Paris, or Lyon?", "--answers", "Paris")[-1]
    assert last.startswith("uncertain:        yes: the verdict depends on which part of the reply counts")


def test_hidden_signs_are_shown(grade: Grade):
    assert grade("Paris \x1b[31m", "--answers", "Paris")[0] == r"extracted answer: Paris \x1b[31m"


def test_what_is_wrong_is_answered_in_a_sentence(grade: Grade, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as end:
        grade("x", "--choices", "one")
    said = "error: choices must contain 2 to 13 strings, not 1\n"
    assert (end.value.code, capsys.readouterr().err) == (1, said)
