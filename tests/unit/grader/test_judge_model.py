"""Which replies a judge is asked about, and in which order."""

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from answer_rows import answer_row

from robust_eval.answer import answer_table
from robust_eval.grader.base import FreeReply
from robust_eval.grader.judge_model import JudgeModel
from robust_eval.model.base import Request
from robust_eval.normalization import normalize
from robust_eval.question import Question
from robust_eval.store.stored_model import NotStoredError

QUESTION = Question("q", "What is the capital of France?", ("Paris",))


def reply(text: str, uncertain: bool = False) -> FreeReply:
    return FreeReply(QUESTION, text, normalize(text), ("paris",), (normalize(text),), uncertain=uncertain)


REPLIES = [
    reply("Paris"),
    reply("It is Paris"),
    reply("Lyon"),
    reply("Paris, not Lyon", uncertain=True),
    reply("Lyon. Or Paris", uncertain=True),
]


class Asked:
    """A judge that calls every reply wrong, and remembers what it was shown."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.calls: list[int] = []
        self.config = SimpleNamespace(name="judge")

    def answers(self, requests: Sequence[Request], stage: str) -> Any:
        self.shown += [str(request.prompt) for request in requests]
        self.calls.append(len(requests))
        rows = [answer_row(request.question_id, text="Verdict: wrong") for request in requests]
        return SimpleNamespace(table=answer_table(rows))

    def about(self) -> list[str]:
        """The replies that it was asked about, in their order."""
        ends = [prompt.rpartition("Reply to be judged")[2] for prompt in self.shown]
        longest_first = sorted((each.text for each in REPLIES), key=len, reverse=True)
        return [next(text for text in longest_first if text in end) for end in ends]


@pytest.mark.parametrize(
    ("cascade", "about", "verdicts"),
    [
        ("exact", ["Paris, not Lyon", "Lyon. Or Paris", "It is Paris", "Lyon"], [True, False, False, False, False]),
        ("uncertain", ["Paris, not Lyon", "Lyon. Or Paris"], [True, True, False, False, False]),
        ("none", ["Paris, not Lyon", "Lyon. Or Paris", "Paris", "It is Paris", "Lyon"], [False] * 5),
    ],
)
def test_a_cascade_asks_about_uncertain_replies_first_and_the_others_as_it_says(
    cascade: str, about: list[str], verdicts: list[bool]
):
    asked = Asked()
    judge = JudgeModel(cascade=cascade).with_judge(asked, 0)  # type: ignore[arg-type]
    assert judge.right(REPLIES) == verdicts
    assert asked.about() == about


def test_without_an_uncertain_reply_nobody_is_asked():
    asked = Asked()
    judge = JudgeModel(cascade="uncertain").with_judge(asked, 0)  # type: ignore[arg-type]
    assert judge.right(REPLIES[:3]) == [True, True, False]
    assert asked.shown == []


def test_verdicts_on_abstentions_and_comparisons_are_in_the_table_and_need_no_separate_trial():
    asked = Asked()
    judge = JudgeModel(abstention="judge").with_judge(asked, 0)  # type: ignore[arg-type]
    replies = [reply(f"Town {number}") for number in range(30)]
    judge.right(replies)
    assert asked.calls == [20, 10]
    judge.abstained(replies)
    judge.are_equivalent([(QUESTION, "Lyon", "Lyons")])
    assert asked.calls == [20, 10, 30, 1]
    assert Counter(judge.verdict_table()["form"].to_pylist()) == {"equivalence": 31, "abstention": 30}


def test_a_plan_counts_all_missing_verdicts_also_those_on_abstentions():
    replies = [reply(f"Town {number}") for number in range(100)]
    judge = JudgeModel(abstention="judge").with_judge(_Stored(), 0).cached_only()  # type: ignore[arg-type]
    for method, missing in ((judge.abstained, 100), (judge.right, 200)):
        with pytest.raises(NotStoredError) as lacking:
            method(replies)
        assert len(lacking.value.missing) == missing


class _Stored:
    """The model of a judge, of whose verdicts none is stored."""

    config = SimpleNamespace(name="judge")

    def cached_only(self) -> "_Stored":
        return self

    def missing(self, requests: Sequence[Request]) -> list[Request]:
        return list(requests)

    def answers(self, requests: Sequence[Request], stage: str) -> Any:
        raise NotStoredError(stage, len(requests), list(requests))
