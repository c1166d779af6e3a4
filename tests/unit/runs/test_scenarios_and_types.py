import math
from typing import NamedTuple

import numpy as np
import pytest
from comparison_by_hand import run as by_hand
from scipy import stats

from robust_eval.metric.frs_tables import type_shares
from robust_eval.runs.scenarios_and_types import PooledTypes, pooled_types, scenario_frame, weighted_mean
from robust_eval.stats.estimate import Estimate
from robust_eval.stats.interval import SHARE, degenerate_interval, mean_bounds

NAN = math.nan
ABSTRACTIVE, CHOICE = "abstractive", "multiple_choice"


def run(figures, scenarios=None, groups=None, types=None, seed=0, **single):
    """A run of these figures by question, and of single ones, in which two underscores stand for a dot."""
    found = dict.fromkeys(figures, (NAN,)) | {name.replace("__", "."): values for name, values in single.items()}
    return by_hand(figures, found, scenario=scenarios, group=groups, type=types, seed=seed)


class Row(NamedTuple):
    """The metrics of a row of the table by scenario."""

    subject: str
    scenario: str
    dataset: str
    kind: str
    questions: int
    metrics: dict[str, Estimate]


def rows_of(frame):
    return [
        Row(*place, {each.metric: Estimate(each.value, each.low, each.high) for each in rows.itertuples()})
        for place, of_place in frame.groupby(["subject", "scenario", "dataset", "kind", "questions"], sort=False)
        for rows in [of_place[of_place["metric"] != ""]]
    ]


def scenario_rows(runs, subjects, datasets):
    return rows_of(scenario_frame(runs, subjects, datasets))


def found(runs, subjects=None, datasets=None):
    """Every row, with the value alone of each figure."""
    rows = scenario_rows(runs, subjects or ["small"] * len(runs), datasets or [f"set {i}" for i in range(len(runs))])
    return [(*row[:5], {name: estimate.value for name, estimate in row.metrics.items()}) for row in rows]


def approximately(**figures):
    return pytest.approx({name.replace("_", "."): value for name, value in figures.items()}, nan_ok=True)


def test_one_data_set_has_no_mean_over_data_sets():
    values = {"accuracy.greedy": [1, 0, 1, 1], "frs.d1": [0.5, NAN, 0.75, 1.0]}
    assert found([run(values)]) == [
        ("small", ABSTRACTIVE, "set 0", "", 4, approximately(accuracy_greedy=0.75, frs_d1=0.75))
    ]


def test_avg_counts_data_sets_alike_and_wavg_the_questions_that_have_the_figure():
    facts = run({"accuracy.greedy": [1, 0, 1], "frs.d1": [0.2, 0.4, NAN]})
    physics = run({"accuracy.greedy": [1, 1, 1, 0, 0, 0], "frs.d1": [0.9, 0.7, 0.8, 0.6, NAN, NAN]})
    assert found([facts, physics], datasets=["facts", "physics"]) == [
        ("small", ABSTRACTIVE, "facts", "", 3, approximately(accuracy_greedy=2 / 3, frs_d1=0.3)),
        ("small", ABSTRACTIVE, "physics", "", 6, approximately(accuracy_greedy=1 / 2, frs_d1=0.75)),
        ("small", ABSTRACTIVE, "", "AVG", 9, approximately(accuracy_greedy=7 / 12, frs_d1=(0.3 + 0.75) / 2)),
        ("small", ABSTRACTIVE, "", "WAVG", 9, approximately(accuracy_greedy=5 / 9, frs_d1=(0.2 + 0.4 + 3.0) / 6)),
    ]


def test_data_sets_without_any_such_value_are_in_no_mean():
    runs = [
        run({"accuracy.greedy": [NAN, NAN], "frs.d1": [0.25, 0.75]}),
        run({"accuracy.greedy": [NAN, NAN], "frs.d1": [NAN, NAN]}),
        run({"accuracy.greedy": [NAN], "frs.d1": [0.8]}),
    ]
    assert [row[3:] for row in found(runs)] == [
        ("", 2, approximately(accuracy_greedy=NAN, frs_d1=0.5)),
        ("", 2, approximately(accuracy_greedy=NAN, frs_d1=NAN)),
        ("", 1, approximately(accuracy_greedy=NAN, frs_d1=0.8)),
        ("AVG", 5, approximately(accuracy_greedy=NAN, frs_d1=0.65)),
        ("WAVG", 5, approximately(accuracy_greedy=NAN, frs_d1=0.6)),
    ]


