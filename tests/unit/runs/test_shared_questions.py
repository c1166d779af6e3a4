import math

import numpy as np
import pytest
from comparison_by_hand import run as by_hand

from robust_eval.runs.comparison import compare
from robust_eval.runs.finished_runs import GreedyAnswer

NAN, INF = math.nan, math.inf


def run(model, figures, ids, kept=None, texts=None, greedy=None, **changed):
    answers = {
        name: GreedyAnswer(text, "right" if text[:1] == name.upper() else "wrong")
        for name, text in (greedy or {}).items()
    }
    return by_hand(figures, None, answers, ids=ids, kept=kept, question=texts, model__name=model, **changed)


def shared(*runs):
    return compare(runs).shared


def only(*runs):
    (found,) = shared(*runs)
    return found


# a, b, c, d are asked by both in other orders, x and y by one alone.
SMALL = run(
    "small",
    {"frs.d1": [0.5, NAN, 0.75, 1.0, 1.0], "frs.survival.t1": [0, NAN, 1, 1, 1], "frs.survival.t2": [0, NAN, 0, 1, 1]},
    "abcdx",
    kept=[1, 0, 1, 1, 1],
    greedy={"a": "A1", "b": "B1", "c": "", "d": "D1", "x": "X1"},
)
LARGE = run(
    "large",
    {
        "frs.d1": [0.25, 0.5, 0.25, NAN, 0.75],
        "frs.survival.t1": [1, 1, 0, NAN, 1],
        "frs.survival.t2": [0, 1, 0, NAN, 1],
    },
    "dybac",
    kept=[1, 1, 1, 0, 1],
)


def test_the_values_of_shared_questions_stand_beside_one_another():
    found = only(SMALL, LARGE)
    assert (found.dataset, found.measured) == ("facts", ["small", "large"])
    assert (found.ids, found.texts) == (list("abcd"), ["a?", "b?", "c?", "d?"])
    np.testing.assert_array_equal(found.kept, [[1, 0], [0, 1], [1, 1], [1, 1]])
    np.testing.assert_array_equal(found.breaking, [[1, NAN], [NAN, 1], [2, INF], [INF, 2]])
    assert list(found.metrics) == ["frs.d1"]
    np.testing.assert_array_equal(found.metrics["frs.d1"], [[0.5, NAN], [NAN, 0.25], [0.75, 0.75], [1, 0.25]])
    np.testing.assert_array_equal(found.ranges["frs.d1"], [NAN, NAN, 0, 0.75])
    assert found.answers.tolist() == [["A1", None], ["B1", None], ["", None], ["D1", None]]


def test_without_a_score_they_come_in_the_order_in_which_they_were_asked():
    one = run("small", {"accuracy.greedy": [1, 1, 1]}, "abc", kept=[0, 1, 0])
    other = run("large", {"accuracy.greedy": [1, 1, 1]}, "abc", kept=[0, 0, 1])
    assert only(one, other).disputed(25).tolist() == [1, 2]


def test_values_that_are_shown_alike_do_not_differ():
    """By rounding (0.1 + 0.2), by what was computed beside them (1e-5), and by what 0.000 shows."""
    one = run("small", {"frs.d1": [0.3, 0.5, 0.5, 0.5, 0.5]}, "abcde")
    other = run("large", {"frs.d1": [0.1 + 0.2, 0.50001, 0.5004, 0.5006, 0.25]}, "abcde")
    found = only(one, other)
    assert found.differs("frs.d1").tolist() == [False, False, False, True, True]
    assert found.differing("frs.d1", 25).tolist() == [4, 3]


def test_ties_of_other_figures_go_to_the_one_that_belongs_to_them():
    names = ("agreement.difficulty.t1", "agreement.worst.t1", "certainty.entropy.t1", "certainty.error_rate.t1")
    one = run(
        "small", dict(zip(names, ([0.5, 0.5, 1.0], [0, 0, 1], [1.0, 1.0, 0.5], [0.5, 0.5, 0.0]), strict=True)), "abc"
    )
    other = run(
        "large",
        dict(zip(names, ([0.25, 0.75, 0.75], [0, 0, 0], [0.5, 0.5, 0.0], [0.5, 0.75, 0.5]), strict=True)),
        "abc",
    )
    found = only(one, other)
    assert list(found.metrics) == list(names)
    assert [found.differing(name, 25).tolist() for name in names] == [[2, 0, 1], [2], [2, 1, 0], [2, 1]]


def test_the_figures_are_those_of_the_common_weight_and_of_the_common_temperature_nearest_to_one():
    one = {"frs.d5": [0.5], "frs.d2": [0.5], "frs.d1": [0.5]}
    one |= {f"certainty.entropy.t{t}": [t] for t in (0.5, 1.0, 1.5)}
    other = {"frs.d1": [0.25], "frs.d2": [0.125], "certainty.entropy.t1.5": [1.25], "certainty.entropy.t0.1": [1.0]}
    one = {name.replace(".t1.0", ".t1"): values for name, values in one.items()}
    found = only(run("small", one, "a"), run("large", other, "a"))
    assert {name: values.tolist() for name, values in found.metrics.items()} == {
        "frs.d2": [[0.5, 0.125]],
        "certainty.entropy.t1.5": [[1.5, 1.25]],
    }


def test_a_figure_of_one_measurement_alone_is_not_compared():
    scored, asked = run("small", {"frs.d1": [0.5]}, "a"), run("large", {"certainty.entropy.t1": [0.5]}, "a")
    assert only(scored, asked).metrics == {}


