import pyarrow as pa
import pytest
from answer_rows import answer_row
from hypothesis import given, settings
from hypothesis import strategies as st
from json_lines import cases

from robust_eval.answer import SCHEMA, answer_table
from robust_eval.grader.accepted_forms import accepted_answers
from robust_eval.grader.matching import Matching
from robust_eval.question import Question

TWAIN = Question("twain", "Who wrote Tom Sawyer?", answers=("Mark Twain", "Samuel Clemens", "Twain"))
FORCE = Question("force", "What is the unit of force?", choices=("joule", "newton", "watt"), correct=1)
OPEN = Question("open", "What is your favourite colour?")
UNKEYED = Question("unkeyed", "Which one?", choices=("this", "that"))


def row(question_id, text, outcome="ok", **more):
    return answer_row(question_id, text=text, outcome=outcome, **more)


def verdicts(questions, *rows, contains="word"):
    graded = Matching(contains=contains).grade(questions, answer_table(rows))
    return list(zip(*(graded[name].to_pylist() for name in ("label", "correct", "exact", "outcome")), strict=True))


def correct(reply, *aliases, contains="word"):
    [(_, verdict, _, _)] = verdicts([Question("q", "Q?", answers=aliases)], row("q", reply), contains=contains)
    return verdict


@pytest.mark.parametrize(
    ("reply", "alias", "expected"), cases(__file__, "a_reply_is_right_if_it_contains_an_alias_as_whole_words")
)
def test_a_reply_is_right_if_it_contains_an_alias_as_whole_words(reply, alias, expected):
    assert correct(reply, alias) is expected


@pytest.mark.parametrize(("reply", "alias", "expected"), cases(__file__, "the_substring_knob_finds_an_alias_anywhere"))
def test_the_substring_knob_finds_an_alias_anywhere(reply, alias, expected):
    assert correct(reply, alias, contains="substring") is expected


@pytest.mark.parametrize(
    ("reply", "alias", "expected"), cases(__file__, "a_single_letter_or_sign_counts_as_a_whole_word_alone")
)
@pytest.mark.parametrize("contains", ["word", "substring"])
def test_a_single_letter_or_sign_counts_as_a_whole_word_alone(reply, alias, expected, contains):
    assert correct(reply, alias, contains=contains) is expected


@pytest.mark.parametrize(("reply", "expected"), cases(__file__, "the_equal_knob_takes_nothing_but_an_alias"))
def test_the_equal_knob_takes_nothing_but_an_alias(reply, expected):
    assert correct(reply, "Mark Twain", "Twain", contains="equal") is expected


def test_only_whole_words_can_be_looked_for_while_an_answer_is_written():
    accepted = "whole words ['mark twain', 'samuel clemens', 'twain'] accents fold"
    assert Matching("word").matcher(TWAIN).identity == f"{accepted} lenient"
    assert Matching("word", spelling="strict").matcher(TWAIN).identity == f"{accepted} strict"
    assert [Matching(contains).matcher(TWAIN) for contains in ("substring", "equal")] == [None, None]
    assert [Matching().matcher(question) for question in (FORCE, OPEN)] == [None, None]


@pytest.mark.parametrize(
    ("reply", "expected"),
    cases(__file__, "a_free_text_reply_is_labelled_by_its_normal_form_and_exact_if_it_equals_an_alias"),
)
def test_a_free_text_reply_is_labelled_by_its_normal_form_and_exact_if_it_equals_an_alias(reply, expected):
    assert verdicts([TWAIN], row("twain", reply)) == [tuple(expected)]


def test_free_text_without_accepted_answers_has_a_label_and_no_verdict():
    assert verdicts([OPEN], row("open", "The Blue!")) == [("blue", None, None, "ok")]