def test_figures_that_not_all_data_sets_have_are_in_no_mean():
    facts = run({"accuracy.greedy": [1, 0], "frs.d1": [0.5, 0.5], "accuracy.t0.5": [1, 0.5]})
    physics = run({"accuracy.t1": [0.5, 0.5], "accuracy.greedy": [1, 1], "accuracy.t0.5": [0, 0.5]})
    rows = found([facts, physics])
    assert [list(row[5]) for row in rows[:2]] == [
        ["accuracy.greedy", "frs.d1", "accuracy.t0.5"],
        ["accuracy.t1", "accuracy.greedy", "accuracy.t0.5"],
    ]
    assert [row[3:] for row in rows[2:]] == [
        ("AVG", 4, {"accuracy.greedy": 0.75, "accuracy.t0.5": 0.5}),
        ("WAVG", 4, {"accuracy.greedy": 0.75, "accuracy.t0.5": 0.5}),
    ]


def test_the_total_is_over_all_rows_and_not_over_scenarios():
    facts = run({"frs.d1": [0.0, 1.0]})
    mixed = run({"frs.d1": [0.8, 1.0, 0.6, NAN]}, [CHOICE, ABSTRACTIVE, ABSTRACTIVE, CHOICE])
    passages = run({"frs.d1": [0.5] * 5})
    assert found([facts, mixed, passages], datasets=["facts", "mixed", "passages"]) == [
        ("small", ABSTRACTIVE, "facts", "", 2, approximately(frs_d1=0.5)),
        ("small", ABSTRACTIVE, "mixed", "", 2, approximately(frs_d1=0.8)),
        ("small", ABSTRACTIVE, "passages", "", 5, approximately(frs_d1=0.5)),
        ("small", ABSTRACTIVE, "", "AVG", 9, approximately(frs_d1=(0.5 + 0.8 + 0.5) / 3)),
        ("small", ABSTRACTIVE, "", "WAVG", 9, approximately(frs_d1=(1.0 + 1.6 + 2.5) / 9)),
        ("small", CHOICE, "mixed", "", 2, approximately(frs_d1=0.8)),
        ("small", "total", "", "AVG", 11, approximately(frs_d1=(0.5 + 0.8 + 0.5 + 0.8) / 4)),
        ("small", "total", "", "WAVG", 11, approximately(frs_d1=(1.0 + 1.6 + 2.5 + 0.8) / 10)),
    ]


def test_subjects_do_not_mix():
    runs = [run({"frs.d1": [value, value]}) for value in (0.25, 0.5, 0.75, 1.0)]
    rows = found(runs, ["small", "large", "small", "tiny"], ["facts", "facts", "physics", "facts"])
    assert [(*row[:4], row[5]["frs.d1"]) for row in rows] == [
        ("small", ABSTRACTIVE, "facts", "", 0.25),
        ("small", ABSTRACTIVE, "physics", "", 0.75),
        ("small", ABSTRACTIVE, "", "AVG", 0.5),
        ("small", ABSTRACTIVE, "", "WAVG", 0.5),
        ("large", ABSTRACTIVE, "facts", "", 0.5),
        ("tiny", ABSTRACTIVE, "facts", "", 1.0),
    ]


def test_the_groups_are_those_of_the_questions_of_the_scenario():
    scenarios, groups = [CHOICE, ABSTRACTIVE] * 10, ["x", "a"] * 5 + ["y", "b"] * 5
    values = [0.25, 1.0] * 5 + [0.75, 0.0] * 5
    rows = scenario_rows([run({"frs.d1": values}, scenarios, groups)], ["small"], ["facts"])
    own = [(values[start::2], groups[start::2]) for start in (1, 0)]
    expected = [(0.5, *mean_bounds(np.array(each), SHARE, labels)) for each, labels in own]
    assert [row.metrics["frs.d1"] for row in rows[:2]] == expected


