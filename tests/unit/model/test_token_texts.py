import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_model import byte_tokenizer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from robust_eval.model.token_texts import TokenTexts, incomplete_bytes, is_boundary, token_texts

PROPERTY = settings(max_examples=100, deadline=None, database=None, derandomize=True)
BYTES = ["<0x0A>", "<0x41>", "<0xC3>", "<0xA9>"]
PIECES = ["▁", "▁Paris", "▁Par", "is", "▁▁", "\n", "é", "▁São", "x<0x41>", "<0x4>", *(f"▁w{i}" for i in range(500))]


def sentencepiece(model: str) -> PreTrainedTokenizerFast:
    """As the tokenizers of Llama 2, Mistral and Gemma: "▁" for a blank, and <0xNN> for bytes."""
    pieces = ["<unk>", "<s>", "</s>", *BYTES, *PIECES]
    if model == "bpe":
        backend = Tokenizer(
            models.BPE(
                vocab={piece: index for index, piece in enumerate(pieces)},
                merges=[],
                unk_token="<unk>",
                byte_fallback=True,
            )
        )
    else:
        scores = [(piece, -float(index)) for index, piece in enumerate(pieces)]
        backend = Tokenizer(models.Unigram(scores, unk_id=0, byte_fallback=True))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    backend.decoder = decoders.Sequence(steps)
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", bos_token="<s>", eos_token="</s>")


def test_the_texts_of_a_byte_level_tokenizer_are_its_bytes():
    tokenizer = byte_tokenizer()
    texts = token_texts(tokenizer, len(tokenizer))
    assert texts.raw[:3] == [b"", b"", b""]
    assert sorted(texts.raw[3:]) == [bytes([byte]) for byte in range(256)]
    for text in ("Paris, 1945", "é東京🙂", "\x00\x7f\xad\n\t "):
        ids = tokenizer(text).input_ids
        assert b"".join(texts.raw[token] for token in ids) == text.encode()


@pytest.mark.parametrize("model", ["bpe", "unigram"])
def test_the_texts_of_a_sentencepiece_tokenizer_have_blanks_and_bytes(model: str):
    tokenizer = sentencepiece(model)
    texts = token_texts(tokenizer, len(tokenizer))
    written = [b" ", b" Paris", b" Par", b"is", b"  ", b"\n", "é".encode(), " São".encode(), b"x<0x41>", b"<0x4>"]
    words = [f" w{i}".encode() for i in range(500)]
    assert texts.raw == [b"", b"", b"", b"\n", b"A", b"\xc3", b"\xa9", *written, *words]
    ids = tokenizer.convert_tokens_to_ids(["<s>", "▁Par", "is", "▁São", "<0xC3>", "<0xA9>", "<0x0A>"])
    assert b"".join(texts.raw[token] for token in ids).decode() == " Paris Sãoé\n"
    assert tokenizer.decode(ids, skip_special_tokens=True) == "Paris Sãoé\n"  # the decoder drops the first blank


@pytest.mark.parametrize(
    ("make", "written"),
    [
        (byte_tokenizer, "Große ▁Stadt"),
        (lambda: sentencepiece("bpe"), "Große  Stadt"),
        (lambda: sentencepiece("unigram"), "Große  Stadt"),
    ],
    ids=["bytes", "bpe", "unigram"],
)
def test_added_tokens_write_what_is_decoded_and_special_ones_nothing(
    make: Callable[[], PreTrainedTokenizerFast], written: str
):
    tokenizer = make()
    before = len(tokenizer)
    tokenizer.add_tokens(["<br>", "Große ▁Stadt"])
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_end|>"]})
    assert tokenizer.decode([before, before + 1, before + 2], skip_special_tokens=True) == f"<br>{written}"
    texts = token_texts(tokenizer, len(tokenizer))
    assert len(texts) == before + 3
    assert texts.raw[before:] == [b"<br>", written.encode(), b""]


def test_logits_beyond_the_tokens_write_nothing():
    tokenizer = byte_tokenizer()
    few, many = token_texts(tokenizer, 259), token_texts(tokenizer, 300)
    assert many.raw == [*few.raw, *[b""] * 41]
    assert many.empty[259:].all()
    assert len(many) == len(many.keys) == len(many.breaks_line) == 300


def test_tokens_beyond_the_logits_are_left_out():
    tokenizer = byte_tokenizer()
    assert token_texts(tokenizer, 100).raw == token_texts(tokenizer, 259).raw[:100]


def test_a_decoder_that_is_not_known_is_refused():
    backend = Tokenizer(models.WordLevel({"[UNK]": 0, "Paris": 1, "##is": 2}, unk_token="[UNK]"))
    backend.decoder = decoders.WordPiece()
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]")
    with pytest.raises(ValueError, match="tokens") as problem:
        token_texts(tokenizer, 3)
    assert str(problem.value) == (
        "the texts of its tokens are unknown: its decoder is neither byte-level nor SentencePiece's"
    )