def test_blank_aliases_are_dropped_and_counted():
    question = Question("q", "Q?", answers=(" ", "Paris", "", "paris!", "The city of Paris"))
    assert accepted_answers(question) == (("paris", "city of paris"), 2)
    assert verdicts([question], row("q", "London, a city."), row("q", "A"), row("q", "Paris")) == [
        ("london city", False, False, "ok"),
        ("a", False, False, "ok"),
        ("paris", True, True, "ok"),
    ]


@pytest.mark.parametrize("sign", [",", "A", ".", "<", "?!", "The"])
def test_an_alias_of_signs_or_an_article_is_right_as_it_stands_and_in_no_other_reply(sign):
    assert correct(sign, sign, "Paris") is True
    assert correct("Any reply, the longest: a < b?", ".", "The") is False


@pytest.mark.parametrize("contains", ["word", "substring", "equal"])
def test_an_alias_that_normalises_to_nothing_is_contained_in_no_reply(contains):
    assert correct("Any reply, the longest even.", ".", "Paris", contains=contains) is False


def test_blank_aliases_are_counted_for_the_questions_that_have_any():
    questions = [TWAIN, Question("one", "Q?", answers=("Paris", "")), Question("two", "Q?", answers=("", " ", "x"))]
    assert Matching().unusable_aliases(questions) == {"one": 1, "two": 2}


@pytest.mark.parametrize(
    ("reply", "expected"), cases(__file__, "a_multiple_choice_reply_is_labelled_by_its_letter_and_invalid_without_one")
)
def test_a_multiple_choice_reply_is_labelled_by_its_letter_and_invalid_without_one(reply, expected):
    assert verdicts([FORCE], row("force", reply)) == [tuple(expected)]


def test_multiple_choice_without_a_key_has_a_label_and_no_verdict():
    assert verdicts([UNKEYED], row("unkeyed", "A"), row("unkeyed", "either")) == [
        ("A", None, None, "ok"),
        (None, None, None, "invalid"),
    ]


def test_choices_go_before_answers_in_deciding_how_a_reply_is_graded():
    question = Question("q", "Q?", answers=("newton",), choices=("joule", "newton"), correct=1)
    assert verdicts([question], row("q", "newton"), row("q", "B")) == [
        (None, False, False, "invalid"),
        ("B", True, True, "ok"),
    ]


@pytest.mark.parametrize("outcome", ["error", "filtered_prompt", "filtered_reply"])
def test_a_request_without_a_reply_has_no_label_and_no_verdict(outcome):
    assert verdicts([TWAIN, FORCE], row("twain", "Mark Twain", outcome), row("force", "B", outcome)) == [
        (None, None, None, outcome),
        (None, None, None, outcome),
    ]


def test_the_same_text_is_graded_by_the_outcome_of_each_row():
    rows = [row("twain", "Twain", outcome) for outcome in ("ok", "error", "ok")]
    assert verdicts([TWAIN], *rows) == [
        ("twain", True, True, "ok"),
        (None, None, None, "error"),
        ("twain", True, True, "ok"),
    ]


@pytest.mark.parametrize("outcome", ["refused", "invalid"])
def test_a_refused_or_invalid_reply_is_wrong_even_where_it_names_the_answer(outcome):
    rows = [row("twain", "I will not say whether it was Mark Twain.", outcome), row("force", "B", outcome)]
    assert [verdict[1:] for verdict in verdicts([TWAIN, FORCE], *rows)] == [(False, False, outcome)] * 2


