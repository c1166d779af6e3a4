import math
from fractions import Fraction

import numpy as np
import pytest
from facts_by_hand import (
    BASELINE,
    FACTS,
    QUESTIONS,
    ROWS,
    SURE,
    TORN,
    UNKNOWN,
    answer,
    exact_score,
    figures,
    score_facts,
    score_one,
    trials,
)
from json_lines import cases
from scipy import stats

from robust_eval.answer import answer_table
from robust_eval.error import UserError
from robust_eval.metric.frs_metric import FactualRobustness, entropy_against_breaking
from robust_eval.question import Question
from robust_eval.report.score_presentation import present
from robust_eval.stats.interval import SHARE, degenerate_interval, mean_bounds

PAPER_D = [1, 2, 5, 10, 50]


# FactualRobustness: configuration


@pytest.mark.parametrize(("d", "expected"), cases(__file__, "d_is_a_number_or_a_list_and_comes_out_sorted"))
def test_d_is_a_number_or_a_list_and_comes_out_sorted(d, expected):
    assert FactualRobustness(d=d).d == expected


def test_the_defaults_are_those_of_the_paper():
    metric = FactualRobustness()
    assert metric.d == PAPER_D
    assert (metric.k, metric.renormalize, metric.include_eos) == (10, True, False)
    assert (metric.threshold, metric.estimator, metric.unbroken) == (0.5, "first", "one")


# FactualRobustness.score: one table worked out by hand


def test_the_figures_of_a_hand_made_table():
    # f: b 0 → 2.5, c → −1/1.5, d → 2; FRS 7/9, 1/4, 3/4, and 1 for a; e has none. d matters only for a, unbroken.
    expected = {
        "frs": 25 / 36,
        "frs.d1": 25 / 36,
        "frs.d2": 25 / 36,
        "frs.unbroken_share": 1 / 4,
        "frs.breaking_temperature.mean_broken": 1.0,
        "frs.breaking_temperature.median": 1.25,
        "frs.entropy.mean": 0.3,
        "frs.count.broken": 3.0,
        "frs.count.unbroken": 1.0,
        "frs.count.unknown": 0.0,
        "frs.count.undefined": 1.0,
        "frs.entropy_vs_breaking.pearson_broken": -math.sqrt(3) / 2,  # (0, 1.5), (1, 0.5), (0, 1)
        "frs.entropy_vs_breaking.pearson_all": stats.pearsonr([0.5, 0, 1, 0], [2.0, 1.5, 0.5, 1.0]).statistic,
        "frs.entropy_vs_breaking.kendall": stats.kendalltau([0.5, 0, 1, 0], [2.0, 1.5, 0.5, 1.0]).statistic,
    }
    assert figures(score_facts()) == pytest.approx(expected, rel=1e-12)


def test_the_curves_of_a_hand_made_table():
    curves = score_facts().curves
    values = {name: {t: estimate.value for t, estimate in curve.items()} for name, curve in curves.items()}
    assert values == {
        # e enters where it has replies: (1 + 1 + 1/4 + 3/4) / 4, (1 + 1/2 + 0 + 1/4 + 1) / 5, (1/2 + 1/4 + 1) / 5
        "accuracy": pytest.approx({0.5: 0.75, 1.0: 0.55, 1.5: 0.35}, rel=1e-12),
        "frs.survival": pytest.approx({0.5: 3 / 4, 1.0: 1 / 2, 1.5: 1 / 4}, rel=1e-12),
    }


def test_the_tables_of_a_hand_made_table():
    tables = score_facts().tables
    assert set(tables) == {"frs", "frs_accuracy", "frs_certainty", "frs_types"}

    facts = tables["frs"].to_pydict()
    assert facts.pop("question_id") == ["a", "b", "c", "d", "e"]
    assert facts.pop("question") == ["a?", "b?", "c?", "d?", "e?"]
    assert facts.pop("type") == facts.pop("category") == [""] * 5
    assert facts.pop("known") == [True] * 5
    assert facts.pop("entropy") == pytest.approx([0.5, 0, 1, 0, 0], rel=1e-12)
    assert facts.pop("breaking_temperature") == pytest.approx([math.inf, 1.5, 0.5, 1.0, math.nan], nan_ok=True)
    for column in ("frs_d1", "frs_d2"):
        assert facts.pop(column) == pytest.approx([1, 7 / 9, 1 / 4, 3 / 4, math.nan], rel=1e-12, nan_ok=True)
    assert facts == {}

    assert tables["frs_accuracy"].to_pydict() == {
        "question_id": [name for name in FACTS for _ in range(3)],
        "temperature": [0.5, 1.0, 1.5] * 5,
        "correct": [4, 4, 2, 4, 2, 1, 1, 0, 0, 3, 1, 4, 0, 4, 0],
        "replies": [4] * 12 + [0, 4, 4],
    }
    assert tables["frs_certainty"].num_rows == 0  # no log-probabilities were kept


