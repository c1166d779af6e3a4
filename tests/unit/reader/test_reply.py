import pytest

from robust_eval.question import Question
from robust_eval.reader.base import Reading
from robust_eval.reader.reply import ByPromptStyle, FirstLineReader, ReplyReader

FRANCE = Question("france", "What is the capital of France?", ("Paris",))
UNIT = Question("unit", "Which is the unit of force?", choices=("joule", "newton", "watt"), correct=1)
LONG = "France is a country in western Europe with many large cities. " * 8


@pytest.mark.parametrize(
    ("reply", "answer", "rule"),
    [
        ("Paris", "Paris", "whole reply"),
        ("Sure!\nParis", "Paris", "whole reply"),
        ("Certainly! Great question!\n\n**Paris**", "Paris", "whole reply"),
        ("The capital of France is Paris.", "The capital of France is Paris.", "whole reply"),
        ("Paris\nQuestion: And of Germany?\nAnswer: Berlin", "Paris", "whole reply"),
        ("<think>\nLyon?\n</think>\nParis<|im_end|>", "Paris", "whole reply"),
        # stated
        ("The answer is Paris", "Paris", "explicit answer"),
        ("Let me think. The final answer is **Paris**.\nIt lies on the Seine.", "Paris", "explicit answer"),
        ("The final answer is Paris. It lies on the Seine.", "Paris", "explicit answer"),
        ("Answer:\nParis", "Paris", "explicit answer"),
        ("**Answer:** Paris", "Paris", "explicit answer"),
        ("### Final answer:\n\nParis", "Paris", "explicit answer"),
        ("The answer to your question is: Paris", "Paris", "explicit answer"),
        ("The correct answer would be St. Louis. Not Chicago.", "St. Louis", "explicit answer"),
        ("The answer is J. R. R. Tolkien.\nHe wrote it in 1937.", "J. R. R. Tolkien", "explicit answer"),
        ("The answer is 3.5 km.", "3.5 km", "explicit answer"),
        ("The answer is Lyon. No, the answer is Paris.", "Paris", "explicit answer"),
        ("Die Antwort lautet Paris.", "Paris", "explicit answer"),
        ("La réponse est Paris.", "Paris", "explicit answer"),
        ("La respuesta correcta es París.", "París", "explicit answer"),
        ("答案是巴黎。", "巴黎。", "explicit answer"),
        # a statement on an answer that is none
        ("The answer is quite simple. It is Paris.", "The answer is quite simple. It is Paris.", "whole reply"),
        ("If you asked me, the answer is Lyon.", "If you asked me, the answer is Lyon.", "whole reply"),
        ("La respuesta no es Lyon.", "La respuesta no es Lyon.", "whole reply"),
        (f"{LONG} The answer is Paris.", "Paris", "explicit answer"),
        # marked
        (r"So it is \boxed{Paris}.", "Paris", "marked answer"),
        (r"So it is $\boxed{\text{Paris}}$, not \boxed", "Paris", "marked answer"),
        (r"\boxed{\frac{1}{2}}", "1/2", "marked answer"),
        ("<answer>Paris</answer>", "Paris", "marked answer"),
        ('```json\n{"reasoning": "…", "answer": "Paris"}\n```', "Paris", "marked answer"),
        ('{"answer": 42}', "42", "marked answer"),
        ("2 + 2 = 4\n#### 4", "4", "marked answer"),
        ('{"answer": 3e8}', "300000000", "marked answer"),
        ('{"data": {"answer": "Lyon"}, "answer": "Paris"}', "Paris", "marked answer"),
        ("The answer is Lyon. <answer>Paris</answer>", "Paris", "marked answer"),
        # long
        (f"{LONG}\nIts capital is Paris.", f"{LONG[:61]} Its capital is Paris.", "first and last sentence"),
        # not stated after all
        ("I do not know the answer. Perhaps Paris.", "I do not know the answer. Perhaps Paris.", "whole reply"),
        ("The answer is not Lyon.", "The answer is not Lyon.", "whole reply"),
        ("The answer is:", "The answer is:", "whole reply"),
    ],
)
def test_a_reply_is_read_by_the_first_rule_that_finds_an_answer(reply: str, answer: str, rule: str):
    assert ReplyReader().read(reply, FRANCE) == Reading(answer, rule)


@pytest.mark.parametrize("repeated", [" .", "? ", "\n-", " |", " …", "* "])
@pytest.mark.parametrize("question", [FRANCE, UNIT], ids=["free text", "choices"])
def test_a_long_reply_without_a_word_says_nothing(repeated: str, question: Question):
    assert ReplyReader().read(repeated * 200, question).answer == ""


@pytest.mark.parametrize("reader", [ReplyReader(), FirstLineReader()])
@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("<think>France, so Paris", "reasoning not ended"),
        ("<think>Paris</think>", "nothing said"),
        ("<|im_end|>", "nothing said"),
        ("", "nothing said"),
    ],
)
def test_a_reply_without_an_answer_has_a_reason(reader: ReplyReader | FirstLineReader, reply: str, reason: str):
    assert reader.read(reply, FRANCE) == reader.read(reply, UNIT) == Reading("", "", reason)


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("Paris\nQuestion: And of Germany?\nAnswer: Berlin", "Paris"),
        ("The answer is Lyon.\nThe answer is Paris.", "The answer is Lyon."),
        ("**Paris**\nLyon", "**Paris**"),
        ("Sure!\nParis", "Sure!"),
        ("<think>Lyon?</think>Paris\nLyon", "Paris"),
    ],
)
def test_the_first_line_is_read_and_nothing_below(reply: str, answer: str):
    assert FirstLineReader().read(reply, FRANCE) == Reading(answer, "first line")


def test_a_plain_prompt_is_read_by_its_first_line_and_a_conversation_whole():
    assert (ByPromptStyle().of(chat=False), ByPromptStyle().of(chat=True)) == (FirstLineReader(), ReplyReader())
    assert ReplyReader().of(chat=False) == ReplyReader()
