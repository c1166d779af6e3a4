import random
import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from json_lines import json_lines

from robust_eval.normalization import forms, normalize
from robust_eval.runtime.text import first_line

RULES = json_lines(Path(__file__).parent / "normal_forms.jsonl")

UNITS = [
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
]
TENS = ["-", "-", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
SCALES = ((10**9, "billion"), (10**6, "million"), (10**3, "thousand"))

# Pieces that the rules act on, so that random texts exercise them together.
PIECES = [
    *("the", "a", "an", "A.", "U.S.A.", "'s", "’s", ",", ".", "-", "−", "'", "5", "1,000", "3.5", "one", "twenty"),
    *("hundred", "thousand", "million", "and", "x", "é", "²", "½", "ﬁ"),
]


def in_words(number, conjunction, hyphen):
    """An English cardinal below 10^12, written independently of the parser under test."""
    link = " and " if conjunction else " "

    def below_hundred(n):
        if n < 20:
            return UNITS[n]
        return TENS[n // 10] + ((hyphen + UNITS[n % 10]) if n % 10 else "")

    def below_thousand(n):
        if n < 100:
            return below_hundred(n)
        return UNITS[n // 100] + " hundred" + ((link + below_hundred(n % 100)) if n % 100 else "")

    if number == 0:
        return "zero"
    parts, rest = [], number
    for scale, name in SCALES:
        if rest >= scale:
            parts.append(f"{below_thousand(rest // scale)} {name}")
            rest %= scale
    words = " ".join(parts)
    if not rest:
        return words
    if not words:
        return below_thousand(rest)
    return words + (link if rest < 100 else " ") + below_thousand(rest)


def test_each_rule():
    """normal_forms.jsonl holds a text and its normal form in each line, by rule."""
    wrong = [(row["text"], form, row["form"]) for row in RULES if (form := normalize(row["text"])) != row["form"]]
    assert wrong == []


def test_accents_are_kept_where_they_are_to_be():
    assert [normalize(text, accents="keep") for text in ("São", "Sa\u0303o", "Łódź", "Paris")] == [
        "são",
        "são",
        "łódź",
        "paris",
    ]


def test_an_apostrophe_in_a_word_gives_two_forms():
    assert [forms(text) for text in ("McDonald's", "O’Brien", "dogs'")] == [
        ("mcdonald", "mcdonalds"),
        ("o brien", "obrien"),
        ("dogs",),
    ]


@pytest.mark.parametrize("conjunction", [True, False])
@pytest.mark.parametrize("hyphen", ["-", " "])
def test_number_words_below_two_thousand_and_random_large_ones_equal_their_digits(conjunction, hyphen):
    generator = random.Random(0)
    numbers = [*range(2_000), *(generator.randrange(10 ** generator.randint(4, 12)) for _ in range(1_000))]
    numbers += [10**power for power in range(12)] + [999_999_999_999, 1_000_000_001, 1_001_001_001]
    words = {number: in_words(number, conjunction, hyphen) for number in numbers}
    assert {each: normalize(each) for number, each in words.items() if normalize(each) != str(number)} == {}


@settings(max_examples=100, deadline=None, database=None, derandomize=True)
@given(number=st.integers(0, 10**12 - 1), conjunction=st.booleans(), hyphen=st.sampled_from("- "))
def test_number_words_are_replaced_in_the_middle_of_a_sentence(number, conjunction, hyphen):
    words = in_words(number, conjunction, hyphen).capitalize()
    assert normalize(f"There are {words} of them.") == f"there are {number} of them"


@settings(max_examples=100, deadline=None, database=None, derandomize=True)
@given(number=st.integers(0, 10**12 - 1), sign=st.sampled_from(["", "-", "−"]))
def test_grouped_digits_equal_ungrouped_ones(number, sign):
    expected = ("-" if sign and number else "") + str(number)
    assert normalize(f"{sign}{number:,}") == expected
    assert normalize(f"It is {sign}{number:,}.") == f"it is {expected}"


ANY_TEXT = st.one_of(st.text(), st.lists(st.sampled_from([*PIECES, " ", "\t", "\n"])).map("".join))
WORDS = [
    *("the", "an", "Paris", "U.S.A.", "dog's", "1,000", "3.5", "-5", "twenty", "one", "and", "Été", "10⁶", "½", "%"),
    *("$5", "May", "6th", "C++", "C#", "first", "No", "Henry VIII", "World War I", "5km", "percent", "O−", "(Roman)"),
    *("“ville”", "well-known.", "3 × 10⁸", "Ph.D.", "東京", "A minor", "Vitamin A"),
]


@settings(max_examples=300, deadline=None, database=None, derandomize=True)
@given(st.lists(st.sampled_from(WORDS), unique=True).map(" ".join))
def test_a_normal_form_is_its_own_normal_form(text):
    """But for an A that the punctuation behind it keeps ("A, 0"), what punctuation alone parts ("C. C", "May May"), and
    a scale word behind another number ("Henry VIII hundred").
    """
    form = normalize(text)
    assert normalize(form) == form


@settings(max_examples=200, deadline=None, database=None, derandomize=True)
@given(ANY_TEXT)
@example("\0")
@example("a\0b")
def test_only_single_spaces_and_no_line_break_are_left_of_any_text(text):
    assert normalize(text) == " ".join(normalize(text).split())


@settings(max_examples=200, deadline=None, database=None, derandomize=True)
@given(st.lists(st.sampled_from(["the", "an", "The", "tower", "two", "of", "and", "Paris", "is"])))
def test_no_article_is_left_of_a_text_that_says_more(words):
    left = {"an", "the"} & set(normalize(" ".join(words)).split())
    assert left == set() or set(words) <= {"the", "an", "The"}


@settings(max_examples=200, deadline=None, database=None, derandomize=True)
@given(ANY_TEXT)
def test_only_a_blank_text_has_no_normal_form(text):
    line = first_line(text)
    shown = [letter for letter in line if not letter.isspace() and unicodedata.category(letter)[0] != "C"]
    assert (normalize(text) == "") is (shown == [])


@settings(max_examples=100, deadline=None, database=None, derandomize=True)
@given(st.text(alphabet="bcxyz 12", min_size=1).filter(str.strip), st.sampled_from(".!?…,;:\"'()[]{}*~@/\\|“”«»¿¡"))
def test_punctuation_around_a_text_does_not_matter(text, mark):
    assert normalize(f" {mark} {text} {mark} ") == normalize(text)
