"""Accepted answers in normalised form, and their search in a reply as whole words."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from robust_eval.normalization import forms, has_words, normalize
from robust_eval.question import Question
from robust_eval.reader.markup import without_latex

_SHORTEST = 5
"""Minimum number of letters of a compound that may have a space inside, and of a plural."""
_LETTER = r"[^\W\d_]"
_GLUED = re.compile(rf"(?<={_LETTER})(?=\d)|(?<=\d)(?!(?:st|nd|rd|th)\b)(?={_LETTER})")
_SEPARATED = re.compile(rf"(?<={_LETTER}) (?=\d)|(?<=\d) (?!(?:st|nd|rd|th)\b)(?={_LETTER})")


def accepted_answers(question: Question, accents: str = "fold") -> tuple[tuple[str, ...], int]:
    """Return the distinct normalised forms of a question's accepted answers, with and without their LaTeX, and the
    number of blank aliases.
    """
    usable = comparable(question.answers)
    normalized = (form for text in usable for each in (text, without_latex(text)) for form in forms(each, accents))
    return tuple(dict.fromkeys(filter(None, normalized))), len(question.answers) - len(usable)


def comparable(texts: Sequence[str]) -> list[str]:
    """Return the answers (accepted, or wrong references) that are not blank."""
    return [text for text in texts if normalize(text)]


def holds(form: str, accepted: Iterable[str]) -> bool:
    """Return True if a normalised form contains one of the accepted ones as whole words."""
    return any(has_words(form, words) for words in accepted)


@lru_cache(maxsize=1 << 12)
def with_spellings(accepted: tuple[str, ...]) -> tuple[str, ...]:
    """Return normalised forms of accepted answers, and their other spellings: with or without the plural -s of the last
    word, with letters and digits joined or separated.

    >>> with_spellings(("chromosome", "lungs", "paris", "glass"))
    ('chromosome', 'lungs', 'paris', 'glass', 'chromosomes', 'lung')
    >>> with_spellings(("u 2", "f16"))
    ('u 2', 'f16', 'u2', 'f 16')
    """
    variants = (
        variant
        for form in accepted
        for variant in (_other_number(form), _GLUED.sub(" ", form), _SEPARATED.sub("", form))
    )
    return tuple(dict.fromkeys((*accepted, *filter(None, variants))))


def _other_number(form: str) -> str:
    last = form.rpartition(" ")[2]
    if not (last.isascii() and last.isalpha()) or last.endswith(("ss", "us", "is", "x", "z", "ch", "sh", "y")):
        return ""
    if last.endswith("s"):
        return form[:-1] if len(last) >= _SHORTEST else ""
    return f"{form}s" if len(last) >= _SHORTEST - 1 else ""


@lru_cache(maxsize=1 << 12)
def compounds(accepted: tuple[str, ...]) -> tuple[str, ...]:
    """Return the accepted answers of at least five letters and nothing else, each as one word without spaces.

    >>> compounds(("bee keeper", "rearview mirror", "u 2", "he"))
    ('beekeeper', 'rearviewmirror')
    """
    joined = (form.replace(" ", "") for form in accepted)
    return tuple(dict.fromkeys(word for word in joined if len(word) >= _SHORTEST and word.isalpha()))


def holds_compound(form: str, words: Iterable[str]) -> bool:
    """Return True if a normalised form contains one of the accepted compounds ``words``, possibly with spaces inside.

    >>> holds_compound("he is bee keeper", ["beekeeper"]), holds_compound("he is bee keepers", ["beekeeper"])
    (True, False)
    """
    joined = form.replace(" ", "")
    edges: set[int] | None = None
    for word in words:
        place = joined.find(word)
        while place >= 0:
            if edges is None:
                edges = _edges(form)
            if place in edges and place + len(word) in edges:
                return True
            place = joined.find(word, place + 1)
    return False


def _edges(form: str) -> set[int]:
    """Return the boundaries of words in a normalised form, as positions in it without its spaces."""
    edges, place = {0}, 0
    for word in form.split():
        place += len(word)
        edges.add(place)
    return edges
