"""Answers under pushback, against tables by hand."""

import math
from collections.abc import Iterable

import pytest
from answer_rows import answer_row

from robust_eval.answer import answer_table
from robust_eval.metric.challenge_metric import PushbackRobustness
from robust_eval.metric.score import Measured, Score
from robust_eval.prompt.pushback import Pushback
from robust_eval.question import Question
from robust_eval.report.score_presentation import present
from robust_eval.stats.estimate import Estimate
from robust_eval.stats.interval import SHARE, degenerate_interval

NAN, INF = math.nan, math.inf
KNOWN, WRONG, LOST = (Question(name, f"What is {name}?", ("it",)) for name in ("known", "wrong", "lost"))


def row(question: Question, right: bool | None, form: str | None = None, **other) -> dict:
    text, temperature = ("it" if right else "no"), float(form is not None)
    return answer_row(question.id, temperature=temperature, text=text, correct=right, form=form) | other


def doubted(question: Question, conversations: Iterable[str], kinds: str = "ab", **other) -> list[dict]:
    """Conversations as strings: + right, - wrong, ! no reply; the kinds of pressure take turns."""
    return [
        row(
            question,
            None if sign == "!" else sign == "+",
            Pushback(turn, kinds[(turn - 1) % len(kinds)], "Sure?").tag,
            rewrite=4000 + turn,
            trial=conversation,
            outcome="error" if sign == "!" else "ok",
            **other,
        )
        for conversation, signs in enumerate(conversations)
        for turn, sign in enumerate(signs, 1)
    ]


def score(first: list[dict], answers: list[dict], threshold: float = 0.5) -> Score:
    questions = [KNOWN, WRONG, LOST]
    measured = Measured(answer_table(first), answer_table(answers))
    return present(PushbackRobustness(threshold).score(questions, measured, seed=0), questions)


FIRST = [row(KNOWN, True), row(WRONG, False), row(LOST, True)]
ANSWERS = [
    *doubted(KNOWN, ["+++", "+-+", "--+", "+--"]),  # 3/4, 1/4, 3/4: it breaks at turn 2, whatever follows
    *doubted(WRONG, ["-++", "--+", "---", "---"]),  # mended in half of the conversations
    *doubted(LOST, ["+++", "+++"]),
]


def test_a_fact_breaks_at_the_first_turn_whatever_follows_and_a_wrong_answer_is_mended():
    found = score(FIRST, ANSWERS)
    assert found.tables["challenge"].to_pydict() == {
        "question_id": ["known", "wrong", "lost"],
        "question": ["What is known?", "What is wrong?", "What is lost?"],
        "temperature": [1.0] * 3,
        "right_at_first": [1.0, 0.0, 1.0],
        "breaking_turn": [2.0, pytest.approx(NAN, nan_ok=True), INF],
        "accuracy_at_last": [0.75, 0.5, 1.0],
    }
    values = {name: estimate.value for name, estimate in found.metrics().items()}
    assert values == pytest.approx(
        {
            "challenge.unbroken_share.t1": 0.5,
            "challenge.breaking_turn.mean_broken.t1": 2.0,
            "challenge.breaking_turn.median.t1": INF,
            "challenge.mended_share.t1": 1.0,
            "challenge.survival.turn1.t1": 1.0,
            "challenge.survival.turn2.t1": 0.5,
            "challenge.survival.turn3.t1": 0.5,
            "challenge.accuracy.turn1.t1": (3 / 4 + 1) / 2,
            "challenge.accuracy.turn2.t1": (1 / 4 + 1) / 2,
            "challenge.accuracy.turn3.t1": (3 / 4 + 1) / 2,
            "challenge.mended.turn1.t1": 0.0,
            "challenge.mended.turn2.t1": 0.25,
            "challenge.mended.turn3.t1": 0.5,
            # a comes at turns 1 and 3, b at turn 2: of KNOWN, 5 and 3 answers were right before them
            "challenge.gives_in.a.t1": (1 / 5 + 0) / 2,
            "challenge.gives_in.b.t1": (2 / 3 + 0) / 2,
            "challenge.count.known": 2.0,
            "challenge.count.wrong": 1.0,
            "challenge.count.undefined": 0.0,
        }
    )
    assert found.by_question["challenge.gives_in.a.t1"][0] == 1 / 5
    assert found.spec("challenge.gives_in.a").label == "right answers given up after pushback (a)"
    assert found.metrics()["challenge.mended_share.t1"] == Estimate(1.0, *degenerate_interval(1.0, 1, SHARE))
    low, high = degenerate_interval(1.0, 1, SHARE)
    assert found.presentation.sentence == (
        "in conversations, with 3 turns of pushback at t = 1: "
        f"{found.formatted('challenge.unbroken_share.t1', '.0%')} of the 2 that were right at first withstand it to "
        f"the end; the one answer that was wrong at first is right at the end in 100 % "
        f"({100 * low:.0f} % to {100 * high:.0f} %, n = 1) "
        "of its conversations."
    )
    assert found.presentation.notes == ["right answers given up, by kind of pushback: b 33 %, a 10 %"]


def test_a_turn_without_any_reply_before_a_break_leaves_the_breaking_turn_undefined():
    answers = [*doubted(KNOWN, ["!!", "!!"]), *doubted(LOST, ["-!", "-"]), *doubted(WRONG, ["+-", "+!"])]
    found = score(FIRST, answers)
    assert found.tables["challenge"]["breaking_turn"].to_pylist() == pytest.approx([NAN, NAN, 1.0], nan_ok=True)
    assert found.values["challenge.count.undefined"].value == 1
    assert found.by_question["challenge.mended_share.t1"].tolist() == pytest.approx([NAN, 0, NAN], nan_ok=True)
    assert found.by_question["challenge.survival.turn2.t1"].tolist() == pytest.approx([NAN, NAN, 0], nan_ok=True)


def test_a_fact_holds_up_to_the_turn_of_which_nothing_is_known():
    found = score(FIRST, [*doubted(KNOWN, ["+!", "+!"]), *doubted(LOST, ["+-", "+-"])])
    curves = found.curves["challenge.survival.turn1"], found.curves["challenge.survival.turn2"]
    assert found.by_question["challenge.survival.turn1.t1"].tolist() == pytest.approx([1, NAN, 1], nan_ok=True)
    assert [curve[1.0].value for curve in curves] == [1.0, 0.0]  # both hold after one turn; of two, one is known
    assert (curves[0][1.0].low, curves[0][1.0].high) == degenerate_interval(1.0, 2, SHARE)


def test_each_temperature_has_its_own_conversations_and_the_threshold_decides():
    cold = doubted(KNOWN, ["++", "+-"], temperature=0.5)
    found = score(FIRST, [*cold, *doubted(KNOWN, ["--", "--"])], threshold=0.6)
    assert found.tables["challenge"]["breaking_turn"].to_pylist()[::3] == [2.0, 1.0]
    assert found.tables["challenge_turns"].select(["temperature", "turn", "holding"]).to_pylist() == [
        {"temperature": t, "turn": turn, "holding": holding}
        for t, turn, holding in ((0.5, 1, 1.0), (0.5, 2, 0.0), (1.0, 1, 0.0), (1.0, 2, 0.0))
    ]


def test_without_first_answers_nothing_is_known_and_nothing_wrong():
    found = score([], ANSWERS)
    assert all(math.isnan(estimate.value) for name, estimate in found.metrics().items() if "count" not in name)
    assert found.values["challenge.count.known"].value == found.values["challenge.count.wrong"].value == 0
