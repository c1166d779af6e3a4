import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from comparison_by_hand import run, with_answers
from scipy import stats

from robust_eval.metric.metric_spec import MetricSpec
from robust_eval.report.warnings import few
from robust_eval.rewriter.base import MODEL_REWRITES
from robust_eval.runs.comparison import compare
from robust_eval.runtime.parquet_files import read_parquet, write_parquet
from robust_eval.stats.interval import degenerate_interval, mean_bounds, paired_share_bounds
from robust_eval.stats.significance import LogRank
from robust_eval.stats.variance import variance_components

NAN, INF = math.nan, math.inf


def pairs(*runs):
    return compare(runs).pairs


def test_runs_are_compared_on_the_questions_that_both_kept():
    first = run(
        {"accuracy.greedy": [1, 1, 1, 0, 0], "frs.d1": [0.5, 0.75, 1.0, NAN, NAN]},
        kept=[1, 1, 1, 0, 0],
    )
    second = run(
        {"accuracy.greedy": [0, 1, 1, 1, 0], "frs.d1": [NAN, 0.25, 0.75, 0.875, NAN]},
        kept=[0, 1, 1, 1, 0],
        model__name="large",
    )
    (pair,) = pairs(first, second)
    assert pair[:4] == (0, 1, (3, 3), 2)
    assert list(pair.differences) == ["accuracy.greedy", "frs.d1"]
    assert pair.differences["accuracy.greedy"][:4] == (5, 0.6, 0.6, 0)
    assert pair.differences["frs.d1"] == (2, 0.875, 0.5, 0.375, *mean_bounds(np.array([0.5, 0.25]), (-1, 1)))
    assert pair.log_rank is None


def test_questions_are_found_wherever_they_stand():
    first = run({"frs.d1": [0.125, 0.25, 0.5, 1.0]}, ids="abcd")
    second = run({"frs.d1": [0.5, 0.25, 0.0]}, ids="dxa", kept=[1, 1, 0], model__name="large")
    (pair,) = pairs(first, second)
    assert (pair.kept, pair.shared) == ((4, 2), 1)
    # a: 1/8 − 0, d: 1 − 1/2
    assert pair.differences["frs.d1"] == (2, 0.5625, 0.25, 0.3125, *mean_bounds(np.array([0.125, 0.5]), (-1, 1)))


def test_questions_are_the_same_only_if_both_id_and_text_are():
    first = run({"frs.d1": [0.125, 0.25, 0.5]}, ids="abc", question=["A?", "B?", "C?"])
    second = run({"frs.d1": [0.0, 0.0, 0.0]}, ids="abd", question=["A?", "B!", "C?"], model__name="large")
    (pair,) = pairs(first, second)
    assert pair.shared == 1
    assert pair.differences["frs.d1"] == (1, 0.125, 0, 0.125, *degenerate_interval(0.125, 1, (-1, 1)))


def test_runs_without_a_common_question_make_no_pair():
    first = run({"frs.d1": [0.5, 0.25]}, ids="ab")
    other_ids = run({"frs.d1": [0.5, 0.75]}, ids="cd", dataset__name="physics")
    other_texts = run({"frs.d1": [0.5, 1.0]}, ids="ab", question=["1?", "2?"], dataset__name="passages")
    assert pairs(first, other_ids, other_texts) == []


def test_every_two_runs_are_compared_the_earlier_first():
    runs = [run({"frs.d1": [value]}, model__name=f"{value}") for value in (0.25, 0.5, 1.0)]
    assert [(pair.first, pair.second, pair.differences["frs.d1"].value) for pair in pairs(*runs)] == [
        (0, 1, -0.25),
        (0, 2, -0.75),
        (1, 2, -0.5),
    ]