def test_the_same_id_with_another_text_is_another_question():
    one = run("small", {"frs.d1": [0.5, 0.5]}, "ab", greedy={"a": "A", "b": "B"})
    other = run("large", {"frs.d1": [0.25, 0.25]}, "ab", texts=["a?", "c?"])
    third = run("third", {"frs.d1": [0.25]}, "b", texts=["c?"], greedy={"b": "C"})
    found = only(one, other, third)
    assert (found.ids, found.texts) == (["a", "b"], ["a?", "c?"])
    np.testing.assert_array_equal(found.metrics["frs.d1"], [[0.5, 0.25, NAN], [NAN, 0.25, 0.25]])
    assert found.answers.tolist() == [["A", None, None], [None, None, "C"]]
    assert found.verdicts.tolist() == [["right", None, None], [None, None, "wrong"]]


def test_runs_that_share_no_question_are_not_beside_one_another():
    facts = [run(name, {"frs.d1": [0.5]}, "a") for name in ("small", "large")]
    physics = [run(name, {"frs.d1": [0.5]}, "p", dataset__name="physics") for name in ("small", "large")]
    alone = run("small", {"frs.d1": [0.5]}, "z", dataset__name="passages")
    found = shared(facts[0], physics[0], alone, facts[1], physics[1])
    assert [(each.dataset, each.measured, each.ids) for each in found] == [
        ("facts", ["small", "large"], ["a"]),
        ("physics", ["small", "large"], ["p"]),
    ]


def test_parts_of_a_data_set_share_their_questions():
    few = run("small", {"frs.d1": [0.5]}, "a", dataset__limit=1)
    more = run("small", {"frs.d1": [0.25, 0.5]}, "ab", dataset__limit=2)
    found = only(few, more)
    assert found.dataset == "facts (limit 1) and facts (limit 2)"
    assert found.measured == ["small on facts (limit 1)", "small on facts (limit 2)"]
    assert found.ids == ["a"]


def test_every_value_is_in_the_table_for_programs():
    table = only(SMALL, LARGE).as_data()
    expected = [
        ("a", "small", "A1", "right", True, True, 1.0, 0.5, NAN),
        ("a", "large", None, None, False, True, NAN, NAN, NAN),
        ("b", "small", "B1", "right", False, True, NAN, NAN, NAN),
        ("b", "large", None, None, True, True, 1.0, 0.25, NAN),
        ("c", "small", "", "wrong", True, False, 2.0, 0.75, 0.0),
        ("c", "large", None, None, True, False, INF, 0.75, 0.0),
        ("d", "small", "D1", "right", True, False, INF, 1.0, 0.75),
        ("d", "large", None, None, True, False, 2.0, 0.25, 0.75),
    ]
    figures = ["breaking_temperature", "frs.d1", "frs.d1.range"]
    names = ["question_id", "measured", "answer", "verdict", "kept", "divided", *figures]
    assert table.column_names == ["dataset", "question_id", "question", *names[1:]]
    found = [tuple(row[name] for name in names) for row in table.to_pylist()]
    assert [row[:5] for row in found] == [row[:5] for row in expected]
    np.testing.assert_array_equal([row[5:] for row in found], [row[5:] for row in expected])
    assert set(table["dataset"].to_pylist()) == {"facts"}
    assert table["question"].to_pylist() == [f"{row[0]}?" for row in expected]


@pytest.mark.parametrize("seed", range(5))
def test_the_orders_are_those_of_the_definition(seed):
    """Against a plain loop over questions, with values from few levels, so that many tie."""
    random = np.random.default_rng(seed)
    runs = []
    for name in ("one", "two", "three"):
        ids = random.permutation(60)[:45]
        kept = random.random(45) < 0.7
        breaking = random.choice([1.0, 2.0, INF], 45)
        score = np.where(kept, random.integers(0, 3, 45) / 4, NAN)
        curve = {f"frs.survival.t{t}": np.where(kept, breaking > t, NAN) for t in (1, 2)}
        right = {
            "agreement.difficulty.t1": random.integers(0, 4, 45) / 4,
            "agreement.worst.t1": random.integers(0, 2, 45),
        }
        runs.append(run(name, {"frs.d1": score, **curve, **right}, [f"q{each}" for each in ids], kept=kept))
    found = only(*runs)

    values = [{row["question_id"]: row for row in each.questions.to_pylist()} for each in runs]
    order = list(dict.fromkeys(name for each in values for name in each))
    asked = [name for name in order if sum(name in each for each in values) > 1]
    assert found.ids == asked

    def span(name, value_of):
        known = [value for each in values if name in each and not math.isnan(value := value_of(each[name]))]
        return 0 if len(known) < 2 or min(known) == max(known) else max(known) - min(known)

    def breaks(row):
        return NAN if not row["kept"] else 1 if not row["frs.survival.t1"] else 2 if not row["frs.survival.t2"] else INF

    ways = {
        "frs.d1": (lambda row: row["frs.d1"], breaks),
        "agreement.difficulty.t1": (lambda row: row["agreement.difficulty.t1"], lambda row: row["agreement.worst.t1"]),
        "agreement.worst.t1": (lambda row: row["agreement.worst.t1"], lambda row: row["agreement.difficulty.t1"]),
    }
    for metric, (value, second) in ways.items():
        differ = [name for name in asked if span(name, value) > 0]
        expected = sorted(differ, key=lambda name: (-span(name, value), -span(name, second), asked.index(name)))
        assert [found.ids[row] for row in found.differing(metric, 1000)] == expected
        assert [found.ids[row] for row in found.differing(metric, 7)] == expected[:7]
    divided = [name for name in asked if len({each[name]["kept"] for each in values if name in each}) > 1]
    firm = {
        name: max(each[name]["frs.d1"] for each in values if name in each and each[name]["kept"]) for name in divided
    }
    expected = sorted(divided, key=lambda name: (-firm[name], asked.index(name)))
    assert [found.ids[row] for row in found.disputed(1000)] == expected