def test_the_end_token_counts_where_it_is_asked_for():
    score = score_facts(include_eos=True)
    assert score.tables["frs"]["entropy"].to_pylist() == pytest.approx([2 / 3, 1 / 2, 1, 1 / 3, 0], rel=1e-12)
    assert score.values["frs.entropy.mean"].value == pytest.approx(0.5, rel=1e-12)
    b, d = float(exact_score(Fraction(1, 2), Fraction(3, 2), 1)), float(exact_score(Fraction(1, 3), 1, 1))
    assert score.values["frs.d1"].value == pytest.approx((1 + b + 1 / 4 + d) / 4, rel=1e-12)


def test_bound_scores_unbroken_facts_at_the_last_temperature():
    score = score_facts(unbroken="bound")
    a = [float(exact_score(Fraction(1, 2), Fraction(3, 2), d)) for d in (1, 2)]
    assert a == pytest.approx([2.05 / 3.05, 1.425 / 2.425], rel=1e-12)
    expected = [(first + 7 / 9 + 1 / 4 + 3 / 4) / 4 for first in a]
    assert [score.values[name].value for name in ("frs.d1", "frs.d2")] == pytest.approx(expected, rel=1e-12)
    assert score.values["frs.unbroken_share"].value == 0.25
    assert score.tables["frs"]["breaking_temperature"][0].as_py() == math.inf


@pytest.mark.parametrize("groups", [None, "xyxyz"])  # a and c share a paragraph, and b and d
def test_an_interval_is_of_the_known_facts_or_of_their_groups(groups):
    score = score_facts([Question(name, "", group=groups[place] if groups else "") for place, name in enumerate(FACTS)])
    labels = groups and list(groups[:4])
    expected = (0.25, *mean_bounds(np.array([1.0, 0.0, 0.0, 0.0]), SHARE, labels))  # a alone of the four is unbroken
    assert score.values["frs.unbroken_share"] == expected
    assert score.curves["frs.survival"][1.5] == pytest.approx(expected, rel=1e-12)


def test_counts_the_median_and_kendall_have_no_interval():
    bare = {name for name, estimate in score_facts().values.items() if math.isnan(estimate.low)}
    assert bare == {
        "frs.breaking_temperature.median",
        "frs.count.broken",
        "frs.count.unbroken",
        "frs.count.unknown",
        "frs.count.undefined",
        "frs.entropy_vs_breaking.kendall",
    }


def test_neither_the_order_of_the_answers_nor_that_of_the_questions_matters():
    order = np.random.default_rng(0).permutation(len(ROWS))
    shuffled = score_facts(
        QUESTIONS[::-1], BASELINE.take([3, 1, 4, 0, 2]), answer_table(ROWS[index] for index in order)
    )
    assert figures(shuffled) == pytest.approx(figures(score_facts()), rel=1e-12)
    assert shuffled.tables["frs"]["question_id"].to_pylist() == ["e", "d", "c", "b", "a"]
    assert shuffled.tables["frs"]["entropy"].to_pylist() == pytest.approx([0, 0, 1, 0, 0.5], rel=1e-12)


def test_baseline_answers_to_questions_that_were_not_kept_are_passed_over():
    rows = [row for row in ROWS if row["question_id"] in "ab"]
    score = score_facts(QUESTIONS[:2], graded=answer_table(rows))
    assert score.tables["frs"]["entropy"].to_pylist() == pytest.approx([0.5, 0.0], rel=1e-12)


def test_a_question_without_a_greedy_answer_has_no_score_and_is_counted():
    baseline = answer_table(
        [
            answer("a", top_logprobs=[SURE], answer_tokens=1),
            answer("b", outcome="error"),
            answer("c", top_logprobs=[TORN], answer_tokens=0),  # ended at once: no token carries an answer
        ]
    )
    rows = [row for row in ROWS if row["question_id"] in "abcd"]
    score = score_facts(QUESTIONS[:4], baseline, answer_table(rows))
    table = score.tables["frs"]
    assert table["entropy"].to_pylist() == pytest.approx([0, math.nan, math.nan, math.nan], nan_ok=True)
    assert table["frs_d1"].to_pylist() == pytest.approx([1, math.nan, math.nan, math.nan], nan_ok=True)
    assert table["breaking_temperature"].to_pylist() == [math.inf, 1.5, 0.5, 1.0]
    assert score.values["frs.count.undefined"].value == 3
    assert score.values["frs.d1"] == alone(1.0)