def test_only_the_telling_figures_of_both_are_compared():
    first = run(
        {
            "accuracy.greedy": [1, 1],
            "frs.d1": [0.5, 0.5],
            "frs.d2": [0.5, 0.5],
            "frs.offgrid.d1": [0.5, 0.5],
            "frs.survival.t0.5": [1, 1],
            "accuracy.t0.5": [1, 1],
            "accuracy.t1": [0.5, 1],
            "accuracy.t1.5": [0.5, 1],
            "accuracy.t3": [0, 1],
        }
    )
    second = run(
        {
            "accuracy.greedy": [0, 1],
            "frs.d1": [0.25, 0.5],
            "frs.offgrid.d1": [0.5, 0.5],
            "accuracy.t0.5": [1, 0],
            "accuracy.t1": [0.5, 0],
            "accuracy.t1.5": [0.5, 1],
            "accuracy.t3": [0.5, 1],
        },
        model__name="large",
    )
    (pair,) = pairs(first, second)
    assert {name: difference.value for name, difference in pair.differences.items()} == {
        "accuracy.greedy": 0.5,
        "frs.d1": 0.125,
        "accuracy.t0.5": 0.5,
        "accuracy.t1": 0.5,
        "accuracy.t3": -0.25,
    }


def test_a_figure_that_no_common_question_has_is_undefined():
    first = run({"accuracy.greedy": [1, 0], "frs.d1": [0.5, NAN]}, kept=[1, 0])
    second = run({"accuracy.greedy": [1, 1], "frs.d1": [NAN, 0.5]}, kept=[0, 1], model__name="large")
    (pair,) = pairs(first, second)
    assert (pair.kept, pair.shared) == ((1, 1), 0)
    np.testing.assert_array_equal(pair.differences["frs.d1"], (0, *[NAN] * 5))


# Where a, b, c, … break, and what the curve says of it at 0.5, 2 and 10.
BREAKING = [0.5, 2.0, 10.0, INF, NAN]
SURVIVAL = {"frs.survival.t0.5": [0, 1, 1, 1, NAN], "frs.survival.t2": [0, 0, 1, 1, NAN]}
SURVIVAL |= {"frs.survival.t10": [0, 0, 0, 1, NAN]}


def survival(breaking, grid):
    """The survival columns of facts that break there."""
    where = np.asarray(breaking, dtype=float)
    return {f"frs.survival.t{t:g}": np.where(np.isnan(where), NAN, where > t) for t in grid}


@pytest.mark.parametrize("order", [1, -1])
def test_breaking_temperatures_are_read_off_the_survival_of_each_question(order):
    found, breaking = run(dict(list(SURVIVAL.items())[::order])).breaking_temperatures()
    assert found == [0.5, 2.0, 10.0]
    np.testing.assert_array_equal(breaking, BREAKING)


@pytest.mark.parametrize(
    ("declared", "name"), [("mine.held", "mine.held.t{:g}"), ("mine.held.step{}", "mine.held.step{:g}.t1")]
)
def test_where_facts_break_is_read_off_what_any_metric_declares_to_hold(declared, name):
    steps = [0.5, 2.0, 10.0]
    figures = {name.format(step): column for step, column in zip(steps, SURVIVAL.values(), strict=True)}
    held = MetricSpec(declared, "held", is_survival=True)
    found, breaking = replace(run(figures), specs=[held]).breaking_temperatures()
    assert found == steps
    np.testing.assert_array_equal(breaking, BREAKING)
    silent = replace(run(figures), specs=[replace(held, is_survival=False)])
    assert silent.breaking_temperatures()[0] == []


def test_the_log_rank_test_takes_the_questions_of_both_wherever_they_stand():
    first = run(survival([0.5, 1.0, INF], [0.5, 1.0]), ids="abc")
    second = run(survival([0.5, INF, 0.5, 1.0], [0.5, 1.0]), ids="cxba", model__name="large")
    (pair,) = pairs(first, second)  # a breaks earlier in the first, b and c in the second
    assert pair.log_rank == LogRank(3, 1, 2, pytest.approx(1 / 3), pytest.approx(stats.chi2.sf(1 / 3, 1)))


