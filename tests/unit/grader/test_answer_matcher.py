import json
import re
from pathlib import Path
from random import Random

import numpy as np
import pytest
from answer_rows import answer_row
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from robust_eval.answer import answer_table
from robust_eval.grader.answer_matcher import AnswerMatcher
from robust_eval.grader.matching import Matching
from robust_eval.model.base import TokenVerdict
from robust_eval.model.token_texts import TokenTexts, token_texts
from robust_eval.normalization import normalize, unified
from robust_eval.numerals import NUMBERS as NUMBERS_IN_WORDS
from robust_eval.question import Question


def matcher(*answers: str) -> AnswerMatcher:
    found = Matching().matcher(Question("q", "?", answers))
    assert found is not None
    return found


# Small vocabularies, by hand


def outcomes(answers: tuple[str, ...], prefix: str, *pieces: str) -> dict[str, list[str]]:
    found = matcher(*answers).next_tokens(prefix.encode(), TokenTexts([piece.encode() for piece in pieces]))
    verdicts = dict(zip(pieces, found.all(), strict=True))
    return {
        "right": [piece for piece, verdict in verdicts.items() if verdict >= TokenVerdict.RIGHT],
        "closed": [piece for piece, verdict in verdicts.items() if verdict == TokenVerdict.DECIDED],
        "begun": [piece for piece, verdict in verdicts.items() if verdict == TokenVerdict.BEGUN],
    }


def test_a_word_is_closed_by_the_boundary_after_it():
    within = outcomes(("Roman",), " Rom", "an", "an,", "ania", "an's", "e", " an")
    assert within["right"] == ["an", "an,", "an's"]
    assert [piece for piece in within["closed"] if piece != "an's"] == ["an,"]
    after = outcomes(("Roman",), " Roman", "", "ia", ",", " Empire", "s", "\n", "'", "-", "-born", "'s", " ")
    assert after["right"] == ["", ",", " Empire", "s", "\n", "'", "-", "-born", "'s", " "]
    assert after["closed"] == [",", " Empire", "-", "-born", " "]  # an "s" may follow "'", and "+" may follow "'s"


def test_a_number_is_not_closed_by_a_boundary_that_may_belong_to_it():
    found = outcomes(("5",), " 5", "", ".", ",", " ", "-", " million", " m", "0", " apples", " and", " an", "th")
    assert found["right"] == ["", ".", ",", " ", "-", " m", " apples", " and", " an"]
    assert set(found["closed"]) <= {" apples"}


def test_a_number_may_be_written_in_roman_numerals():
    pieces = (" II", " 2", " two", " III", " I", " ii")
    assert outcomes(("World War 2",), " World War", *pieces)["right"] == [" II", " 2", " two", " ii"]
    assert outcomes(("World War I",), " World War", *pieces, " 1")["right"] == [" I", " 1"]
    assert outcomes(("Henry VIII",), " Henry V", "III", " 8", "II", "i")["right"] == ["III"]


def test_letters_and_digits_may_be_apart():
    assert outcomes(("U2",), " U", "2", " 2", "-2", " two", " 3")["right"] == ["2", " 2", "-2", " two"]
    assert outcomes(("U-2",), " U", "2", " 2", "-2", " two", " 3")["right"] == ["2", " 2", "-2", " two"]


def test_a_reply_is_right_with_all_words_of_an_answer_alone():
    pieces = (" C", "C", " c.", " Vitamin C", " D", "-C")
    assert outcomes(("Vitamin C",), " It is", *pieces)["right"] == [" Vitamin C"]
    assert outcomes(("Vitamin C",), " Vitamin", *pieces)["right"] == [" C", "C", " c.", " Vitamin C", "-C"]
    assert outcomes(("Sputnik 1", "Laika"), " Sputnik", " one", " I", " Laika", "1")["right"] == [" one", " Laika", "1"]
    assert outcomes(("XYZ Corp",), " X's Y Z", " Corp", "", " corps")["right"] == [" Corp", " corps"]
    assert outcomes(("Decemberfest",), " 4 Dec", " fest", "fest", " best")["right"] == [" fest"]


def test_a_token_within_a_word_of_no_answer_is_not_right():
    pieces = ("8", " 8", "-8", "eight", " eight", ", 8", "²")
    assert outcomes(("8",), " some words", *pieces)["right"] == [" 8", "-8", " eight", ", 8"]
    assert outcomes(("8",), " ", *pieces)["right"] == ["8", " 8", "eight", " eight", ", 8"]


def test_an_answer_that_is_an_article_elsewhere_is_right_before_signs_and_line_breaks_alone():
    found = outcomes(("A",), " A", "", " ", ",", " \n", "*", " the", " force")
    assert (found["right"], found["closed"]) == (["", " ", ",", " \n", "*", " the"], [",", "*"])


