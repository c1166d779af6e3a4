import math

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from robust_eval.metric.profile_metric import correlation, profile, ranks
from robust_eval.metric.score import Score
from robust_eval.question import Question
from robust_eval.report.score_presentation import present
from robust_eval.stats.estimate import Estimate

NAN, INF = math.nan, math.inf
FRS = [1.0, 1.0, 0.5, 0.4, NAN, 0.6]
BREAKING = [INF, INF, 0.8, 0.4, NAN, 1.0]
WORST = [1.0, 0.0, 1.0, 0.0, 1.0, 0.0]
RIGHT = [1.0, 4 / 6, 1.0, 1 / 6, 1.0, 0.5]
ENTROPY = [0.0, 0.0, 0.7, 1.2, 0.1, NAN]
INVALID = [0.0] * 6
ERROR = [0.0, 0.0, 0.25, 0.8, 0.05, NAN]
QUESTIONS = [Question(f"q{i}", f"Question {i}?", ("yes",)) for i in range(6)]


def scores() -> dict[str, Score]:
    """Six facts, of which one lacks its FRS and one the entropy of its answers; t = 0.2 is not what counts."""
    nearest = Estimate(0.5)
    other = np.full(6, -1.0)
    return {
        "frs": Score(
            by_question={"accuracy.t1": other, "frs.d1": np.array(FRS), "frs.d50": other},
            tables={"frs": pa.table({"breaking_temperature": BREAKING})},
        ),
        "agreement": Score(
            curves={"agreement.worst": {0.2: nearest, 1.0: nearest}},
            by_question={
                **dict.fromkeys(("agreement.worst.t0.2", "agreement.difficulty.t0.2"), other),
                "agreement.worst.t1": np.array(WORST),
                "agreement.difficulty.t1": np.array(RIGHT),
            },
        ),
        "certainty": Score(
            curves={"certainty.entropy": {0.2: nearest, 0.7: nearest}},
            by_question={
                **dict.fromkeys(("certainty.entropy.t0.2", "certainty.error_rate.t0.2"), other),
                "certainty.entropy.t0.7": np.array(ENTROPY),
                "certainty.error_rate.t0.7": np.array(ERROR),
            },
            tables={
                "certainty": pa.table(
                    {"temperature": np.tile([0.2, 0.7], 6), "invalid": np.ravel([(9.0, count) for count in INVALID])}
                )
            },
        ),
    }


def test_a_fact_is_firm_if_it_withstands_all_three():
    found = profile(QUESTIONS, scores(), seed=0)
    np.testing.assert_array_equal(found.by_question["profile.robust"], [1, 0, 0, 0, NAN, NAN])
    assert found.values["profile.robust"].value == 0.25
    assert found.values["profile.count.undefined"].value == 2
    assert found.question_ids == [question.id for question in QUESTIONS]


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("frs_worst", FRS, WORST),
        ("frs_right_share", FRS, RIGHT),
        ("frs_entropy", FRS, ENTROPY),
        ("worst_entropy", WORST, ENTROPY),
        ("right_share_entropy", RIGHT, ENTROPY),
    ],
)
def test_rank_correlations_are_those_of_the_facts_that_have_all_three(name: str, one: list[float], other: list[float]):
    found = profile(QUESTIONS, scores(), seed=0).values[f"profile.spearman.{name}"]
    assert found.value == pytest.approx(stats.spearmanr(one[:4], other[:4]).statistic)
    assert math.isnan(found.low)  # of four facts nothing can be said


def test_correlations_of_ten_facts_have_an_interval_unless_one_side_hardly_varies():
    x, y = np.arange(10.0), np.array([1.0, 0.0, 2, 3, 5, 4, 6, 7, 9, 8])
    found = correlation(x, y, None, seed=0)
    assert found.value == pytest.approx(stats.spearmanr(x, y).statistic)
    assert found.low < found.value < found.high <= 1
    assert math.isnan(correlation(x[:9], y[:9], None, seed=0).low)
    assert correlation(x, (y == 9).astype(float), None, seed=0)[1:] != correlation(x, y, None, seed=0)[1:]
    assert math.isnan(correlation(x, (y == 9).astype(float), None, seed=0).low)  # 35 % of resamples have no 9
    assert math.isnan(correlation(x[:0], y[:0], None, seed=0).value)


