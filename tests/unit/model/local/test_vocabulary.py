from collections.abc import Sequence
from itertools import product
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from robust_eval.grader.answer_matcher import AnswerMatcher
from robust_eval.model.local.vocabulary import (
    BEGUN,
    OPEN,
    OTHER,
    RIGHT,
    WRONG,
    AnswerTexts,
    NextTokenClassifier,
    OutcomeTable,
    TokenSets,
    Vocabulary,
)
from robust_eval.model.token_texts import NextTokenOutcomes, TokenTexts

PROPERTY = settings(max_examples=200, deadline=None, database=None, derandomize=True)
END = 0
PIECES = [
    b"",
    b"\n",
    b" Paris",
    b".",
    b"\n\n",
    b" \n",
    b".\nNext",
    b"###",
    b" #",
    b"##",
    b"# x",
    b"Q",
    b":",
    b"Q:",
    b" ",
]


def vocabulary(stop: Sequence[bytes] = (), first_line: bool = False, pieces: Sequence[bytes] = PIECES) -> Vocabulary:
    ends = np.zeros(len(pieces), dtype=bool)
    ends[END] = True
    if not first_line:
        ends |= np.array([b"\n" in piece for piece in pieces])
    return Vocabulary(ends, ~ends, lambda: TokenTexts(pieces), tuple(stop), first_line)


def unread(first_line: bool = False) -> Vocabulary:
    def refuse() -> TokenTexts:
        raise AssertionError("the texts are not needed")

    ends = np.array([False, True, False, True])
    return Vocabulary(ends, ~ends, refuse, first_line=first_line)


def ending(words: Vocabulary, text: bytes) -> list[int]:
    return [token for token in range(len(PIECES)) if words.is_end(text, token)]


def ending_by_the_definition(words: Vocabulary, text: bytes) -> list[int]:
    """Token by token: it ends the answer by itself, completes a stop string, or breaks a line that is not blank."""
    found = []
    for token, raw in enumerate(PIECES):
        whole = text + raw
        stops = any(stop in whole for stop in words.stop)
        breaks = words.first_line and b"\n" in raw and bool((text + raw.split(b"\n", 1)[0]).strip())
        if words.ends[token] or stops or breaks:
            found.append(token)
    return found


def test_plain_answers_end_at_tokens_with_a_line_break_whatever_they_began_with():
    words = vocabulary()
    expected = [PIECES.index(piece) for piece in (b"", b"\n", b"\n\n", b" \n", b".\nNext")]
    for text in (b"", b" ", b" Paris"):
        assert ending(words, text) == expected
        assert words.stopping(text).tolist() == []


def test_the_texts_are_read_only_where_they_are_needed():
    words = unread()
    assert [token for token in range(4) if words.is_end(b" Paris", token)] == [1, 3]
    assert words.answer(b" Paris\nRome") == b"Paris"
    with pytest.raises(AssertionError, match="not needed"):
        unread(first_line=True).is_end(b" Paris", 0)


def test_chat_answers_end_at_the_first_line_break_after_something():
    words = vocabulary(first_line=True)
    nothing_yet = [PIECES.index(piece) for piece in (b"", b".\nNext")]
    for text in (b"", b"\n", b" \n\n "):
        assert ending(words, text) == nothing_yet
    something = [PIECES.index(piece) for piece in (b"", b"\n", b"\n\n", b" \n", b".\nNext")]
    assert ending(words, b"\n Paris") == something


@pytest.mark.parametrize("first_line", [False, True])
@pytest.mark.parametrize("text", [b"", b" Paris", b" Paris#", b" #", b"##", b" Paris Q", b"Q", b"Q: x", b"\n", b"#x#"])
@pytest.mark.parametrize("stop", [(b"###",), (b"Q:",), (b"###", b"Q:"), (b".", b"#"), (b"Paris Q",)])
def test_answers_end_at_stop_strings_that_span_tokens(stop: tuple[bytes, ...], text: bytes, first_line: bool):
    if any(one in text for one in stop):
        pytest.skip("the answer has ended before")
    words = vocabulary(stop, first_line)
    assert ending(words, text) == ending_by_the_definition(words, text)
    stopping = [token for token, raw in enumerate(PIECES) if any(one in text + raw for one in stop)]
    assert words.stopping(text).tolist() == stopping


@PROPERTY
@given(
    st.lists(st.text("ab\n ", max_size=4), min_size=1, max_size=8),
    st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=2),
    st.text("ab ", max_size=6),
)
def test_tokens_that_complete_a_stop_string_are_found_by_joining(pieces, stop, text):
    stop, text = [one.encode() for one in stop], text.encode()
    if any(one in text for one in stop):
        return
    pieces = [b"", *(piece.encode() for piece in pieces)]
    found = vocabulary(stop, pieces=pieces).stopping(text)
    assert found.dtype == np.intp
    assert found.tolist() == [token for token, raw in enumerate(pieces) if any(one in text + raw for one in stop)]


@pytest.mark.parametrize(
    ("stop", "first_line", "text", "answer"),
    [
        ((), False, b" Paris\nRome", b"Paris"),
        ((), False, b"\nParis", b""),
        ((), True, b"\n\n Paris \nRome", b"Paris"),
        ((), True, b"\n \n", b""),
        ((b"Q:",), False, b" Paris Q: Rome?", b"Paris"),
        ((b"Q:", b"."), False, b" Paris. Q: Rome?", b"Paris"),
        ((b".", b"Q:"), False, b" Paris Q: Rome.", b"Paris"),
        ((b"Q:",), False, b" Paris Q", b"Paris Q"),
        ((b"\n\n",), True, b"\n\nParis", b""),
        ((b"Rome",), True, b"\nParis\nRome", b"Paris"),
    ],
)
def test_the_answer_is_the_first_line_up_to_a_stop_string(
    stop: tuple[bytes, ...], first_line: bool, text: bytes, answer: bytes
):
    assert vocabulary(stop, first_line).answer(text) == answer