def test_nothing_is_closed_inside_a_character_that_is_not_all_there():
    texts = TokenTexts([b"\xc3", b"\xa9", b"\xe2\x80", b".", b" a", b" \xc3"])
    rule = matcher("Roman")
    verdicts = rule.next_tokens(b" Roman", texts).all()
    expected = [rule.right((b" Roman" + raw).decode("utf-8", "replace")) for raw in texts.raw]
    assert (verdicts >= TokenVerdict.RIGHT).tolist() == expected
    assert np.flatnonzero(verdicts == TokenVerdict.DECIDED).tolist() == [
        1,
        3,
        4,
        5,
    ]  # the second byte alone never becomes a letter


def test_tokens_that_begin_an_answer_or_go_on_with_it_are_begun():
    pieces = (" New", " Y", " York", "York", " Yorkshire", "N", "ew", " new", " Ne", " The", "w", " City", "", " ")
    answers = ("New York", "New York City")
    assert outcomes(answers, "", *pieces)["begun"] == [" New", "N", " new", " Ne"]
    assert outcomes(answers, " the New", *pieces)["begun"] == [" New", " Y", "N", " new", " Ne", " "]
    assert outcomes(answers, " Ne", *pieces)["begun"] == [" New", "N", " new", " Ne", "w"]
    assert outcomes(answers, " Nova", *pieces)["begun"] == [" New", "N", " new", " Ne"]


def test_a_reply_is_right_where_the_grader_finds_it_right():
    question = Question("q", "?", ("Roman", "five", "U.S.A."))
    rule = Matching().matcher(question)
    replies = ("The Roman.", "Romania", "5", "fifty-five", "twenty five", "in the USA", "u.s.a.", "\n\nfive\nsix", "")
    graded = Matching().grade([question], answer_table(answer_row("q", text=reply) for reply in replies))
    assert [rule.right(reply) for reply in replies] == graded["correct"].to_pylist()
    assert rule.right("six\nfive") is False


LISTS = json.loads(Path(__file__).with_name("answer_matcher.json").read_text(encoding="utf-8"))
PIECES, STARTS, WORDS, NUMBERS, LETTERS, CONTINUATIONS = (
    LISTS[name] for name in ("pieces", "starts", "words", "numbers", "letters", "continuations")
)


@pytest.mark.parametrize("answers", [*WORDS, *NUMBERS], ids=lambda answers: answers[0])
def test_each_next_token_is_right_where_the_whole_reply_is(answers: tuple[str, ...]):
    rule, texts = matcher(*answers), TokenTexts([piece.encode() for piece in PIECES])
    ends = (" one thousand", " 8", ".", " (", "_")
    longer = (one + ends[place % len(ends)] for place, one in enumerate(PIECES))
    for prefix in ["", *PIECES, *longer]:
        verdicts = rule.next_tokens(prefix.encode(), texts).all()
        right = [rule.right(prefix + piece) for piece in PIECES]
        assert (verdicts >= TokenVerdict.RIGHT).tolist() == right, prefix


@pytest.mark.parametrize(
    "answers", [*WORDS, *NUMBERS, ("bee keeper",), ("the a",), ("euro",)], ids=lambda answers: answers[0]
)
def test_each_next_token_has_the_same_outcome_after_all_prefixes_of_a_state(answers: tuple[str, ...]):
    rule, texts = matcher(*answers), TokenTexts([piece.encode() for piece in PIECES])
    for start in STARTS:
        for piece in PIECES:
            first, second = (part.encode("utf-8", "surrogateescape") for part in (start, piece))
            prefix = first + second
            state = rule.state(prefix)
            assert rule.state(state) == state
            assert rule.next_state(rule.state(first), second) in (None, state)
            one, other = (rule.next_tokens(each, texts).all() for each in (prefix, state))
            assert one.tolist() == other.tolist(), (prefix, state)


@pytest.mark.parametrize(
    ("answer", "prefix", "token"),
    [
        ("beekeeper", "“bee's keep", "er"),
        ("beekeeper", "bee's keep", "er"),
        ("mayflower", "may fifth", " flower"),
        ("kmrace", "five kilometer", " race"),
        ("beekeeper", "— bee² keep", "er"),
        ("mayflower", "“may 4 flow", "er"),
        ("bee keeper", "“bee a keep", "er"),
        ("Sputnik 1", "à Sputnik", " one"),
        ("mp3", "“mp", " three"),
        ("20 c", "20º", "C"),
        ("20 c", "20 ˚", " C"),
    ],
)
def test_a_token_completes_an_answer_whatever_normalisation_takes_out_of_it(answer: str, prefix: str, token: str):
    rule = matcher(answer)
    assert rule.right(prefix + token)
    assert rule.next_tokens(prefix.encode(), TokenTexts([token.encode()])).at(0) >= TokenVerdict.RIGHT


