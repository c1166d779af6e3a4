import re
from functools import cache

import numpy as np
import pytest
from json_lines import cases

from robust_eval.dataset.jsonl import JsonLines
from robust_eval.grader.answer_matcher import AnswerMatcher
from robust_eval.grader.matching import Matching
from robust_eval.model.base import TokenVerdict
from robust_eval.model.local.transformers_model import TransformersModel
from robust_eval.model.token_texts import OutcomeCodes, TokenTexts
from robust_eval.normalization import forms, normalize, unified
from robust_eval.numerals import LARGE_NUMBERS, NUMBERS, ORDINALS, ROMAN
from robust_eval.question import Question

BUILTIN = JsonLines(name="facts", path="builtin:facts.jsonl")

BY_HAND, MORE = (
    [(tuple(answers), prefix.encode("latin-1")) for answers, prefix in cases(__file__, test)]
    for test in ("by_hand", "more")
)
"""Answers, and beginnings of replies, whose bytes the data file has as Latin-1."""
RANDOM = 8
"""Pairs of a built-in fact and a beginning of a reply."""
OTHERS = 500
"""Tokens of the vocabulary, drawn anew for each prefix, that are judged besides all that might matter."""
NUMBER_WORDS = {*NUMBERS, *LARGE_NUMBERS, *ORDINALS, *ROMAN, "and"}
BEFORE = ["", " The", " It is", " I think", " A", " about", " not", "\u201c", " In 19", " U.S. and"]
AFTER = ["", ".", " is", "'s", "-born", ", the", " and", "s", " hundred"]
NASTY = [
    " hundred",
    " million",
    "ian",
    ".5",
    ",000",
    "-one",
    "'s",
    "",
    "0",
    ".",
    " and one",
    " and",
    "s",
    "\u0301",
    ".",
]
NASTY += ["B", ".B", ".B.", " one", "-", " thousand", ",", "é", "%", "th", "\n5", "teen", "ty-one", "’s", " - 5", " a"]


def matcher(*answers: str) -> AnswerMatcher:
    found = Matching().matcher(Question("q", "?", answers))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def texts(embedded: TransformersModel) -> TokenTexts:
    """Every sixth token of a real vocabulary."""
    return TokenTexts(embedded.texts.vocabularies[True].texts.raw[::6])


@cache
def verdicts(answers: tuple[str, ...], prefix: bytes, texts: TokenTexts) -> OutcomeCodes:
    """Judge the tokens once for all tests, which takes seconds after a number."""
    return matcher(*answers).next_tokens(prefix, texts).all()


def random_pair(model: TransformersModel, seed: int) -> tuple[tuple[str, ...], bytes]:
    """A fact of the built-in set, and a beginning of a reply that holds one of its answers, cut between two tokens."""
    random = np.random.default_rng(seed)
    answers = builtin_answers()[random.integers(len(builtin_answers()))]
    said = answers[random.integers(len(answers))]
    reply = f"{random.choice(BEFORE)} {said}{random.choice(AFTER)}"
    ids = model.tokenizer(reply).input_ids
    return answers, b"".join(
        model.texts.vocabularies[True].texts.raw[token] for token in ids[: random.integers(len(ids) + 1)]
    )


@cache
def builtin_answers() -> list[tuple[str, ...]]:
    return [question.answers for question in BUILTIN.load() if Matching().matcher(question)]


def agrees_with_whole_replies(answers: tuple[str, ...], prefix: bytes, texts: TokenTexts) -> None:
    """Tokens are judged as the replies are that end with them: all that make one right, and many of the others."""
    rule, found = matcher(*answers), verdicts(answers, prefix, texts) >= TokenVerdict.RIGHT
    drawn = np.random.default_rng(len(prefix)).choice(len(texts.raw), OTHERS, replace=False)
    letters = "".join(form for answer in answers for form in forms(answer)).replace(" ", "")
    telling = [token for token, key in enumerate(texts.keys) if might_matter(key.strip(), letters)]
    tokens = np.unique([*drawn, *telling, *np.flatnonzero(found)[:OTHERS]])
    whole = [(prefix + texts.raw[token].split(b"\n", 1)[0]).decode("utf-8", "replace") for token in tokens]
    expected = np.array([rule.right(reply) for reply in whole])
    is_right = found[tokens]
    assert {whole[place]: bool(is_right[place]) for place in np.flatnonzero(is_right != expected)} == {}


def might_matter(key: str, letters: str) -> bool:
    """Whether a token is short, a number, or of the letters of an answer."""
    return len(key) < 3 or key in letters or key[0].isdigit() or key in NUMBER_WORDS


def stays_right(answers: tuple[str, ...], prefix: bytes, texts: TokenTexts) -> int:
    """What is closed is right whatever follows; returns how many tokens are."""
    rule = matcher(*answers)
    closed = np.flatnonzero(verdicts(answers, prefix, texts) == TokenVerdict.DECIDED)
    random = np.random.default_rng(len(closed))
    delicate = [token for token in closed if re.match(r"[\W_]*(\d|and|one|[a-z]{0,2}$)", texts.keys[token])]
    tokens = {*random.permutation(closed)[:15].tolist(), *random.permutation(delicate)[:15].tolist()}
    for token in tokens:
        drawn = random.integers(len(texts), size=(10, 3))
        more = [piece.encode() for piece in NASTY] + [b"".join(texts.raw[i] for i in row) for row in drawn]
        for continuation in more:
            reply = (prefix + texts.raw[token] + continuation).decode("utf-8", "replace")
            assert rule.right(reply), (answers, reply)
    return len(closed)


@pytest.mark.parametrize(("answers", "prefix"), BY_HAND)
def test_next_tokens_are_judged_as_whole_replies_are(texts: TokenTexts, answers: tuple[str, ...], prefix: bytes):
    agrees_with_whole_replies(answers, prefix, texts)


@pytest.mark.parametrize("seed", range(RANDOM))
def test_next_tokens_are_judged_as_whole_replies_are_to_built_in_questions(
    embedded: TransformersModel, texts: TokenTexts, seed: int
):
    agrees_with_whole_replies(*random_pair(embedded, seed), texts)


def test_what_is_closed_stays_right(texts: TokenTexts):
    assert sum(stays_right(answers, prefix, texts) for answers, prefix in BY_HAND + MORE) > 50_000


def test_what_is_closed_stays_right_of_built_in_questions(embedded: TransformersModel, texts: TokenTexts):
    assert sum(stays_right(*random_pair(embedded, seed), texts) for seed in range(2 * RANDOM)) > 20_000


@pytest.mark.parametrize(("answers", "prefix"), BY_HAND + MORE)
def test_what_is_begun_is_a_beginning_of_what_is_left_of_an_answer(
    texts: TokenTexts, answers: tuple[str, ...], prefix: bytes
):
    reply = normalize(prefix.decode("utf-8", "replace"))
    left = set()
    for form in (form for answer in answers for form in forms(answer)):
        cuts = [cut for cut in range(len(form)) if f" {reply}".endswith(f" {form[:cut]}") or not cut]
        left |= {form[cut:] for cut in cuts}
    for token in np.flatnonzero(verdicts(answers, prefix, texts) == TokenVerdict.BEGUN):
        line = texts.raw[token].split(b"\n", 1)[0].decode()
        key = unified(line)
        assert any(rest.startswith((key, key[1:])) and len(key.strip()) < len(rest) for rest in left), key
