import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from json_lines import cases

from robust_eval.rewriter.llm import asks, listed

PROPERTY = settings(max_examples=20, deadline=None, database=None, derandomize=True)


@pytest.mark.parametrize(("reply", "items"), cases(__file__, "the_items_of_a_reply"))
def test_the_items_of_a_reply(reply: str, items: list[str]):
    assert listed(reply) == items


@pytest.mark.parametrize("text", cases(__file__, "questions_and_requests_ask"))
def test_questions_and_requests_ask(text: str):
    assert asks(text)


@pytest.mark.parametrize("text", cases(__file__, "statements_and_introductions_do_not_ask"))
def test_statements_and_introductions_do_not_ask(text: str):
    assert not asks(text)


WORD = st.text(st.sampled_from("abdefghklmnoprstuwyzéßñ漢"), min_size=2, max_size=9)
QUESTION = st.builds(
    lambda first, words, end: " ".join([first, *words]) + end,
    st.sampled_from(["What is", "Which", "In which city", "Who", "Name the", "“Emma” is by", 'The "Emma" of', "5 and"]),
    st.lists(WORD | st.sampled_from(["1945", "3.5", "Austen's", "(Emma)", "well-known"]), min_size=1, max_size=12),
    st.just("?"),
)
QUESTIONS = st.lists(QUESTION, min_size=2, max_size=9)
STYLES: dict[str, Callable[[int, str], str]] = {
    "dot": lambda number, item: f"{number}. {item}",
    "parenthesis": lambda number, item: f"{number}) {item}",
    "parentheses": lambda number, item: f"({number}) {item}",
    "brackets": lambda number, item: f"[{number}] {item}",
    "dash": lambda number, item: f"{number} – {item}",
    "rewrite": lambda number, item: f"Rewrite {number}: {item}",
    "bold rewrite": lambda number, item: f"**Rewrite {number}:** {item}",
    "bold number": lambda number, item: f"**{number}.** {item}",
    "bold line": lambda number, item: f"**{number}. {item}**",
    "bold item": lambda number, item: f"{number}. **{item}**",
    "style": lambda number, item: f"{number}. **Style {number}:** {item}",
    "title": lambda number, item: f"### Version {number}\n{item}",
    "explained": lambda number, item: f"{number}. {item}\n   (Version {number}.)",
    "hyphen": lambda number, item: f"- {item}",
    "asterisk": lambda number, item: f"* **{item}**",
    "bullet": lambda number, item: f"• {item}",
    "none": lambda number, item: item,
}


@pytest.mark.parametrize("style", STYLES)
@PROPERTY
@given(questions=QUESTIONS, gap=st.sampled_from(["\n", "\n\n", "\r\n"]), around=st.booleans())
def test_a_list_in_any_style_is_read_back(style: str, questions: list[str], gap: str, around: bool):
    reply = gap.join(STYLES[style](number, item) for number, item in enumerate(questions, start=1))
    assert listed(f"Sure! Here you go:\n\n{reply}\n\nI hope this helps!" if around else reply) == questions


@PROPERTY
@given(questions=QUESTIONS, indent=st.none() | st.just(2), kept=st.booleans())
def test_a_list_in_json_is_read_back(questions: list[str], indent: int | None, kept: bool):
    objects = [{"question": item} for item in questions]
    for data in (questions, {"rewrites": questions}, dict(enumerate(questions)), objects):
        assert listed(json.dumps(data, indent=indent, ensure_ascii=kept)) == questions


@PROPERTY
@given(questions=QUESTIONS, data=st.data())
def test_of_json_that_is_cut_nothing_is_read(questions: list[str], data: st.DataObject):
    text = json.dumps(questions)
    assert listed(text[: data.draw(st.integers(2, len(text) - 1))]) == []


PIECES = st.sampled_from(
    [
        *"[]{}\"“”'*_#-:,.?()\\\n \t\r\0\u2028\ud800１",
        "1.",
        "2)",
        "**",
        "- ",
        "```",
        "<think>",
        "</think>",
        "What",
        "Sure",
    ]
)


@PROPERTY
@given(st.text() | st.lists(PIECES | st.text(max_size=3), max_size=60).map("".join))
def test_every_item_is_one_line_that_is_not_empty(reply: str):
    for item in listed(reply):
        assert item == " ".join(item.split())
        assert item
        assert not any(ord(character) < 32 for character in item)
    asks(reply)


@pytest.mark.parametrize("piece", cases(__file__, "twenty_thousand_characters_are_read"))
def test_twenty_thousand_characters_are_read(piece: str):
    """A pattern that goes back over what it has read would take minutes."""
    reply = piece * (20_000 // len(piece))
    listed(reply)
    listed(f"1. {reply}x")
    listed(f"[{reply}x")
    asks(reply)
    asks(f"{reply}x")
