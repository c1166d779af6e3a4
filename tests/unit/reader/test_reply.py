import pytest
from json_lines import cases

from robust_eval.question import Question
from robust_eval.reader.base import Reading
from robust_eval.reader.reply import ByPromptStyle, FirstLineReader, ReplyReader

FRANCE = Question("france", "What is the capital of France?", ("Paris",))
UNIT = Question("unit", "Which is the unit of force?", choices=("joule", "newton", "watt"), correct=1)


@pytest.mark.parametrize(
    ("reply", "answer", "rule"), cases(__file__, "a_reply_is_read_by_the_first_rule_that_finds_an_answer")
)
def test_a_reply_is_read_by_the_first_rule_that_finds_an_answer(reply: str, answer: str, rule: str):
    assert ReplyReader().read(reply, FRANCE) == Reading(answer, rule)


@pytest.mark.parametrize("repeated", [" .", "? ", "\n-", " |", " …", "* "])
@pytest.mark.parametrize("question", [FRANCE, UNIT], ids=["free text", "choices"])
def test_a_long_reply_without_a_word_says_nothing(repeated: str, question: Question):
    assert ReplyReader().read(repeated * 200, question).answer == ""


@pytest.mark.parametrize(("repeated", "letter"), [("J. \u2014", ""), ("[", ""), ("[[(C)", "C")])
def test_a_model_that_repeats_itself_to_the_end_is_read_all_the_same(repeated: str, letter: str):
    reply = repeated * 3000
    assert ReplyReader().read(reply, UNIT).answer == letter
    assert ReplyReader().read(reply, FRANCE).answer.startswith(repeated)


def test_a_reply_of_line_breaks_alone_is_read_all_the_same():
    breaks = "\n" * 60_000
    assert ReplyReader().read(breaks, FRANCE).answer == ""
    assert ReplyReader().read(f"Paris{breaks}Question: What is the capital of Italy?", FRANCE).answer == "Paris"


@pytest.mark.parametrize("reader", [ReplyReader(), FirstLineReader()])
@pytest.mark.parametrize(("reply", "reason"), cases(__file__, "a_reply_without_an_answer_has_a_reason"))
def test_a_reply_without_an_answer_has_a_reason(reader: ReplyReader | FirstLineReader, reply: str, reason: str):
    assert reader.read(reply, FRANCE) == reader.read(reply, UNIT) == Reading("", "", reason)


@pytest.mark.parametrize(("reply", "answer"), cases(__file__, "the_first_line_is_read_and_nothing_below"))
def test_the_first_line_is_read_and_nothing_below(reply: str, answer: str):
    assert FirstLineReader().read(reply, FRANCE) == Reading(answer, "first line")


def test_a_plain_prompt_is_read_by_its_first_line_and_a_conversation_whole():
    assert (ByPromptStyle().of(chat=False), ByPromptStyle().of(chat=True)) == (FirstLineReader(), ReplyReader())
    assert ReplyReader().of(chat=False) == ReplyReader()