@pytest.fixture(scope="module")
def without_b():
    """The score of facts that were all swept although the greedy answer to b is wrong."""
    rows = [{**row, "correct": row["question_id"] != "b"} for row in BASELINE.to_pylist()]
    return score_facts(baseline=answer_table(rows))


def test_a_fact_that_is_not_known_has_no_frs_and_is_in_no_mean_of_t_b_or_h(without_b):
    expected = {
        "frs": (1 + 1 / 4 + 3 / 4) / 3,
        "frs.d1": (1 + 1 / 4 + 3 / 4) / 3,
        "frs.d2": (1 + 1 / 4 + 3 / 4) / 3,
        "frs.unbroken_share": 1 / 3,
        "frs.breaking_temperature.mean_broken": 0.75,
        "frs.breaking_temperature.median": 1.0,
        "frs.entropy.mean": 0.375,
        "frs.count.broken": 2.0,
        "frs.count.unbroken": 1.0,
        "frs.count.unknown": 1.0,
        "frs.count.undefined": 1.0,
    }
    assert figures(without_b, "frs.entropy_vs_breaking") == pytest.approx(expected, rel=1e-12)
    table = without_b.tables["frs"].to_pydict()
    assert table["known"] == [True, False, True, True, True]
    for name in ("entropy", "breaking_temperature", "frs_d1", "frs_d2"):
        assert math.isnan(table[name][1]), name
    assert without_b.of_questions["frs.entropy_vs_breaking.pearson_all"] == 3


def test_a_fact_without_a_verdict_on_its_greedy_answer_is_neither_known_nor_unknown_and_its_break_counts():
    missing = [{**row, "correct": None, "outcome": "error", "top_logprobs": None} for row in BASELINE.to_pylist()[1:2]]
    score = score_facts(baseline=answer_table([BASELINE.to_pylist()[0], *missing, *BASELINE.to_pylist()[3:]]))
    table = score.tables["frs"].to_pydict()
    assert table["known"] == [True, None, None, True, True]  # b failed, c was not asked
    assert table["breaking_temperature"][1:3] == [1.5, 0.5]
    counts = [score.values[f"frs.count.{name}"].value for name in ("broken", "unbroken", "unknown", "undefined")]
    assert counts == [3, 1, 0, 3]  # b and c have no entropy, e has no break
    assert present(score, QUESTIONS).presentation.claims == ["has lost at least half of the 5 facts by t = 1"]


def test_the_curve_of_a_fact_that_is_not_known_remains(without_b):
    whole = score_facts()
    assert without_b.curves["accuracy"] == whole.curves["accuracy"]
    assert without_b.tables["frs_accuracy"] == whole.tables["frs_accuracy"]
    survival = {t: estimate.value for t, estimate in without_b.curves["frs.survival"].items()}
    assert survival == pytest.approx({0.5: 2 / 3, 1.0: 1 / 3, 1.5: 1 / 3})


def test_the_sentences_are_of_the_facts_that_are_known(without_b):
    told = present(without_b, QUESTIONS).presentation
    assert told.sentence.startswith(
        "at rising temperatures. 4 of them are known: their mean Factual Robustness Score is 0.667 ("
    )
    assert told.claims == ["has lost at least half of the 4 known facts by t = 1"]


def test_an_undefined_frs_has_no_bounds_in_the_sentence():
    rows = [{**row, "top_logprobs": None} for row in BASELINE.to_pylist()]
    told = present(score_facts(baseline=answer_table(rows)), QUESTIONS).presentation
    assert "Score is undefined (d = 1, n = 0), and 25 % (2 % to 84 %, n = 4) of them never broke." in told.sentence


def test_where_no_fact_is_known_nothing_is_said_of_firmness():
    rows = [{**row, "correct": False} for row in BASELINE.to_pylist()]
    told = present(score_facts(baseline=answer_table(rows)), QUESTIONS).presentation
    assert (told.sentence, told.claims) == ("at rising temperatures. None of them is known, so there is no FRS.", [])


# FactualRobustness.score: the parts


HALF, EVEN = math.log(0.5), [math.log(0.5), math.log(0.5)]


@pytest.mark.parametrize(
    ("tokens", "counted", "options", "expected"),
    [
        # −2 · 1/8 · log2(1/8) = 3/4 of probabilities as they are
        ([[math.log(1 / 8)] * 8], 1, {"k": 2, "renormalize": False}, 0.75),
        ([[math.log(1 / 8)] * 8], 1, {"k": 2}, 1.0),
        ([[HALF, HALF, -math.inf], [0.0, -math.inf]], 2, {"k": 2}, 0.5),  # different numbers of log-probabilities
        ([EVEN, SURE, [0.0]], 3, {"k": 4}, 0.5 / 3),  # a vocabulary that is smaller than k
        ([[math.log(0.504)] * 2], 1, {"k": 2}, 1.0),  # in half precision they may sum to a little more than one
        ([SURE, [0.0]], 1, {"k": 2}, 0.0),  # the end token does not count
    ],
)
def test_initial_entropy_of_few_tokens(tokens, counted, options, expected):
    baseline = answer_table([answer("a", top_logprobs=tokens, answer_tokens=counted)])
    assert FactualRobustness(**options).initial_entropy(["a"], baseline) == pytest.approx([expected], rel=1e-6)