def test_rows_and_means_of_facts_that_are_all_alike_have_intervals():
    rows = scenario_rows([run({"frs.unbroken_share": [0] * n}) for n in (40, 160)], ["small"] * 2, ["facts", "physics"])
    facts, physics = (1 - 0.025 ** (1 / n) for n in (40, 160))
    assert {(row.dataset, row.kind): row.metrics["frs.unbroken_share"] for row in rows} == {
        ("facts", ""): pytest.approx((0, 0, facts)),
        ("physics", ""): pytest.approx((0, 0, physics)),
        ("", "AVG"): pytest.approx((0, 0, math.hypot(facts, physics) / 2)),
        ("", "WAVG"): pytest.approx((0, 0, math.hypot(0.2 * facts, 0.8 * physics))),
    }


def test_kappa_and_alpha_are_those_of_the_run_and_their_means_are_weighted_by_the_questions_that_have_them():
    t = {"agreement.accuracy.t1": [1, 0, 1, 1]}
    one = run(t, agreement__kappa__t1=(0.6, 0.5, 0.8), agreement__alpha__t1=(0.9, 0.5, 0.95))
    other = run(
        {"agreement.accuracy.t1": [1, 0] * 4},
        agreement__kappa__t1=(0.2, 0.0, 0.3),
        agreement__alpha__t1=(0.1, -0.3, 0.5),
        agreement__count__unrated__t1=(2,),
        agreement__count__incomplete__t1=(4,),
    )
    rows = scenario_rows([one, other], ["small"] * 2, ["facts", "physics"])
    shown = ["agreement.accuracy.t1", "agreement.kappa.t1", "agreement.alpha.t1"]
    assert [list(row.metrics) for row in rows] == [shown] * 4
    assert [tuple(row.metrics[name] for name in shown[1:]) for row in rows] == [
        ((0.6, 0.5, 0.8), (0.9, 0.5, 0.95)),
        ((0.2, 0.0, 0.3), (0.1, -0.3, 0.5)),
        (pytest.approx((0.4, 0.25, 0.55)), pytest.approx((0.5, 0.1, 0.725))),
        # 4 and 6 questions have raters that can agree, 4 and 4 all raters
        (pytest.approx((0.36, 0.2, 0.5)), pytest.approx((0.5, 0.1, 0.725))),
    ]


def test_kappa_of_a_scenario_is_its_own_where_a_run_holds_several():
    mixed = run(
        {"agreement.accuracy.t1": [1, 0, 1]},
        [CHOICE, ABSTRACTIVE, ABSTRACTIVE],
        agreement__kappa__t1=(0.5, 0.4, 0.6),
        agreement__kappa__abstractive__t1=(0.25, 0.0, 0.5),
        agreement__kappa__multiple_choice__t1=(NAN,),
    )
    rows = scenario_rows([mixed, run({"agreement.accuracy.t1": [1]}, agreement__kappa__t1=(0.75,))], ["s"] * 2, "ab")
    assert [(row.scenario, row.kind, row.metrics["agreement.kappa.t1"].value) for row in rows] == [
        (ABSTRACTIVE, "", 0.25),
        (ABSTRACTIVE, "", 0.75),
        (ABSTRACTIVE, "AVG", 0.5),
        (ABSTRACTIVE, "WAVG", pytest.approx((2 * 0.25 + 0.75) / 3)),
        (CHOICE, "", pytest.approx(NAN, nan_ok=True)),
        ("total", "AVG", 0.5),  # undefined ones are in no mean
        ("total", "WAVG", pytest.approx((2 * 0.25 + 0.75) / 3)),
    ]
    assert math.isnan(rows[2].metrics["agreement.kappa.t1"].low)  # one part has no interval


@pytest.mark.parametrize("alphas", [(0.9, 0.3, -0.2), (0.9, 0.9, 0.9)])
@pytest.mark.parametrize("weights", [(1, 1, 1), (8, 1, 3)])
def test_intervals_of_means_of_alpha_cover_at_least_as_often_as_they_say(weights, alphas):
    """By Feldt's law of α, without any answers: the means over three data sets of different size."""
    generator = np.random.default_rng(5)
    sizes, raters, repeated = (30, 200, 12), 6, 300
    share = np.array(weights) / sum(weights)
    covered = 0
    for _ in range(repeated):
        parts = []
        for alpha, n in zip(alphas, sizes, strict=True):
            freedom = raters - 1, (raters - 1) * (n - 1)
            seen = 1 - (1 - alpha) / generator.f(*freedom)
            ends = (1 - (1 - seen) * stats.f.isf(tail, *freedom) for tail in (0.025, 0.975))
            parts.append(Estimate(seen, *ends))
        mean = weighted_mean(parts, weights)
        covered += mean.low <= share @ alphas <= mean.high
    assert covered / repeated >= 0.95 - 2 * math.sqrt(0.95 * 0.05 / repeated)


