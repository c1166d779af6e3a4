"""Letters of replies (docs/methods.md, §6): properties, and lists that were judged before the program read them.

letters.jsonl holds templates as well, in which {X} and {Y} stand for letters; {other} is another letter in
irrelevant.jsonl.
"""

from itertools import permutations, product
from pathlib import Path
from typing import Any

import pytest
from answer_rows import answer_row
from hypothesis import given, settings
from hypothesis import strategies as st
from json_lines import cases, json_lines

from robust_eval.answer import answer_table
from robust_eval.grader.matching import Matching
from robust_eval.question import LETTERS, Question
from robust_eval.reader.base import Reading
from robust_eval.reader.letters import anchored_letter, chosen
from robust_eval.reader.reply import ReplyReader

FOLDER = Path(__file__).parent
JUDGED = json_lines(FOLDER / "judged_letters.jsonl")
MORE = json_lines(FOLDER / "letters.jsonl")
TEMPLATES = [entry for entry in MORE if entry.get("template")]
TREACHEROUS = json_lines(FOLDER / "identity_choices.jsonl")
SENTENCES = [entry for entry in json_lines(FOLDER / "irrelevant.jsonl") if entry["for"] != "free"]
CHOICES = ("tin", "lead", "iron", "gold")
UNITS = ("metre", "second", "kelvin", "joule")
TEN = (*UNITS, "watt", "volt", "ohm", "farad", "tesla", "henry")


def read(reply: str, choices: Any) -> Reading:
    return ReplyReader().read(reply, Question("q", "Which?", choices=tuple(choices)))


def wrong_and_sure(cases: list[tuple[str, Any, str | None]]) -> list[tuple[str, str | None, str]]:
    """Return the replies that are read otherwise than wanted, without a mark of uncertainty."""
    found = [(reply, wanted, read(reply, choices)) for reply, choices, wanted in cases]
    return [
        (*case, reading.answer)
        for *case, reading in found
        if (reading.answer or None) != case[1] and not reading.uncertain
    ]


def renamed(template: str, letters: tuple[str, ...]) -> str:
    """Return a template with its letters in this order."""
    for name, letter in zip("XYZW", letters, strict=True):
        template = template.replace(f"{{{name}}}", letter)
    return template


def test_the_list_is_long_and_of_many_kinds():
    assert len(JUDGED) >= 620
    assert {entry["language"] for entry in JUDGED} == {"en", "de", "fr", "es", "zh"}
    none = sum(entry["letter"] is None for entry in JUDGED)
    assert len(JUDGED) / 5 < none < len(JUDGED) / 2
    assert len({entry["kind"] for entry in JUDGED}) > 30


def test_what_people_read_is_read_or_uncertain():
    cases = [(entry["reply"], entry["choices"], entry["letter"]) for entry in JUDGED]
    cases += [(entry["reply"], entry["choices"], entry["want"]) for entry in MORE if not entry.get("template")]
    readings = [(reply, wanted, read(reply, choices)) for reply, choices, wanted in cases]
    differ = [(*case, found) for *case, found in readings if (found.answer or None) != case[1]]
    assert [each for each in differ if not each[2].uncertain] == []
    assert len(differ) <= 0.01 * len(cases)
    assert sum(found.uncertain for *_, found in readings) <= 0.2 * len(cases)


def test_another_name_of_a_letter_is_read_as_that_name():
    orders = [(order, UNITS) for order in list(permutations("ABCD"))[1::5]]
    orders += [(tuple(order), TEN) for order in ("IJBH", "JIHB", "HBIJ")]  # a letter that is a pronoun, too
    cases = [
        (renamed(entry["reply"], order), choices, order[0] if entry["want"] == "X" else entry["want"])
        for entry, (order, choices) in product(TEMPLATES, orders)
    ]
    assert len(cases) > 700
    assert wrong_and_sure(cases) == []


