import math

import numpy as np
import pyarrow as pa
import pytest

from robust_eval.metric.score import Estimate
from robust_eval.report.finished import FinishedRun
from robust_eval.report.scenarios import scenario_rows

NAN = math.nan
ABSTRACTIVE, CHOICE = "abstractive", "multiple_choice"


def run(figures, scenarios=None, groups=None, seed=0):
    """A run of these figures over as many questions."""
    n = len(next(iter(figures.values())))
    described = {
        "question_id": [f"q{place}" for place in range(n)],
        "question": [f"{place}?" for place in range(n)],
        "scenario": list(scenarios or [ABSTRACTIVE] * n),
        "type": [""] * n,
        "category": [""] * n,
        "group": list(groups or [""] * n),
        "kept": [True] * n,
    }
    columns = {name: np.asarray(values, dtype=float) for name, values in figures.items()}
    return FinishedRun({"seed": seed}, {name: Estimate(NAN) for name in columns}, pa.table(described | columns))


def found(runs, subjects=None, datasets=None):
    """Every row, with the value alone of each figure."""
    rows = scenario_rows(runs, subjects or ["small"] * len(runs), datasets or [f"set {i}" for i in range(len(runs))])
    return [(*row[:5], {name: estimate.value for name, estimate in row.figures.items()}) for row in rows]


def approximately(**figures):
    return pytest.approx({name.replace("_", "."): value for name, value in figures.items()}, nan_ok=True)


def test_one_data_set_has_no_mean_over_data_sets():
    values = {"greedy.accuracy": [1, 0, 1, 1], "frs.d1": [0.5, NAN, 0.75, 1.0]}
    assert found([run(values)]) == [
        ("small", ABSTRACTIVE, "set 0", "", 4, approximately(greedy_accuracy=0.75, frs_d1=0.75))
    ]


def test_avg_counts_data_sets_alike_and_wavg_the_questions_that_have_the_figure():
    facts = run({"greedy.accuracy": [1, 0, 1], "frs.d1": [0.2, 0.4, NAN]})
    physics = run({"greedy.accuracy": [1, 1, 1, 0, 0, 0], "frs.d1": [0.9, 0.7, 0.8, 0.6, NAN, NAN]})
    assert found([facts, physics], datasets=["facts", "physics"]) == [
        ("small", ABSTRACTIVE, "facts", "", 3, approximately(greedy_accuracy=2 / 3, frs_d1=0.3)),
        ("small", ABSTRACTIVE, "physics", "", 6, approximately(greedy_accuracy=1 / 2, frs_d1=0.75)),
        ("small", ABSTRACTIVE, "", "AVG", 9, approximately(greedy_accuracy=7 / 12, frs_d1=(0.3 + 0.75) / 2)),
        ("small", ABSTRACTIVE, "", "WAVG", 9, approximately(greedy_accuracy=5 / 9, frs_d1=(0.2 + 0.4 + 3.0) / 6)),
    ]


def test_data_sets_without_any_such_value_are_in_no_mean():
    runs = [
        run({"greedy.accuracy": [NAN, NAN], "frs.d1": [0.25, 0.75]}),
        run({"greedy.accuracy": [NAN, NAN], "frs.d1": [NAN, NAN]}),
        run({"greedy.accuracy": [NAN], "frs.d1": [0.8]}),
    ]
    assert [row[3:] for row in found(runs)] == [
        ("", 2, approximately(greedy_accuracy=NAN, frs_d1=0.5)),
        ("", 2, approximately(greedy_accuracy=NAN, frs_d1=NAN)),
        ("", 1, approximately(greedy_accuracy=NAN, frs_d1=0.8)),
        ("AVG", 5, approximately(greedy_accuracy=NAN, frs_d1=0.65)),
        ("WAVG", 5, approximately(greedy_accuracy=NAN, frs_d1=0.6)),
    ]


def test_a_mean_over_nothing_has_no_interval():
    rows = scenario_rows([run({"frs.d1": [NAN, NAN]})] * 2, ["small"] * 2, ["facts", "physics"])
    assert [row.kind for row in rows] == ["", "", "AVG", "WAVG"]
    for row in rows:
        np.testing.assert_array_equal(row.figures["frs.d1"], (NAN, NAN, NAN))


