"""Letters that people read in replies: judged_letters.jsonl holds replies of our own writing, judged before they were
read by the program.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from robust_eval.question import LETTERS, Question
from robust_eval.reader.letters import chosen
from robust_eval.reader.reply import Reply

JUDGED = [json.loads(line) for line in Path(__file__).with_name("judged_letters.jsonl").read_text("utf-8").splitlines()]
CHOICES = ("tin", "lead", "iron", "gold")


def read(entry: dict[str, Any]) -> str | None:
    question = Question(entry["id"], "Which?", choices=tuple(entry["choices"]))
    return Reply().read(entry["reply"], question).answer or None


def test_the_list_is_long_and_of_many_kinds():
    assert len(JUDGED) >= 620
    assert {entry["language"] for entry in JUDGED} == {"en", "de", "fr", "es", "zh"}
    none = sum(entry["letter"] is None for entry in JUDGED)
    assert len(JUDGED) / 5 < none < len(JUDGED) / 2
    assert len({entry["kind"] for entry in JUDGED}) > 30


def test_what_people_read_is_read():
    wrong = {entry["id"]: (entry["letter"], found) for entry in JUDGED if (found := read(entry)) != entry["letter"]}
    assert wrong == {}


@pytest.mark.parametrize(
    ("reply", "rule", "reason"),
    [
        (r"\boxed{C}", "marked letter", ""),
        ("I would go with C.", "stated letter", ""),
        ("C) iron", "letter of a line", ""),
        ("Hm, C?", "only letter", ""),
        ("iron", "text of a choice", ""),
        ("A or B", "letter of a line", "several letters"),
        ("The answer is A. The answer is B.", "stated letter", "several letters"),
        ("The answer is G.", "stated letter", "a letter beyond the choices"),
        ("The answer is C) lead", "stated letter", "letter and text differ"),
        ("I do not know.", "", "no letter"),
    ],
)
def test_how_a_letter_was_read_is_said_or_why_it_was_not(reply: str, rule: str, reason: str):
    found = chosen(reply, CHOICES)
    assert (found.answer, found.rule, found.reason) == ("" if reason else "C", rule, reason)


@pytest.mark.parametrize(
    "reply",
    [
        # choices, one after the other in a line
        "A. 3 m/s, B. 4 m/s, C. 5 m/s, D. 6 m/s, E. 7 m/s",
        "A. 3 m/s, B. 4 m/s, …",
        "A: 3 m/s, B: 4 m/s",
        "(A) 3 m/s (B) 4 m/s",
        "A (3 m/s) and E (7 m/s)",
        "Answer: A. 3 m/s, B. 4 m/s",
        # nothing but letters, whatever parts them
        *("A\nE", "A) B) C) D) E)", "A - E", "A–E", "A:E", "A. B", "A.B.C.", "A...E", "A。B。", "A\nor\nE", "A → E"),
        *("[A] [E]", "a) e)", "Option A. Option B.", "Choice A, Choice E", "A plus E", "A through E"),
        "Answers: A\nE",
    ],
)
def test_several_letters_are_no_answer_whatever_parts_them(reply: str):
    speeds = [f"{speed} m/s" for speed in (3, 4, 5, 6, 7)]
    assert (chosen(reply, speeds).answer, chosen(reply, speeds).reason) == ("", "several letters")


@pytest.mark.parametrize(
    ("reply", "letter"),
    [("A. B", "A"), ("B) C", "B"), ("E. A and B", "E"), ("C. 4 m/s, not A. 3 m/s", "C"), ("A\nA", "A")],
)
def test_a_letter_that_is_the_text_of_a_choice_is_no_second_one(reply: str, letter: str):
    assert chosen(reply, ("B", "C", "4 m/s", "D", "A and B")).answer == letter


@pytest.mark.parametrize("parted", [" ,", " , ", " and ", ") ", "\n", ". ", " or\n", " B) "])
def test_a_reply_that_repeats_itself_is_read_at_once(parted: str):
    """In time that grows with its length, and not with the number of ways in which white space can be parted."""
    for reply in (f"A{parted * 300}x", f"The answer is A{parted * 300}x", f"{parted * 300}A"):
        assert chosen(reply, CHOICES).answer in ("", "A", "B")


@pytest.mark.parametrize("number", range(2, 11))
def test_every_letter_is_read_by_itself_and_in_a_sentence(number: int):
    choices = [f"choice number {place}" for place in range(number)]
    for letter in LETTERS[:number]:
        for reply in (letter, f"({letter})", f"**{letter}**", f"The answer is {letter}.", f"Answer: {letter}"):
            assert chosen(reply, choices).answer == letter, reply
