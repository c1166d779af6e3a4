from hypothesis import given, settings
from hypothesis import strategies as st

from robust_eval.answer import answer_table
from robust_eval.grader.matching import Matching
from robust_eval.grader.reply_grader import ReplyGrader
from robust_eval.question import Question
from robust_eval.reader.reply import ReplyReader

QUESTIONS = [
    Question("twain", "Who wrote Tom Sawyer?", answers=("Mark Twain",)),
    Question("force", "What is the unit of force?", choices=("joule", "newton"), correct=1),
]
JUDGE = ReplyGrader(ReplyReader(), Matching(), first_line=False)
REPLIES = st.fixed_dictionaries(
    {
        "question_id": st.sampled_from(["twain", "force"]),
        "text": st.sampled_from(["Mark Twain", "Twain, or Clemens", "B", "", "newton"]),
        "outcome": st.sampled_from(["ok", "empty", "refused", "error"]),
        "finish_reason": st.sampled_from([None, "stop", "length"]),
        "reasoning": st.sampled_from([None, "", "Well"]),
        "reasoning_tokens": st.sampled_from([None, 0, 3]),
        "form": st.sampled_from([None, "choices BA"]),
    }
)


@settings(max_examples=25, deadline=None)
@given(st.lists(REPLIES, min_size=1, max_size=12))
def test_replies_are_graded_together_as_each_is_by_itself(replies: list[dict]):
    same = {"rewrite": 0, "temperature": 1.0, "weight": 1.0}
    rows = [
        same | reply | {"trial": trial, "form": reply["form"] if reply["question_id"] == "force" else None}
        for trial, reply in enumerate(replies)
    ]
    together = JUDGE.grade(QUESTIONS, answer_table(rows)).to_pylist()
    assert together == [JUDGE.grade(QUESTIONS, answer_table([row])).to_pylist()[0] for row in rows]
