"""The command that shows why one reply is right or wrong."""

import io
import json
import sys
from collections.abc import Callable

import pytest

from robust_eval.cli import graders as command
from robust_eval.grader.graded_reply import GradedReply

Grade = Callable[..., list[str]]


@pytest.fixture
def grade(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Grade:
    """The command, with bytes on standard input; the lines that it prints."""

    def grade(*words: str, typed: bytes = b"") -> list[str]:
        monkeypatch.setattr(sys, "argv", ["robust-eval grade", *words])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed)))
        command.grade_one()
        return capsys.readouterr().out.splitlines()

    return grade


def test_a_free_reply_is_shown_with_its_answer_and_what_matches(grade: Grade):
    lines = grade("The answer is Paris", "--answers", "City of Light", "Paris", "--answers", " ")
    assert lines[0] == "extracted answer: Paris"
    assert lines[1].startswith("rule:             ")
    assert lines[2:] == [
        "normalised form:  paris",
        "accepted answers: City of Light (normalised: city of light)",
        "                  Paris (normalised: paris), matches",
        "                    (its normalised form is empty)",
        "verdict:          right",
        "uncertain:        no",
    ]


def test_a_choice_is_shown_among_all(grade: Grade):
    lines = grade("The answer is B.", "--choices", "3 m/s", "4 m/s", "--answers", "A")
    assert lines[0] == "extracted answer: B"
    assert lines[2:] == [
        "letter:           B",
        "choices:          A) 3 m/s (right)",
        "                  B) 4 m/s",
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
    lines = grade("The answer is B.", "--choices", "a", "b", "--letter", "strict")
    assert lines[2] == "letter:           none (no letter)"


def test_an_uncertain_verdict_says_so(grade: Grade, monkeypatch: pytest.MonkeyPatch):
    doubtful = GradedReply(True, "paris", "Paris", "explicit answer", "", True)
    monkeypatch.setattr(command, "grade_reply", lambda *_, **__: doubtful)
    last = grade("Paris, or Lyon?", "--answers", "Paris")[-1]
    assert last.startswith("uncertain:        yes: the extracted answer and the whole reply disagree")


def test_the_figures_are_json_for_programs(grade: Grade):
    found = json.loads("\n".join(grade("Lyon", "--answers", "Paris", "--json")))
    assert {name: found[name] for name in ("correct", "label", "answer", "reason", "uncertain", "accepted")} == {
        "correct": False,
        "label": "lyon",
        "answer": "Lyon",
        "reason": "",
        "uncertain": False,
        "accepted": [{"answer": "Paris", "normalised": "paris", "matches": False}],
    }


def test_a_reply_is_read_from_standard_input_and_hidden_signs_are_shown(grade: Grade):
    assert grade("-", "--answers", "Paris", typed=b"Paris \x1b[31m")[0] == r"extracted answer: Paris \x1b[31m"


@pytest.mark.parametrize(
    ("words", "typed", "said"),
    [
        (["-"], b"caf\xff", "REPLY on standard input must be UTF-8: invalid start byte at byte 3"),
        (["-"], b"x" * 1_000_001, "REPLY on standard input must have at most 1,000,000 bytes"),
        (["x", "--choices", "one"], b"", "choices must contain 2 to 13 texts, not 1"),
    ],
)
def test_what_is_wrong_is_answered_in_a_sentence(
    grade: Grade, capsys: pytest.CaptureFixture[str], words: list[str], typed: bytes, said: str
):
    with pytest.raises(SystemExit) as end:
        grade(*words, typed=typed)
    assert (end.value.code, capsys.readouterr().err) == (1, f"error: {said}\n")