@pytest.mark.parametrize("other", [{}, survival([0.5, 1.0], [0.5, 1.0, 1.5]), survival([0.5, 2.0], [0.5, 2.0])])
def test_breaking_temperatures_of_other_grids_are_not_tested(other):
    first = run({"accuracy.greedy": [1, 1], **survival([0.5, 1.0], [0.5, 1.0])})
    second = run({"accuracy.greedy": [1, 0], **other}, model__name="large")
    (pair,) = pairs(first, second)
    assert pair.log_rank is None
    assert pair.differences["accuracy.greedy"].value == 0.5


def test_the_groups_are_those_of_the_common_questions():
    # of the first run's groups, a (difference 1) and c (difference 0) are shared, in another order
    first = run({"frs.d1": [0, 1, 0, 0, 1, 0]}, ids="pqrstu", group=["b", "a", "b", "c", "a", "c"])
    second = run({"frs.d1": [0, 0, 0, 0]}, ids="utsq", group=["c", "a", "c", "a"], model__name="large")
    (pair,) = pairs(first, second)
    expected = paired_share_bounds(np.array([1.0, 1.0, 0.0, 0.0]), ["a", "a", "c", "c"])
    assert pair.differences["frs.d1"] == (4, 0.5, 0, 0.5, *expected)


def test_the_log_rank_test_sums_the_questions_of_a_group_first():
    grid, groups = [0.2, 0.4, 0.6], list("aaabbc")
    first = run(survival([0.2, 0.2, 0.6, 0.2, 0.2, 0.6], grid), group=groups)
    second = run(survival([0.4] * 6, grid), group=groups, model__name="large")
    (pair,) = pairs(first, second)  # a +1 +1 −1, b +1 +1, c −1: (1 + 2 − 1)² / (1 + 4 + 1)
    assert pair.log_rank == LogRank(6, 4, 2, pytest.approx(4 / 6), pytest.approx(stats.chi2.sf(4 / 6, 1)))


def test_runs_that_differ_in_d_alone_are_one_measurement():
    shared = {"accuracy.greedy": [1, 0]}
    runs = [
        run({"frs.d1": [0.5, NAN], **shared}),
        run({"frs.d5": [0.25, NAN], **shared}, metric__frs__d=5),
        run({"frs.d1": [0.75, NAN], **shared}, model__name="large"),
        run({"frs.d5": [0.5, NAN], **shared}, model__name="large", metric__frs__d=5),
    ]
    compared = compare(runs)
    assert [one is other for one, other in zip(compared.runs, runs, strict=True)] == [True] * 4
    assert compared.labels == ["small (d=1)", "small (d=5)", "large (d=1)", "large (d=5)"]
    assert compared.repetitions == 0
    assert compared.measurement_labels.full == ["small", "large"]
    assert [list(one.scores()) for one in compared.measurements] == [[1.0, 5.0], [1.0, 5.0]]
    (pair,) = compared.pairs
    assert {name: difference.value for name, difference in pair.differences.items()} == {
        "frs.d1": -0.25,
        "accuracy.greedy": 0,
        "frs.d5": -0.25,
    }


def test_repetitions_are_counted_and_left_out():
    first, again = run({"frs.d1": [0.5, 0.25]}), run({"frs.d1": [0.5, 0.25]}, paths__mlruns="/n")
    large = run({"frs.d1": [0.5, 0.75]}, model__name="large")
    compared = compare([first, again, large, first])
    assert [one is other for one, other in zip(compared.runs, [first, large], strict=True)] == [True, True]
    assert (compared.repetitions, compared.labels, len(compared.pairs)) == (2, ["small", "large"], 1)


def test_measurements_are_found_by_data_set_and_subject():
    runs = [
        run({"frs.d1": [0.5]}),
        run({"frs.d1": [0.25]}, ids="x", dataset__name="physics"),
        run({"frs.d1": [0.75]}, model__name="large"),
    ]
    compared = compare(runs)
    assert [(name, runs.index(one)) for name, one in compared.on("facts")] == [("small", 0), ("large", 2)]
    assert [(name, runs.index(one)) for name, one in compared.on("facts", "large")] == [("large", 2)]
    assert compared.on("physics", "large") == []


DRAWN = np.random.default_rng(0).random((2, 6, 3, 2)) < 0.5