def test_the_state_after_a_word_of_no_answer_and_no_rule_follows_from_the_state_before():
    rule = matcher("Roman", "5")
    state = rule.state(b" The plain")
    words = b" word", b"word", b" Rome", b"'s", b" May", b" o"
    assert [rule.next_state(state, word) for word in words] == [state, state, state, None, None, None]


@pytest.fixture(scope="module")
def byte_fallback_texts() -> TokenTexts:
    """Vocabulary of 3,000 tokens, trained on the docs as SentencePiece does, with bytes for rare characters."""
    backend = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    backend.decoder = decoders.Sequence(steps)
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=3000, special_tokens=pieces, show_progress=False)
    pages = sorted((Path(__file__).parents[3] / "docs").glob("*.md"))
    backend.train_from_iterator([page.read_text() for page in pages], trainer)
    return token_texts(PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>"), 3000)


@pytest.mark.parametrize(
    "answers",
    [
        ("Carrots",),
        ("Martin Luther King", "MLK"),
        ("UN", "United Nations"),
        ("1066",),
        ("3",),
        ("144", "12 dozen"),
        ("CO2",),
    ],
    ids=lambda answers: answers[0],
)
def test_random_prefixes_of_one_state_have_the_same_outcome_of_each_token(
    answers: tuple[str, ...], byte_fallback_texts: TokenTexts
):
    rule, random = matcher(*answers), Random(0)
    begun = [f" {answer[:length]}".encode() for answer in answers for length in range(1, len(answer) + 1)]
    pieces = [
        start.encode("utf-8", "surrogateescape") for start in (*STARTS, *PIECES, " six", " Oct", " October 1", "’s")
    ]
    texts = byte_fallback_texts
    lines = [raw for raw in texts.raw if b"\n" not in raw]
    verdicts: dict[bytes, list[int]] = {}
    for _ in range(60):
        prefix = b"".join(
            random.choice(random.choice((begun, pieces, pieces, lines))) for _ in range(random.randint(1, 3))
        )
        state = rule.state(prefix)
        if rule.right(prefix.decode("utf-8", "replace")):
            continue
        if state not in verdicts:
            verdicts[state] = rule.next_tokens(state, texts).all().tolist()
        assert rule.next_tokens(prefix, texts).all().tolist() == verdicts[state], (prefix, state)


@pytest.mark.parametrize("accents", ["fold", "keep"])
@pytest.mark.parametrize(
    "prefix",
    [
        *("zzz brain", "zzz brain's", "zzz 52", "zzz 52's", "zzz 52.", "zzz 25.", "zzz 25", "zzz 7", "zzz 1234-"),
        *("zzz six", "zzz the twelve", "zzz zero-", "« brain"),
    ],
)
def test_tokens_after_an_answer_have_the_outcome_that_they_have_after_one_that_stands_in_for_it(
    prefix: str, accents: str, monkeypatch: pytest.MonkeyPatch
):
    word = re.findall(r"\w+", prefix.removeprefix("zzz ").removeprefix("the "))[0]
    rule = AnswerMatcher([str(NUMBERS_IN_WORDS.get(word, word))], accents=accents)
    further = (".-", "''", "),", " twelve", " may", "th", "t", "f", " km", "н", "é", "ç", "š", "á", "\u0301", "は")
    texts = TokenTexts([piece.encode() for piece in (*PIECES, *further)])
    assert (rule._stand_in(prefix) is None) == (word == "zero")
    shared = rule.next_tokens(prefix.encode(), texts).all()
    monkeypatch.setattr(rule, "_stand_in", lambda text: None)
    assert shared.tolist() == rule.next_tokens(prefix.encode(), texts).all().tolist()


@pytest.mark.parametrize(
    ("answer", "prefix"),
    [("1914", "It was 1914 €"), ("Bern", "Bern, "), ("90", "at 90°"), ("7", "seven continents"), ("7", "7 (")],
)
def test_every_next_token_is_decided_behind_an_answer_that_no_text_can_change(answer: str, prefix: str):
    rule, texts = matcher(answer), TokenTexts([piece.encode() for piece in PIECES if "^" not in unified(piece)])
    verdicts = rule.next_tokens(prefix.encode(), texts).all()
    assert set(verdicts) == {TokenVerdict.DECIDED}
    assert rule.next_tokens(prefix.encode(), TokenTexts([b"^2"])).at(0) == TokenVerdict.RIGHT


@pytest.mark.parametrize(
    ("answer", "prefix", "token", "more"),
    [
        *(("10", "10-", "3", "/4"), ("10", "10-", "99", "/100"), ("10", "10", " +", "3/4"), ("7", "7", " x", " 10^3")),
        *(("33", "33,", "0", "52"), ("7th", "7th", " M", "ay"), ("K", "K.", " ", "U."), ("pH", "pH", ".", " D")),
        *(("owl", "owl", "'s", "+"), ("owl", "owl", "'", "s+")),
    ],
)
def test_a_token_does_not_decide_what_more_text_can_change(answer: str, prefix: str, token: str, more: str):
    rule = matcher(answer)
    assert rule.next_tokens(prefix.encode(), TokenTexts([token.encode()])).at(0) == TokenVerdict.RIGHT
    assert not rule.right(prefix + token + more)


@pytest.mark.parametrize(
    "answers", [*WORDS[1:], *NUMBERS, ["10"], ["1914"], ["owl"]], ids=lambda answers: answers[0]
)  # not U.S.A., which further initials would join
def test_no_continuation_undoes_a_decided_reply(answers: list[str]):
    rule, random = matcher(*answers), Random(0)
    pieces = [*PIECES, *CONTINUATIONS]
    texts = TokenTexts([piece.encode() for piece in pieces])
    for _ in range(15):
        prefix = f"{random.choice((' ', ' It is ', ' the '))}{random.choice(answers)}"
        prefix += random.choice(("", random.choice(pieces)))
        verdicts = rule.next_tokens(rule.state(prefix.encode()), texts).all()
        decided = np.flatnonzero(verdicts == TokenVerdict.DECIDED).tolist()
        for token in random.sample(decided, min(len(decided), 20)):
            reply = prefix + pieces[token]
            more = "".join(random.choices(pieces, k=2))
            assert rule.right(reply)
            assert rule.right(reply + more)


@pytest.mark.parametrize("accents", ["fold", "keep"])
@pytest.mark.parametrize(
    ("answer", "prefix"),
    [("6", "zzz 6"), ("6", "zzz 6 "), ("6", "zzz 6 -"), ("x", "zzz x "), ("x", "zzz x"), ("brain", "zzz brain")],
)
def test_letters_of_other_scripts_share_outcomes_that_each_has_alone(answer: str, prefix: str, accents: str):
    lines = [space + word for word in LETTERS for space in ("", " ")]
    texts = TokenTexts([*map(str.encode, lines)])
    together = AnswerMatcher([answer], accents).next_tokens(prefix.encode(), texts).all()
    for line, verdict in zip(lines, together, strict=True):
        alone = AnswerMatcher([answer], accents).next_tokens(prefix.encode(), TokenTexts([line.encode()]))
        assert alone.at(0) == verdict, line


def test_words_that_no_answer_has_share_a_state():
    rule = matcher("Paris")
    starts = (b" It was", b" I think you mean", b" Tokyo, Lisbon was", b"Tokyo (London) too late")
    assert len({rule.state(start) for start in starts}) == 1
    assert len({rule.state(start + b" Par") for start in (b"", b" In", b" It is called")}) == 1
    assert rule.state(b" It is Par") != rule.state(b" It is Pari")
    assert rule.state(b" Paris is ") != rule.state(b" Lisbon is ")
    assert rule.state(b" x") == rule.state(b" q")
    assert rule.state(b" 3") == rule.state(b" 17")
    assert rule.state(b" p") != rule.state(b" q")
    assert matcher("52").state(b" 3") == matcher("52").state(b" 717")
    assert matcher("52").state(b" 3") != matcher("52").state(b" 5")


def test_signs_and_words_without_a_meaning_to_the_answers_share_a_state():
    carrots, king, hastings = matcher("carrots"), matcher("Martin Luther King", "Dr King"), matcher("1066")
    boundaries = ("", " I think ", " Luke's ...", " the U.S. -", " 3,")
    assert len({carrots.state(start.encode()) for start in boundaries}) == 1
    words = (" Luke's", " the", " 3", " H2O", " Galápagos")
    assert len({carrots.state(start.encode()) for start in words}) == 1
    assert carrots.state(b" $H c") != carrots.state(b" H c")
    assert king.state(b" Luther Dr.") == king.state(b" It is Dr.") != king.state(b" Martin Luther")
    numbers = (" ", " of ", " It was, the ", " Hastings, 12; ")
    assert len({hastings.state(start.encode()) for start in numbers}) == 1
    assert hastings.state(b" two") == hastings.state(b" five") != hastings.state(b" twenty")


@pytest.mark.parametrize(
    ("accents", "answer", "prefix", "mark"),
    [("keep", "caf\u00e9", " It is cafe", "\u0301"), ("fold", "\u304c", " \u304b\u304b", "\u3099")],
)
def test_a_combining_mark_may_make_an_answer_of_any_word(accents: str, answer: str, prefix: str, mark: str):
    rule = AnswerMatcher([normalize(answer, accents)], accents=accents)
    assert rule.right(prefix + mark)
    assert rule.next_tokens(rule.state(prefix.encode()), TokenTexts([mark.encode()])).at(0) >= TokenVerdict.RIGHT