def test_a_repetition_that_answers_nothing_is_not_right(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(globals(), "INVALID", [1.0, 0, 0, 0, 0, 0])
    found = profile(QUESTIONS, scores(), seed=0)
    np.testing.assert_array_equal(found.by_question["profile.robust"], [0, 0, 0, 0, NAN, NAN])
    assert found.tables["profile"]["unanswered"].to_pylist() == [1, 0, 0, 0, 0, 0]


def test_where_no_fact_is_firm_the_interval_is_that_of_none_in_so_many(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(globals(), "INVALID", [1.0] * 6)
    none = profile(QUESTIONS, scores(), seed=0).values["profile.robust"]
    assert none.value == none.low == 0
    assert none.high == pytest.approx(1 - 0.025 ** (1 / 4))  # Clopper & Pearson for 0 of 4


def test_the_table_says_how_firm_each_method_finds_a_fact_beside_the_others():
    table = profile(QUESTIONS, scores(), seed=0).tables["profile"].to_pydict()
    assert table["question"] == [question.text for question in QUESTIONS]
    assert table["breaking_temperature"][:4] == [INF, INF, 0.8, 0.4]
    expected = {
        "rank_frs": [2.5 / 3, 2.5 / 3, 1 / 3, 0],
        "rank_agreement": [2.5 / 3, 1 / 3, 2.5 / 3, 0],
        "rank_certainty": [2.5 / 3, 2.5 / 3, 1 / 3, 0],
        "disagreement": [0, 0.5, 0.5, 0],
    }
    for name, values in expected.items():
        np.testing.assert_allclose(table[name], [*values, NAN, NAN], err_msg=name)


def pushed_back() -> Score:
    """Facts that hold two turns, one and none, of which one was not known."""
    held = {1: [1, 1, 0, 1, 1, NAN], 2: [1, 0, 0, 1, 1, NAN]}
    names = [f"challenge.survival.turn{turn}" for turn in held]
    return Score(
        curves={name: {0.3: Estimate(0.5)} for name in names},
        by_question={f"{name}.t0.3": np.array(held[turn]) for turn, name in enumerate(names, start=1)},
    )


def thought() -> Score:
    after = np.array([1.0, 0.9, 1.0, 0.05, 1.0, 1.0])
    return Score(curves={"thinking.accuracy": {1.0: Estimate(0.5)}}, by_question={"thinking.accuracy.t1": after})


def test_what_breaks_a_fact_first_is_what_it_withstands_least_of():
    whole = {**scores(), "challenge": pushed_back(), "thinking": thought()}
    whole["frs"].curves["frs.survival"] = {t: Estimate(0.5) for t in (0.2, 0.4, 0.8, 1.0)}
    found = present(profile(QUESTIONS, whole, seed=0), QUESTIONS)
    table = found.tables["profile"].to_pydict()
    assert table["breaks_first"] == ["", "pushback", "pushback", "thinking", "repetition", "rewording"]
    assert [table[name][1] for name in ("turns_held", "thought_right")] == [0.5, 0.9]
    figures = found.metrics()
    shares = {name: figures[f"profile.first.{name}"].value for name in ("pushback", "thinking", "temperature")}
    assert shares == {"pushback": 2 / 6, "thinking": 1 / 6, "temperature": 0.0}
    np.testing.assert_array_equal(found.by_question["profile.robust_to_pushback"], [1, 0, 0, 0, NAN, NAN])
    assert table["rank_challenge"][:4] == [2.5 / 3, 1 / 3, 0, 2.5 / 3]
    assert found.presentation.title == "All five methods"
    assert "profile.spearman.turns_held_thought_right" in figures
    np.testing.assert_array_equal(found.by_question["profile.robust_to_all"], [1, 0, 0, 0, NAN, NAN])
    assert "of the 4 also withstand all pushback." in found.presentation.sentence
    assert found.presentation.sentence.endswith(
        " The perturbation that breaks a fact first (ties count for each): pushback 33 %, rewording 17 %, "
        "repetition 17 %, thinking 17 %."
    )
    every = found.formatted("profile.robust_to_all", ".0%")
    assert list(found.presentation.claims) == [f"retains {every} of the known facts under every perturbation"]


def test_without_a_temperature_a_fact_is_firm_if_it_withstands_rewording_and_repetition():
    without = {name: score for name, score in {**scores(), "challenge": pushed_back()}.items() if name != "frs"}
    found = present(profile(QUESTIONS, without, seed=0, chosen="It has no temperature."), QUESTIONS)
    np.testing.assert_array_equal(found.by_question["profile.robust_at_own"], [1, 0, 0, 0, 0, NAN])
    np.testing.assert_array_equal(found.by_question["profile.robust_to_all"], [1, 0, 0, 0, 0, NAN])
    table = found.tables["profile"].to_pydict()
    assert table["breaks_first"] == ["", "pushback", "pushback", "rewording", "repetition", "rewording"]
    assert [table["rank_agreement"][0], table["rank_certainty"][3]] == [0.75, 0.0]
    assert not {"frs", "breaking_temperature", "rank_frs"} & table.keys()
    assert not {"profile.robust", "profile.robust_to_pushback", "profile.first.temperature"} & found.metrics().keys()
    assert (found.presentation.title, found.presentation.notes) == ("All three methods", ["It has no temperature."])
    assert found.presentation.sentence.startswith("in paraphrases, and repeatedly: 20 % of the 5 that have all values")


def test_a_fact_that_two_pressures_break_as_soon_counts_for_both():
    orders = np.array([1.0, 4 / 6, NAN, 1.0, NAN, NAN])
    whole = scores() | {
        "order": Score(curves={"order.accuracy": {1.0: Estimate(0.5)}}, by_question={"order.accuracy.t1": orders})
    }
    found = present(profile(QUESTIONS, whole, seed=0), QUESTIONS)
    assert found.tables["profile"]["breaks_first"].to_pylist()[1] == "rewording, order"
    assert found.presentation.title == "All four methods"


def test_a_single_fact_is_beside_no_other():
    assert np.isnan(ranks(np.array([1.0]), np.array([1.0]), np.array([0.0]), required=3)).all()
    assert ranks(np.array([]), np.array([]), np.array([]), required=3).shape == (0, 3)
    whole = {name: one_of(score) for name, score in scores().items()}
    found = profile(QUESTIONS[:1], whole, seed=0)
    assert math.isnan(found.values["profile.spearman.frs_entropy"].value)
    assert found.values["profile.robust"].value == 1
    assert found.values["profile.count.undefined"].value == 0


def one_of(score: Score) -> Score:
    return Score(
        curves=score.curves,
        by_question={name: values[:1] for name, values in score.by_question.items()},
        tables={name: table.slice(0, 2 if name == "certainty" else 1) for name, table in score.tables.items()},
    )
