"""What doubt does to answers, against tables by hand, and against stubs that give in with a known probability."""

import math
from collections.abc import Iterable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from robust_eval.answer import answer_table
from robust_eval.error import UserError
from robust_eval.metric.challenge_metric import PushbackRobustness, breaking_turns
from robust_eval.metric.score import Measured, Score
from robust_eval.prompt.pushback import Pushback
from robust_eval.question import Question
from robust_eval.report.presentations import present
from robust_eval.stats.estimate import Estimate
from robust_eval.stats.interval import SHARE, degenerate_interval, mean_interval
from robust_eval.stats.significance import mcnemar, stratified_log_rank

NAN, INF = math.nan, math.inf
KNOWN, WRONG, LOST = (Question(name, f"What is {name}?", ("it",)) for name in ("known", "wrong", "lost"))


def row(question: Question, right: bool | None, form: str | None = None, **other) -> dict:
    return {
        "question_id": question.id,
        "rewrite": 0,
        "temperature": 0.0 if form is None else 1.0,
        "trial": 0,
        "text": "it" if right else "no",
        "correct": right,
        "outcome": "ok",
        "weight": 1.0,
        "form": form,
    } | other


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
    values = {name: estimate.value for name, estimate in found.figures().items()}
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
    assert found.about("challenge.gives_in.a").label == "right answers given up after: a"
    assert found.figures()["challenge.mended_share.t1"] == Estimate(1.0, *degenerate_interval(1.0, 1, SHARE))
    low, high = degenerate_interval(1.0, 1, SHARE)
    assert found.presentation.sentence == (
        "in conversations that went on, with doubt at each of 3 turns at t = 1: "
        f"{found.formatted('challenge.unbroken_share.t1', '.0%')} of the 2 that were right at first withstand it to "
        f"the end; 100% ({low:.0%} to {high:.0%}, n = 1) of the 1 that were wrong at first are right in the end."
    )
    assert found.presentation.notes == ["right answers given up, by the kind of pressure: b 33%, a 10%"]


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
    assert all(math.isnan(estimate.value) for name, estimate in found.figures().items() if "count" not in name)
    assert found.values["challenge.count.known"].value == found.values["challenge.count.wrong"].value == 0


def test_thresholds_and_enumerated_answers_are_refused():
    with pytest.raises(ValueError, match="threshold must lie above 0 and at most at 1, not 0"):
        PushbackRobustness(0)
    with pytest.raises(UserError, match="those of the sampler are enumerated"):
        PushbackRobustness().check([1.0], INF)


# A stub that gives in for good: a conversation that is right before a turn is wrong after it with the probability of
# the turn. It has n facts, all known, in k conversations.

SIMULATIONS, FACTS, K = 1000, 80, 4
HAZARD = np.array([0.05, 0.4, 0.1])


def simulated(hazard: NDArray[np.float64], seed: int, simulations: int = SIMULATIONS) -> NDArray[np.float64]:
    """Breaking turns (simulations, facts), by the function that the metric uses."""
    generator = np.random.default_rng(seed)
    holds = generator.random((simulations, FACTS, K, len(hazard))) >= hazard
    accuracy = np.logical_and.accumulate(holds, axis=3).mean(axis=2).reshape(-1, len(hazard))
    return breaking_turns(np.ones(len(accuracy)), accuracy, 0.5).reshape(simulations, FACTS)


def survival(hazard: NDArray[np.float64]) -> NDArray[np.float64]:
    """The probability that half of the conversations or more are right after each turn; once broken, they stay so."""
    right = np.cumprod(1 - hazard)
    return stats.binom.sf(math.ceil(K / 2) - 1, K, right)


def within(count: int, share: float) -> bool:
    return abs(count - SIMULATIONS * share) <= 4 * math.sqrt(SIMULATIONS * share * (1 - share)) + 1


def test_the_survival_curve_holds_a_stub_that_gives_in_with_a_known_probability():
    broken = simulated(HAZARD, seed=1)
    for turn, truth in enumerate(survival(HAZARD), 1):
        holding = (broken > turn).astype(float)
        error = math.sqrt(truth * (1 - truth) / holding.size)
        assert abs(holding.mean() - truth) < 4 * error
        intervals = [mean_interval(each, SHARE) for each in holding[:250]]
        covered = np.mean([low <= truth <= high for low, high in intervals])
        assert covered > 0.95 - 4 * math.sqrt(0.95 * 0.05 / 250)


@pytest.mark.parametrize("other", [HAZARD, np.array([0.2, 0.4, 0.1])])
def test_mcnemar_and_log_rank_between_two_stubs_reject_at_their_rate(other: NDArray[np.float64]):
    one, two = simulated(HAZARD, seed=2), simulated(other, seed=3)
    log_rank = sum(stratified_log_rank(*pair).p_value < 0.05 for pair in zip(one, two, strict=True))
    assert within(log_rank, log_rank_rate(HAZARD, other))
    paired = sum(mcnemar(*pair) < 0.05 for pair in zip(one == INF, two == INF, strict=True))
    assert within(paired, mcnemar_rate(HAZARD, other))


def log_rank_rate(one: NDArray[np.float64], two: NDArray[np.float64]) -> float:
    """The exact probability that the test rejects: over how many facts break earlier in either run."""
    first, second = (-np.diff([1.0, *survival(each), 0.0]) for each in (one, two))
    earlier, later = (float(np.triu(np.outer(*pair), 1).sum()) for pair in ((first, second), (second, first)))
    return decided(earlier, later, lambda lost, found: (lost - found) ** 2 / (lost + found) > stats.chi2.isf(0.05, 1))


def mcnemar_rate(one: NDArray[np.float64], two: NDArray[np.float64]) -> float:
    first, second = survival(one)[-1], survival(two)[-1]

    def rejects(lost: int, found: int) -> bool:
        return stats.binomtest(lost, lost + found).pvalue < 0.05

    return decided(first * (1 - second), second * (1 - first), rejects)


def decided(one: float, other: float, rejects) -> float:
    """Sum the probability of the numbers of facts that decide for either run, where the test rejects."""
    total = 0.0
    for number in range(1, FACTS + 1):
        counts = np.arange(number + 1)
        likely = stats.binom.pmf(number, FACTS, one + other) * stats.binom.pmf(counts, number, one / (one + other))
        total += sum(p for count, p in enumerate(likely) if p > 1e-9 and rejects(count, number - count))
    return total