def test_texts_that_do_not_add_up_to_what_is_decoded_are_refused():
    tokenizer = sentencepiece("bpe")
    steps = [decoders.Replace("▁", " "), decoders.Replace("a", "o"), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.backend_tokenizer.decoder = decoders.Sequence(steps)
    with pytest.raises(ValueError, match=r"^its tokens are ambiguous: \[.*\] have the texts '.*' and decode to '.*'$"):
        token_texts(tokenizer, len(tokenizer))


def test_what_is_known_of_a_token_is_that_of_its_line():
    raw = [
        b"",
        b" Paris",
        b"PAR\nis",
        b"\n",
        "\ufb01n".encode(),
        b"\xc3",
        b"\xa9t",
        "Straße".encode(),
        b"1",
        b" ",
        b"-x",
    ]
    texts = TokenTexts(raw)
    assert texts.keys == ["", " paris", "par", "", "fin", "\ufffd", "\ufffdt", "strasse", "1", " ", "-x"]
    assert texts.breaks_line.tolist() == [raw.count(b"\n") > 0 for raw in raw]
    assert np.flatnonzero(texts.incomplete).tolist() == [5]
    assert np.flatnonzero(texts.inside_character).tolist() == [6]
    assert np.flatnonzero(texts.continues_word).tolist() == [2, 4, 7, 8]
    assert np.flatnonzero(texts.empty).tolist() == [0, 3]


# Searches, against a plain loop over all tokens


def those(texts: TokenTexts, condition: Callable[[str], bool]) -> list[int]:
    return [token for token, key in enumerate(texts.keys) if condition(key)]


def has_word(key: str, word: str) -> bool:
    ends = [(place, place + len(word)) for place in range(len(key)) if key.startswith(word, place)]
    return any(
        (start == 0 or is_boundary(key[start - 1])) and (end == len(key) or is_boundary(key[end]))
        for start, end in ends
    )


LETTERS = st.text("ab é-'.Ⅳß9{\ufffd", max_size=5)
WORDS = st.text("abé-Ⅳ ", min_size=1, max_size=4)


@PROPERTY
@given(st.lists(LETTERS, min_size=1, max_size=12), st.one_of(LETTERS, st.integers(0, 11)))
def test_tokens_are_found_by_their_beginning_and_as_a_whole(keys, wanted):
    texts = TokenTexts([key.encode() for key in keys])
    text = texts.keys[wanted % len(keys)] if isinstance(wanted, int) else wanted
    assert sorted(texts.equal_to(text)) == those(texts, text.__eq__)
    for start in (text[:length] for length in range(len(text) + 1)):
        assert sorted(texts.starting_with(start)) == those(texts, lambda key, start=start: key.startswith(start))
        alone = re.compile(f"{re.escape(start)}(?![a-z0-9])")
        assert sorted(texts.starting_with_end(start)) == those(texts, lambda key, alone=alone: bool(alone.match(key)))


@PROPERTY
@given(st.lists(LETTERS, min_size=1, max_size=12), WORDS)
def test_tokens_are_found_by_a_word_in_them(keys, word):
    texts = TokenTexts([key.encode() for key in keys])
    found = texts.with_word(word)
    assert sorted(set(found)) == those(texts, lambda key: has_word(key, word))
    assert [*found] == sorted(found)
    assert texts.with_word(word) == found


# Characters


@pytest.mark.parametrize("text", ["aé", "東京", "🙂é🙂", "\u07ff\u0800\uffff\U00010000\U0010ffff", ""])
def test_the_bytes_of_a_character_that_is_not_all_there_are_counted(text: str):
    encoded = text.encode()
    whole = {len(text[:count].encode()) for count in range(len(text) + 1)}
    for end in range(len(encoded) + 1):
        expected = end - max(place for place in whole if place <= end)
        assert incomplete_bytes(encoded[:end]) == expected


@pytest.mark.parametrize(
    "text", [b"\x80", b"a\xbf", b"\xc3\xa9\xa9", b"\xf0\x9f\x99\x82\x82", b"\xff", b"\xe6\x9d\xb1\x80"]
)
def test_bytes_that_no_further_ones_complete_are_not_counted(text: bytes):
    assert incomplete_bytes(text) == 0


def test_white_space_punctuation_and_symbols_end_words():
    assert all(map(is_boundary, " \t\n\u00a0.,-–'’\"()_+$€°\u2028"))
    assert not any(map(is_boundary, "aZéß0٣²\u0301"))