@pytest.mark.parametrize(
    ("logprobs", "k", "said"),
    [
        ([math.log(0.5), math.log(0.3)], 3, r"metric\.frs\.k=3.*question a has 2"),
        ([math.log(0.75), math.log(0.75), math.log(0.1)], 2, r"question a has .* sum to 1\.500, more than 1"),
    ],
)
def test_log_probabilities_that_are_too_few_or_of_one_token_twice_are_said_with_the_question(logprobs, k, said):
    baseline = answer_table([answer("a", top_logprobs=[logprobs], answer_tokens=1)])
    with pytest.raises(UserError, match=said):
        FactualRobustness(k=k).initial_entropy(["a"], baseline)


@pytest.mark.parametrize(("options", "breaking"), cases(__file__, "estimator_and_threshold_reach_the_score"))
def test_estimator_and_threshold_reach_the_score(options, breaking):
    found = score_facts(**options).tables["frs"]["breaking_temperature"].to_pylist()
    assert found == pytest.approx(breaking, nan_ok=True)


def alone(value):
    """The estimate of one question alone."""
    return value, *degenerate_interval(value, 1, SHARE)


def test_a_run_without_any_reply_is_undefined_and_counted():
    score = score_one([*trials("a", 0.2, None), *trials("a", 0.4, None)])
    counts = dict.fromkeys(["frs.count.broken", "frs.count.unbroken", "frs.count.unknown", "frs.entropy.mean"], 0.0)
    counts["frs.count.undefined"] = 1.0
    expected = dict.fromkeys(score.values, math.nan) | counts
    assert figures(score) == pytest.approx(expected, nan_ok=True)
    assert score.curves == {name: {0.2: UNKNOWN, 0.4: UNKNOWN} for name in ("accuracy", "frs.survival")}
    assert score.tables["frs_types"].num_rows == 0


def test_a_fact_without_replies_at_a_temperature_holds_up_to_it():
    first = [row for row in ROWS if (row["question_id"], row["temperature"]) != ("a", 1.0)]  # a, unbroken, is as good
    score = score_facts(graded=answer_table([*first, *trials("a", 1.0, None)]))
    # at risk 4, 3, 1 of which 1, 1, 1 break; without a it was 2/3, 1/3, 0
    survival = {t: estimate.value for t, estimate in score.curves["frs.survival"].items()}
    assert survival == pytest.approx({0.5: 3 / 4, 1.0: 3 / 8, 1.5: 0.0}, rel=1e-12)
    assert {score.n(f"frs.survival.t{t:g}") for t in survival} == {4}
    of_a = [score.by_question[f"frs.survival.t{t:g}"][score.question_ids.index("a")] for t in survival]
    assert of_a == pytest.approx([1.0, math.nan, math.nan], nan_ok=True)


def test_where_nothing_breaks_there_is_no_mean_breaking_temperature():
    score = score_one([*trials("a", 0.2, 4), *trials("a", 0.4, 4)])
    found = figures(score)
    assert found["frs.unbroken_share"] == 1.0
    assert found["frs.breaking_temperature.median"] == math.inf
    undefined = [name for name, value in found.items() if math.isnan(value)]
    assert undefined == [
        "frs.breaking_temperature.mean_broken",
        "frs.entropy_vs_breaking.pearson_broken",
        "frs.entropy_vs_breaking.pearson_all",
        "frs.entropy_vs_breaking.kendall",
    ]


# entropy_against_breaking


def test_the_correlations_of_very_sure_models_are_those_of_the_same_entropies_scaled():
    grid = np.array([0.5, 1.0, 1.5])
    entropy, breaking = np.array([0.1, 0.9, 0.3, 0.4]), np.array([np.inf, 0.5, 1.5, 1.0])
    plain = entropy_against_breaking(entropy, breaking, grid, None, seed=0)
    scaled = entropy_against_breaking(1e-6 * entropy, breaking, grid, None, seed=0)
    assert plain["frs.entropy_vs_breaking.pearson_all"].value == pytest.approx(
        stats.pearsonr(entropy, [2.0, 0.5, 1.5, 1.0]).statistic, rel=1e-12
    )
    for name, estimate in plain.items():
        assert scaled[name] == pytest.approx(estimate, rel=1e-9, nan_ok=True)