@settings(max_examples=300, deadline=None, database=None, derandomize=True)
@given(
    entry=st.sampled_from(TREACHEROUS),
    place=st.integers(0, 3),
    around=st.sampled_from(("{}", " {}\n", "**{}**", '"{}"')),
)
def test_the_text_of_a_choice_is_that_choice(entry: dict[str, Any], place: int, around: str):
    choices = entry["choices"]
    place %= len(choices)
    text = around.format(choices[place])
    if around in ("{}", " {}\n") or not set(choices[place]) & set("*\"'“”_`"):
        assert read(text, choices).answer == LETTERS[place]


def test_a_sentence_that_does_not_answer_changes_no_letter():
    cases = []
    for entry, (letter, other) in product(SENTENCES, ("AC", "BA", "CD", "DB")):
        sentence = entry["sentence"].replace("{other}", other)
        before, after = entry["where"] != "after", entry["where"] != "before"
        for reply in (f"The answer is {letter}.", f"{letter}."):
            cases += [(f"{sentence} {reply}", UNITS, letter)] * before + [
                (f"{reply} {sentence}", UNITS, letter)
            ] * after
        cases += [(f"{letter}\n{sentence}", UNITS, letter)] * after + [
            (f"{sentence}\n{letter}", UNITS, letter)
        ] * before
    assert wrong_and_sure(cases) == []


@pytest.mark.parametrize("label", ["{}", "Answer: {}", "The answer is {}", "**Final answer:** {}", "\\boxed{{{}}}"])
@pytest.mark.parametrize("text", cases(__file__, "a_pronoun_an_article_and_a_roman_numeral_are_no_letters"))
def test_a_pronoun_an_article_and_a_roman_numeral_are_no_letters(label: str, text: str):
    found = chosen(label.format(text), TEN)
    assert found.answer == ""
    assert chosen(f"{label.format(text)}\nThe answer is I.", TEN).answer == "I" or "boxed" in label


@pytest.mark.parametrize(("reply", "choices", "expected"), cases(__file__, "a_reply_has_the_reading_that_was_judged"))
def test_a_reply_has_the_reading_that_was_judged(reply: str, choices: list[str], expected: dict[str, Any]):
    found = chosen(reply, choices)._asdict()
    assert found == found | expected


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


@pytest.mark.parametrize(
    ("reply", "letter", "strict"), cases(__file__, "an_anchored_letter_is_the_answer_and_nothing_else_is")
)
def test_an_anchored_letter_is_the_answer_and_nothing_else_is(reply: str, letter: str | None, strict: bool):
    assert anchored_letter(reply, 5, strict) == letter


@pytest.mark.parametrize(
    ("choices", "expected"), cases(__file__, "exactly_as_many_letters_as_there_are_choices_are_answers")
)
@pytest.mark.parametrize("pattern", ["{}", "{}) 4 m/s", "The answer is {}."])
def test_exactly_as_many_letters_as_there_are_choices_are_answers(choices, expected, pattern):
    assert [anchored_letter(pattern.format(letter), choices) for letter in "ABCDEFGHIJK"] == expected


LIKE_REPLIES = st.lists(
    st.sampled_from(["A", "B", "F", "a", "b", "answer", "is", "The", ".", ")", "(", ":", "*", "'", '"', " ", "\n", "4"])
).map("".join)


@settings(max_examples=200, deadline=None, database=None, derandomize=True)
@given(reply=st.one_of(st.text(), LIKE_REPLIES), choices=st.integers(2, 10))
def test_every_reply_gives_a_letter_that_it_holds_and_that_is_offered_or_none(reply, choices):
    letter = anchored_letter(reply, choices)
    assert letter is None or (letter in LETTERS[:choices] and letter in reply.upper())


@pytest.mark.parametrize(("letter", "label", "outcome"), [("anchored", "B", "ok"), ("strict", None, "invalid")])
def test_a_grader_reads_letters_as_its_setting_says(letter: str, label: str | None, outcome: str):
    question = Question("q", "Which?", choices=("1", "2", "3"), correct=1)
    graded = Matching(letter=letter).grade([question], answer_table([answer_row("q", text="B) 2")])).to_pylist()[0]
    assert (graded["label"], graded["correct"], graded["outcome"]) == (label, letter == "anchored", outcome)
    choices = Matching(letter=letter).choices(question)
    assert choices is not None
    assert choices.identity == ("letters 3 1" if letter == "anchored" else "letters 3 1 strict")