@pytest.mark.parametrize("differing", [(0.01, 0.001), (0.1, 0.0), (0.08, 0.02)])
def test_intervals_of_means_of_facts_that_may_all_be_alike_cover_as_often_as_they_say(differing):
    generator = np.random.default_rng(6)
    sizes, repeated, missed = (30, 120), 2000, 0
    for _ in range(repeated):
        found = [generator.binomial(n, p) for n, p in zip(sizes, differing, strict=True)]
        if not any(found):
            parts = [Estimate(0.0, *degenerate_interval(0.0, n, SHARE)) for n in sizes]
            mean = weighted_mean(parts, [1.0, 1.0])
            missed += not mean.low <= sum(differing) / 2 <= mean.high
    assert missed <= 0.025 * repeated


def typed_run(types, groups=None, seed=0, **scores):
    """A run whose questions have these types, and these scores: d1=[…] is the FRS for d = 1."""
    figures = {f"frs.{d}": values for d, values in scores.items()} or {"accuracy.greedy": [1] * len(types)}
    return run(figures, groups=groups, types=types, seed=seed)


FACTS = typed_run(["HUM", "LOC", "LOC"], d1=[0.2, 0.4, 0.9], d5=[0.1, 0.2, 0.3])
PHYSICS = typed_run(["NUM", "", "NUM"], d1=[0.3, NAN, 1.0], d5=[0.1, NAN, 0.3])


def test_the_types_of_a_subject_are_pooled_over_its_data_sets():
    found = pooled_types([FACTS, FACTS, PHYSICS], ["small", "large", "small"], ["facts", "facts", "physics"])
    both = np.array([0.2, 0.4, 0.9, 0.3, NAN, 1.0])
    assert found == [
        PooledTypes(
            "small", ["facts", "physics"], "frs.d1", type_shares(both, ["HUM", "LOC", "LOC", "NUM", "", "NUM"])
        ),
        PooledTypes("large", ["facts"], "frs.d1", type_shares(both[:3], ["HUM", "LOC", "LOC"])),
    ]


def test_all_subjects_are_ranked_by_the_smallest_d_that_they_share():
    other = typed_run(["HUM", "LOC"], d5=[0.5, 0.1], d10=[0.4, 0.1])
    found = pooled_types([FACTS, other], ["small", "large"], ["facts"] * 2)
    assert [(pooled.subject, pooled.score) for pooled in found] == [("small", "frs.d5"), ("large", "frs.d5")]
    assert found[1].shares == type_shares(np.array([0.5, 0.1]), ["HUM", "LOC"])


def test_where_no_d_is_shared_nothing_is_said():
    assert pooled_types([FACTS, typed_run(["HUM"], d10=[0.5])], ["small", "large"], ["facts"] * 2) == []


def test_questions_without_types_and_runs_without_scores_have_no_shares():
    assert (
        pooled_types([typed_run(["", ""], d1=[0.5, 1.0]), typed_run(["HUM"])], ["small", "large"], ["facts"] * 2) == []
    )
    assert pooled_types([], [], []) == []


def test_groups_are_those_of_their_data_set():
    first = typed_run(["HUM", "LOC"], groups=["p", "p"], d1=[0.2, 0.4])
    second = typed_run(["HUM", "LOC"], groups=["p", ""], d1=[0.3, 0.5])
    (pooled,) = pooled_types([first, PHYSICS, second], ["small"] * 3, ["a", "b", "c"])
    groups = ["a p", "a p", "b 0", "b 1", "b 2", "c p", "c question"]
    scores = np.array([0.2, 0.4, 0.3, NAN, 1.0, 0.3, 0.5])
    types = ["HUM", "LOC", "NUM", "", "NUM", "HUM", "LOC"]
    # which labels groups have does not matter, only their order
    assert pooled.shares == type_shares(scores, types, groups=groups)


def test_the_interval_follows_the_seed_of_the_run():
    scores, types = np.random.default_rng(0).random(40), ["HUM", "LOC"] * 20
    (pooled,) = pooled_types([typed_run(types, seed=3, d1=scores)], ["small"], ["facts"])
    assert pooled.shares == type_shares(scores, types, seed=3)
