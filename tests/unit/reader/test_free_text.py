"""Properties of free-text reading (docs/methods.md, §6) over lists of titles, sentences and judged replies."""

from itertools import product
from pathlib import Path

import pytest
from graded_replies import Graded, graded_replies
from hypothesis import given, settings
from hypothesis import strategies as st
from json_lines import cases, json_lines

from robust_eval.reader.base import Reader
from robust_eval.reader.free_text import FreeText, read_free_text
from robust_eval.reader.reply import FirstLineReader, ReplyReader

CASES = Path(__file__).parent
TITLES = [case["answer"] for case in json_lines(CASES / "identity.jsonl")]
SENTENCES = [case for case in json_lines(CASES / "irrelevant.jsonl") if case["for"] != "letters"]
JUDGED = json_lines(CASES / "free_text.jsonl")
READERS = (ReplyReader(), FirstLineReader())
BASES = (("Canberra.", True), ("The answer is Canberra.", True), ("Perth.", False), ("The answer is Perth.", False))


@pytest.mark.parametrize("reader", READERS, ids=["reply", "first_line"])
def test_a_reply_that_is_the_accepted_answer_is_right_as_it_stands(reader: Reader):
    verdicts = graded_replies([(title, [title]) for title in TITLES], reader)
    assert [title for title, verdict in zip(TITLES, verdicts, strict=True) if verdict != (True, False)] == []


@settings(max_examples=150, deadline=None, database=None, derandomize=True)
@given(
    title=st.sampled_from(TITLES),
    reader=st.sampled_from(READERS),
    case=st.sampled_from((str, str.upper, str.lower, str.casefold)),
    before=st.sampled_from(("", " ", "\t", "\n")),
    behind=st.sampled_from(("", " ", "\n", "  \n\n")),
    stop=st.booleans(),
    quotes=st.sampled_from(("", '""', "“”")),
)
def test_case_white_space_a_full_stop_and_quotes_make_no_other_answer(
    title, reader, case, before, behind, stop, quotes
):
    written = case(title)
    if quotes and any(map(str.isalnum, title)) and not set(title) & set("\"“”'’"):
        written = f"{quotes[0]}{written}{quotes[1]}"
    if stop and title[-1].isalnum():
        written += "."
    assert graded_replies([(f"{before}{written}{behind}", [title])], reader)[0].correct


def placed(case: dict[str, str], base: str, other: str) -> list[str]:
    """Return the reply with the sentence of a case before it, behind it and around it, where it may stand."""
    sentence = case["sentence"].replace("{other}", other)
    replies = {"before": f"{sentence} {base}", "after": f"{base} {sentence}"}
    if case["where"] != "both":
        return [replies[case["where"]]]
    return [*replies.values(), f"{sentence} {base} {sentence}"]


def test_a_sentence_that_does_not_answer_changes_no_verdict():
    bases = product(SENTENCES, BASES)
    cases = [(reply, right) for case, (base, right) in bases for reply in placed(case, base, "Sydney")]
    cases += [  # a remark on the right answer does not give it
        (reply, False)
        for case in SENTENCES
        if "{other}" in case["sentence"]
        for reply in placed(case, "The answer is Perth.", "Canberra")
    ]
    verdicts = graded_replies([(reply, ["Canberra"]) for reply, _ in cases])
    differ = [
        reply
        for (reply, right), verdict in zip(cases, verdicts, strict=True)
        if verdict == Graded(not right, uncertain=False)
    ]
    assert differ == []
    assert sum(verdict.uncertain for verdict in verdicts) <= 0.15 * len(cases)


def test_judged_replies_are_read_as_judged_or_are_uncertain():
    verdicts = graded_replies([(case["reply"], case["answers"]) for case in JUDGED])
    wrong = [
        case["id"]
        for case, verdict in zip(JUDGED, verdicts, strict=True)
        if verdict == Graded(not case["want"], uncertain=False)
    ]
    assert wrong == []
    assert sum(verdict.uncertain for verdict in verdicts) <= 0.3 * len(JUDGED)


def test_an_explicit_answer_is_graded_alone_and_all_of_the_reply_beside_it():
    reply = "France is large. The answer is Paris, which lies on the Seine. Lyon is smaller."
    assert read_free_text(reply) == FreeText("Paris", "explicit answer", "Paris", "Paris", reply)


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("Answer: Not Sydney. Canberra.", "Canberra"),
        ("Answer: It is not Sydney, it is Canberra.", "It is not Sydney, it is Canberra"),
        ("Answer: I don't know. Sorry.", "I don't know"),
        ("Final answer: not 9.  ]", "not 9"),
    ],
)
def test_an_explicit_answer_is_its_first_sentence_unless_that_is_denied(reply: str, answer: str):
    assert read_free_text(reply).answer == answer


def test_of_a_long_reply_the_first_and_the_last_sentence_are_certain():
    middle = "It has many museums and many bridges over a wide river. " * 8
    found = read_free_text(f"It is Paris. {middle}So I say Paris. Let me know if you need more!")
    assert found.rule == "first and last sentence"
    assert found.answer == found.certain == "It is Paris. So I say Paris."


@pytest.mark.parametrize("label", ["Answer: {}", "The answer is: {}"])
@pytest.mark.parametrize("text", ["It is not Sydney but Canberra.", "A lot of people say Sydney, but it is Canberra."])
def test_a_denial_is_no_answer_and_what_follows_it_is(label: str, text: str):
    reply = label.format(text)
    assert read_free_text(reply).answer == text.removesuffix(".")
    assert [each.correct for each in graded_replies([(reply, ["Canberra"]), (reply, ["Sydney"])])] == [True, False]


@pytest.mark.parametrize(
    ("reply", "answers", "correct", "uncertain"),
    cases(__file__, "denials_corrections_pronouns_and_other_things_are_graded_as_judged"),
)
def test_denials_corrections_pronouns_and_other_things_are_graded_as_judged(
    reply: str, answers: list[str], correct: bool, uncertain: bool
):
    assert graded_replies([(reply, answers)]) == [Graded(correct, uncertain)]