def test_figures_that_not_all_data_sets_have_are_in_no_mean():
    facts = run({"greedy.accuracy": [1, 0], "frs.d1": [0.5, 0.5], "accuracy.t0.5": [1, 0.5]})
    physics = run({"accuracy.t1": [0.5, 0.5], "greedy.accuracy": [1, 1], "accuracy.t0.5": [0, 0.5]})
    rows = found([facts, physics])
    assert [list(row[5]) for row in rows[:2]] == [
        ["greedy.accuracy", "frs.d1", "accuracy.t0.5"],
        ["accuracy.t1", "greedy.accuracy", "accuracy.t0.5"],
    ]
    assert [row[3:] for row in rows[2:]] == [
        ("AVG", 4, {"greedy.accuracy": 0.75, "accuracy.t0.5": 0.5}),
        ("WAVG", 4, {"greedy.accuracy": 0.75, "accuracy.t0.5": 0.5}),
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


def standard_error(values):
    return float(np.std(values) / math.sqrt(len(values)))


def test_the_intervals_of_both_means_are_those_of_independent_data_sets():
    generator = np.random.default_rng(7)
    facts, physics = generator.normal(0.5, 0.2, 400), generator.normal(0.7, 0.3, 100)
    rows = scenario_rows([run({"frs.d1": facts}), run({"frs.d1": physics})], ["small"] * 2, ["facts", "physics"])
    one, other = standard_error(facts), standard_error(physics)
    errors = [one, other, math.sqrt(one**2 + other**2) / 2, math.sqrt((0.8 * one) ** 2 + (0.2 * other) ** 2)]
    means = [
        facts.mean(),
        physics.mean(),
        (facts.mean() + physics.mean()) / 2,
        0.8 * facts.mean() + 0.2 * physics.mean(),
    ]
    for row, mean, error in zip(rows, means, errors, strict=True):
        value, low, high = row.figures["frs.d1"]
        assert value == pytest.approx(mean)
        assert (low - mean, high - mean) == pytest.approx((-1.96 * error, 1.96 * error), rel=0.1)


def test_data_sets_with_the_same_values_are_drawn_apart():
    values = np.random.default_rng(0).normal(0.5, 0.2, 200)  # drawn together, the mean would have the interval of one
    rows = scenario_rows([run({"frs.d1": values})] * 4, ["small"] * 4, list("abcd"))
    widths = {row.kind: row.figures["frs.d1"].high - row.figures["frs.d1"].low for row in rows}
    one = 2 * 1.96 * standard_error(values)
    assert widths == pytest.approx({"": one, "AVG": one / 2, "WAVG": one / 2}, rel=0.1)


def test_the_rows_of_the_total_are_drawn_apart_from_one_another():
    values = np.random.default_rng(0).normal(0.5, 0.2, 200)
    runs = [run({"frs.d1": values}), run({"frs.d1": values}, [CHOICE] * 200)]
    total = scenario_rows(runs, ["small"] * 2, ["facts", "physics"])[-1]
    assert (total.scenario, total.kind) == ("total", "WAVG")
    width = total.figures["frs.d1"].high - total.figures["frs.d1"].low
    assert width == pytest.approx(2 * 1.96 * standard_error(values) / math.sqrt(2), rel=0.1)


def test_questions_of_a_group_are_resampled_together():
    values, groups = {"greedy.accuracy": [1] * 10 + [0] * 10}, ["a"] * 10 + ["b"] * 10
    grouped, alone = run(values, groups=groups), run(values)
    (row,) = scenario_rows([grouped], ["small"], ["facts"])
    assert row.figures["greedy.accuracy"] == (0.5, 0, 1)
    (row,) = scenario_rows([alone], ["small"], ["facts"])
    assert row.figures["greedy.accuracy"] == pytest.approx((0.5, 0.28, 0.72), abs=0.04)
    both = scenario_rows([grouped, grouped], ["small"] * 2, ["facts", "physics"])[2]
    # each is 0, 1/2 or 1 with 1/4, 1/2, 1/4: their mean is 0 or 1 with 1/16 each
    assert (both.kind, both.figures["greedy.accuracy"]) == ("AVG", (0.5, 0, 1))


def test_the_groups_are_those_of_the_questions_of_the_scenario():
    scenarios, groups = [CHOICE, ABSTRACTIVE] * 10, ["x", "a"] * 5 + ["y", "b"] * 5
    values = [0.25, 1.0] * 5 + [0.75, 0.0] * 5
    rows = scenario_rows([run({"frs.d1": values}, scenarios, groups)], ["small"], ["facts"])
    assert [row.figures["frs.d1"] for row in rows[:2]] == [(0.5, 0, 1), (0.5, 0.25, 0.75)]


def test_the_interval_of_a_row_follows_the_seed_of_its_run():
    values = {"frs.d1": np.random.default_rng(0).normal(0.5, 0.2, 50)}
    first, again, other = (
        scenario_rows([run(values, seed=seed)], ["small"], ["facts"])[0].figures["frs.d1"] for seed in (0, 0, 1)
    )
    assert first == again
    assert (first.value, first.low != other.low) == (other.value, True)