@PROPERTY
@given(st.lists(st.lists(st.integers(0, 3), min_size=9, max_size=9), min_size=1, max_size=6), st.data())
def test_a_table_has_the_outcomes_of_each_prefix(outcomes: list[list[int]], data: st.DataObject):
    usual = [np.array(outcomes[0], dtype=np.uint8), np.zeros(9, dtype=np.uint8)]
    states = [NextTokenOutcomes.of(usual[row % 2], dict(enumerate(of_state))) for row, of_state in enumerate(outcomes)]
    states.append(NextTokenOutcomes.of(usual[0], {}))
    places = data.draw(st.lists(st.integers(0, len(outcomes)), min_size=1, max_size=8))
    expected = [[*outcomes, outcomes[0]][place] for place in places]
    table = OutcomeTable.of([states[place] for place in places], 3)
    assert len(table.rows) == len({*places})
    for row, (place, of_row) in enumerate(zip(places, expected, strict=True)):
        assert states[place].all().tolist() == [states[place].at(token) for token in range(9)] == of_row
        assert table.at(np.full(9, row), np.arange(9)).tolist() == of_row
    sets = [[[token for token in range(9) if of_row[token] == outcome] for outcome in (1, 2, 3)] for of_row in expected]
    assert as_lists(table.sets) == sets
    first, end = data.draw(st.integers(0, 7)), data.draw(st.integers(0, 7))
    assert as_lists(table.sets[first:end]) == sets[first:end]


def as_lists(sets: TokenSets) -> list[list[list[int]]]:
    lists: list[list[list[int]]] = [[[] for _ in row] for row in sets.counts]
    for row, column, token in zip(*sets.expanded(), strict=True):
        lists[row][column].append(int(token))
    return lists


def test_the_outcome_of_a_token_follows_from_its_verdict_and_from_where_an_answer_ends():
    pieces = [b"", b" Paris", b" Rome", b"\n", b" Par", b"is", b"!"]
    outcomes = {
        (b"", False): {b" Paris": OPEN, b"": WRONG, b"\n": WRONG, b" Par": BEGUN},
        (b" Paris", False): {b"": RIGHT, b"\n": RIGHT, b"!": RIGHT, b" Rome": RIGHT, b"is": OTHER},
        (b" Par", True): {b"is": RIGHT, b"": OTHER, b" Rome": OTHER},
        (b" Paris!", False): {b"!": RIGHT, b"": RIGHT},
        (b" Rome!", False): {b"!": WRONG, b" Rome": OTHER},
    }
    for (text, last), expected in outcomes.items():
        stop = (b"!!",) if b"!" in text else ()
        classifier = NextTokenClassifier(AnswerMatcher(("paris",)), vocabulary(stop, pieces=pieces))
        (found,) = classifier.classify([text], last)
        assert {piece: found.all()[pieces.index(piece)] for piece in expected} == expected, text
        assert classifier.decides(text, pieces.index(b"!")) == text.startswith(b" Paris")


@pytest.mark.parametrize("first_line", [True, False])
@pytest.mark.parametrize("stop", [(), (b"###",)])
def test_tokens_are_classified_after_an_extended_text_as_after_the_same_text_at_once(
    first_line: bool, stop: tuple[bytes, ...]
):
    pieces = [*PIECES, b" word", b"word", b"\nword", b"  word", b" other", b" may", b" Lyon"]
    words = vocabulary(stop, first_line, pieces)
    matcher = AnswerMatcher(("paris", "q", "lyon 5"))
    continuing = [token for token in range(len(pieces)) if first_line or not words.ends[token]]
    derived: list[bytes | None] = []
    next_state = matcher.next_state
    for tokens in product(continuing, repeat=2):
        classifier, text = NextTokenClassifier(matcher, words), b""
        with patch.object(matcher, "next_state", lambda *given: derived.append(next_state(*given)) or derived[-1]):
            for token in tokens:
                (text,) = classifier.extended([text], [token])
        assert text == b"".join(pieces[token] for token in tokens)
        if first_line and b"\n" in text.lstrip():
            continue  # such an answer has ended
        (found,) = classifier.classify([text], False)
        (expected,) = NextTokenClassifier(matcher, words).classify([text], False)
        assert found.all().tolist() == expected.all().tolist(), text
    assert stop or sum(state is not None for state in derived) > len(continuing)


@pytest.mark.parametrize("removes_spaces", [True, False])
def test_answers_have_the_text_that_their_tokenizer_decodes(removes_spaces: bool):
    words = {word: place for place, word in enumerate(("[UNK]", "rome", ",", ".", "italy", "##s"))}
    backend = Tokenizer(models.WordPiece(words, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.decoder = decoders.WordPiece(cleanup=False)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="[UNK]", clean_up_tokenization_spaces=removes_spaces
    )
    weight = SimpleNamespace(weight=torch.zeros(len(words), 1))
    model: Any = SimpleNamespace(
        get_output_embeddings=lambda: weight, generation_config=SimpleNamespace(eos_token_id=None)
    )
    answers = [(1, 2, 4, 3), (4, 5), (1,)]
    read = AnswerTexts(model, tokenizer, "plain", ()).read(answers, first_line=True)
    rome = "rome, italy." if removes_spaces else "rome , italy ."
    assert read == [(rome, 4), ("italys", 2), ("rome", 1)]
