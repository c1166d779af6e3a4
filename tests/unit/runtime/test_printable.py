import sys
import unicodedata

from hypothesis import given
from hypothesis import strategies as st
from unseen import HOSTILE, OF_SCRIPTS, unseen

from robust_eval.runtime.text import printable, printable_lines

ANY = st.text(st.characters())  # also halves of characters
KEPT = {*OF_SCRIPTS, *"\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"} | {
    chr(code) for code in range(0x13430, 0x13440)
}
"""Format characters that are seen, or without which a script is misspelt."""


@given(ANY)
def test_all_that_comes_out_is_seen_on_one_line(text: str):
    out = printable(text)
    assert unseen(out) <= {f"U+{ord(character):04X}" for character in KEPT}
    assert "\n" not in out
    assert "\t" not in out
    assert len(out.splitlines()) <= 1
    out.encode()


@given(ANY)
def test_what_came_out_comes_out_again_as_it_is(text: str):
    assert printable(printable(text)) == printable(text)
    assert printable_lines(printable_lines(text)) == printable_lines(text)


@given(st.text(st.characters(exclude_categories=["C", "Zl", "Zp"])))
def test_plain_text_is_as_it_was(text: str):
    assert printable(text) == text
    assert printable_lines(f"{text}\n\t{text}") == f"{text}\n\t{text}"


def test_every_character_that_is_not_seen_becomes_an_escape_that_tells_which():
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        hidden = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") and character not in KEPT
        if hidden:
            assert printable(character) == repr(character).strip("'")
        elif unicodedata.category(character) != "Cn":
            assert printable(character) == character


def test_what_is_said_of_a_hostile_line():
    assert printable("Paris\n\x1b[31mred\x9b0m \u202eback\u2028 \ud800\U000e0041") == (
        r"Paris\n\x1b[31mred\x9b0m \u202eback\u2028 \ud800\U000e0041"
    )
    assert printable_lines("one\n\ttwo\r\n") == "one\n\ttwo\\r\n"
    assert unseen(printable(HOSTILE)) == set()


def test_words_that_need_a_joiner_are_spelt_as_they_were():
    for text in ("می\u200cخواهم", "क्\u200dष", "👩\u200d🔬", "日本語", "naïve — “quoted”"):
        assert printable(text) == text