def test_grading_fills_its_columns_and_keeps_every_other_one_and_the_order_of_the_rows():
    given = [
        {
            "question_id": "force",
            "rewrite": 2,
            "temperature": 0.4,
            "trial": 7,
            "text": "The answer is B.",
            "label": "stale",
            "correct": False,
            "exact": False,
            "outcome": "ok",
            "weight": 0.25,
            "token_ids": [5, 6],
            "token_logprobs": [-0.5, -0.25],
            "sampling_logprobs": [-1.0, -2.0],
            "top_logprobs": [[-0.5, -1.5], [-0.25, -3.0]],
            "answer_tokens": 1,
            "finish_reason": "stop",
            "prompt_tokens": 20,
            "completion_tokens": 2,
        },
        row("twain", "Mark Twain", "error", label="stale", correct=True, exact=True, trial=3),
        row("twain", "Herman", weight=0.1, finish_reason="length"),
        row("force", "newton", temperature=2.0),
        row("twain", "Twain", rewrite=1, token_ids=[], prompt_tokens=4),
    ]
    filled = [
        {"label": "B", "correct": True, "exact": True},
        {"label": None, "correct": None, "exact": None},
        {"label": "herman", "correct": False, "exact": False},
        {"label": None, "correct": False, "exact": False, "outcome": "invalid", "reason": "no letter"},
        {"label": "twain", "correct": True, "exact": True},
    ]
    expected = [before | after | {"uncertain": False} for before, after in zip(given, filled, strict=True)]
    table = answer_table(given)
    graded = Matching().grade([TWAIN, FORCE], table)
    assert graded.schema == SCHEMA
    assert graded.to_pylist() == answer_table(expected).to_pylist()
    assert table.to_pylist() == answer_table(given).to_pylist()


def test_an_answer_table_in_several_chunks_is_graded_whole():
    chunks = pa.concat_tables([answer_table([row("twain", text)]) for text in ("Twain", "Melville", "Mark Twain")])
    assert Matching().grade([TWAIN], chunks)["correct"].to_pylist() == [True, False, True]


def test_an_empty_answer_table_stays_empty_and_keeps_the_schema():
    assert Matching().grade([TWAIN], answer_table([])).equals(SCHEMA.empty_table())


WORDS = st.lists(st.sampled_from(["red", "blue", "redder", "sky", "ski"]), min_size=1, max_size=5)


@settings(max_examples=100, deadline=None, database=None, derandomize=True)
@given(reply=WORDS, aliases=st.lists(WORDS, min_size=1, max_size=3))
def test_containing_is_having_the_words_of_an_alias_in_a_row(reply, aliases):
    def stands(alias):
        return any(reply[start : start + len(alias)] == alias for start in range(len(reply)))

    texts = [" ".join(alias) for alias in aliases]
    [(_, right, exact, _)] = verdicts([Question("q", "Q?", answers=tuple(texts))], row("q", " ".join(reply)))
    assert (right, exact) == (any(stands(alias) for alias in aliases), reply in aliases)
    assert correct(" ".join(reply), *texts, contains="substring") is any(text in " ".join(reply) for text in texts)


def test_spelling_says_whether_a_space_inside_a_word_and_the_plural_matter():
    pairs = [
        ("bee keeper", "beekeeper"),
        ("rearview", "rear-view"),
        ("U2", "U-2"),
        ("lungs", "lung"),
        ("a Roman", "Romans"),
    ]
    for spelling, expected in (("lenient", True), ("strict", False)):
        for reply, alias in pairs:
            question = Question("q", "Q?", answers=(alias,))
            graded = Matching(spelling=spelling).grade([question], answer_table([row("q", reply)]))
            assert graded["correct"].to_pylist() == [expected], (spelling, reply, alias)


@pytest.mark.parametrize(
    ("reply", "alias"), [("glas", "glass"), ("bus", "bu"), ("he is", "hei"), ("his", "hi"), ("8s", "8")]
)
def test_lenient_spelling_makes_no_other_word_right(reply, alias):
    assert correct(reply, alias) is False


def test_accents_tell_answers_apart_where_they_are_kept():
    question = Question("q", "Q?", answers=("São Paulo",))
    replies = answer_table(
        [row("q", "Sao Paulo"), row("q", "São Paulo", trial=1), row("q", "Sa\u0303o Paulo", trial=2)]
    )
    assert Matching().grade([question], replies)["correct"].to_pylist() == [True, True, True]
    assert Matching(accents="keep").grade([question], replies)["correct"].to_pylist() == [False, True, True]