def variance(folder, *changed):
    """The variance of the difference between two models with drawn answers, the second as ``changed`` says."""
    runs = [run({"frs.d1": [0.5] * 6}, model__name=name) for name in ("small", "large")]
    drawn = zip(runs, DRAWN, strict=True)
    runs = [with_answers(each, folder / each.settings["model.name"], right) for each, right in drawn]
    for change in changed:
        runs[1] = change(runs[1])
    (pair,) = pairs(*runs)
    return pair.variance


def without_answers(found):
    """The run with an empty table of graded answers."""
    write_parquet(read_parquet(found.graded).slice(0, 0), found.graded)
    return found


def test_the_variance_of_a_difference_is_that_of_answers_to_the_same_question_rewrite_and_trial(tmp_path):
    question, rewrite, _ = (each.ravel() for each in np.indices(DRAWN.shape[1:]))
    found = variance(tmp_path)
    assert [*found.components] == [*variance_components((DRAWN[0] * 1.0 - DRAWN[1]).ravel(), question, rewrite)]


@pytest.mark.parametrize(
    "change",
    [
        lambda each: replace(each, graded=None),
        lambda each: replace(each, settings=each.settings | {"sampler.perturbation.early_stop": True}),
        lambda each: replace(each, settings=each.settings | {"rewriter.file": "other.jsonl"}),
        lambda each: replace(each, settings=each.settings | {"model.generation.top_p": 0.9}),
        lambda each: with_answers(each, each.graded.parent / "warm", DRAWN[1], temperature=1.5),
        lambda each: with_answers(each, each.graded.parent / "shown", DRAWN[1], form="choices BA"),
        lambda each: with_answers(each, each.graded.parent / "same", DRAWN[0]),
        without_answers,
    ],
    ids=[
        "no answers",
        "early stopping",
        "other rewrites",
        "truncated",
        "other temperature",
        "other forms",
        "equal",
        "none kept",
    ],
)
def test_answers_that_cannot_be_paired_or_do_not_differ_have_no_variance(change, tmp_path):
    assert variance(tmp_path, change) is None


def test_rewrites_by_a_model_are_paired_if_their_texts_are_the_same(tmp_path):
    def rewritten(text):
        def write(each):
            for folder, words in (("small", "A, then?"), ("large", text)):
                fates = [{"question_id": "a", "question": "a?", "attempt": 0, "text": words, "fate": "kept"}]
                fates.append(fates[0] | {"text": folder, "fate": "echo"})
                write_parquet(
                    pa.Table.from_pylist(fates, MODEL_REWRITES), each.graded.parents[1] / folder / "rewrites.parquet"
                )
            return each

        return write

    assert variance(tmp_path / "same", rewritten("A, then?")) is not None
    assert variance(tmp_path / "other", rewritten("And a?")) is None


def test_of_three_runs_no_difference_has_its_variance(tmp_path):
    runs = [run({"frs.d1": [0.5] * 6}, model__name=name) for name in "xyz"]
    answered = [with_answers(each, tmp_path / str(n), DRAWN[n % 2]) for n, each in enumerate(runs)]
    assert [pair.variance for pair in pairs(*answered)] == [None] * 3


def test_few_questions_are_warned_of_as_independent_ones():
    def warning(n, group=None, kept=None):
        ids = [f"q{row}" for row in range(n)]
        compared = compare([run({"frs.d1": np.linspace(0, 1, n)}, ids=ids, kept=kept, group=group)])
        return few(*compared.smallest_sample)

    assert warning(30) == ""
    assert "rest on only 29 questions:" in warning(29)
    assert "rest on only 8 groups of questions:" in warning(40, group=[f"g{row // 5}" for row in range(40)])
    assert "rest on only 10 questions:" in warning(40, kept=[row < 10 for row in range(40)])
    ids = {name: [f"q{row}" for row in range(start, start + 40)] for name, start in (("small", 0), ("large", 28))}
    compared = compare(
        [run({"frs.d1": np.linspace(0, 1, 40)}, ids=each, model__name=name) for name, each in ids.items()]
    )
    assert compared.smallest_sample == (12, False)
