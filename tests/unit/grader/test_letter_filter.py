from random import Random

import pytest

from robust_eval.grader.accepted_forms import compounds, with_spellings
from robust_eval.grader.answer_matcher import AnswerMatcher
from robust_eval.grader.letter_filter import LetterFilter, letters_of
from robust_eval.normalization import unified

ANSWERS = [
    ("12",),
    ("vincent van gogh", "van gogh"),
    ("bee keeper",),
    ("5 %",),
    ("6 august",),
    ("henry 8",),
    ("c#",),
    ("juneau",),
]
PIECES = (
    *("12", "1", "2", "twelve", "twel", "ve", "thousand", "1e", "^", "x^", "'", "s", "'s", ",", "."),
    *("Vincent", "van", "gogh", "go", "gh", "the", "bee", "keeper", "keep", "er", "5", "%", "per cent", "percent"),
    *("Aug", "ust", "6th", "of", "Henry", "VIII", "VI", "II", "C", "#", " sharp", " ", "-", "é", "²"),
)


def test_letters_has_letters_digits_and_marks() -> None:
    assert letters_of("o'brien's 2^8") == "obriens28^'"


@pytest.mark.parametrize("accepted", ANSWERS)
def test_every_right_reply_passes(accepted: tuple[str, ...]) -> None:
    random = Random(0)
    letter_filter = LetterFilter(with_spellings(accepted), compounds(accepted))
    matcher = AnswerMatcher(accepted)
    replies = ["".join(random.choices((*PIECES, *accepted), k=random.randint(1, 5))) for _ in range(3000)]
    right = [*filter(matcher.right, replies)]
    assert right
    assert all(letter_filter.passes(unified(reply)) for reply in right)


@pytest.mark.parametrize("accepted", ANSWERS)
def test_search_in_many_ends_agrees_with_each_whole_reply(accepted: tuple[str, ...]) -> None:
    letter_filter = LetterFilter(with_spellings(accepted), compounds(accepted))
    ends = [unified(piece) for piece in PIECES if piece not in ("s", "'s")]
    many = {letters_of(end): [place] for place, end in enumerate(ends)}  # some signs have the same
    few = dict([*many.items()][:10])
    random = Random(0)
    for _ in range(300):
        start = unified("".join(random.choices(PIECES[:-1], k=random.randint(0, 4))))
        for by_letters in (many, few):
            passing = set(letter_filter.passing(start, by_letters))
            expected = {place for end, (place,) in by_letters.items() if letter_filter.passes(f"{start}{ends[place]}")}
            assert passing == expected, start
