import math

import pyarrow as pa
import pytest
from facts_by_hand import BASELINE, ROWS, SURE, answer, curves, figures, trials
from facts_by_hand import QUESTIONS as FACTS_ASKED

from robust_eval.answer import EXACT_CURVES, answer_table
from robust_eval.metric.frs_metric import FactualRobustness
from robust_eval.metric.frs_tables import certainty_bins
from robust_eval.metric.score import HUMAN_LABEL, HUMAN_LABEL_WEIGHT, Measured
from robust_eval.question import Question
from robust_eval.stats.interval import NORMAL_95

GRID = [0.5, 1.0, 1.5]
NAN, INF = math.nan, math.inf
QUESTIONS = FACTS_ASKED[:3]  # a, b and c
GRADED = answer_table(row for row in ROWS if row["question_id"] in "abc")  # a never breaks, b at 1.5, c at 0.5


def score(estimator, table, graded=GRADED, **options):
    metric = FactualRobustness(**{"k": 2, "d": [1], **options})
    return metric.score(QUESTIONS, Measured(BASELINE, graded, table, estimator), seed=0)


def values_of(curve):
    return {temperature: estimate.value for temperature, estimate in curve.items()}


def by_question(found, column):
    return found.tables["frs"][column].to_pylist()


@pytest.mark.parametrize("estimator", ["trials", "exact"])
def test_without_curves_the_trials_speak_alone(estimator):
    found = score(estimator, EXACT_CURVES.empty_table())
    assert set(found.curves) == {"accuracy", "frs.survival"}
    assert not any(name.startswith("frs.offgrid") for name in found.values)
    assert by_question(found, "breaking_temperature") == [INF, 1.5, 0.5]
    assert [name for name in found.tables["frs"].column_names if name.startswith("breaking")] == [
        "breaking_temperature"
    ]


# Enumerated answers


WIDE = [0.25, 0.5, 1.0, 1.5, 2.0, 3.0]
EXACT = {"a": [1 - t / 5 for t in WIDE], "b": [1 - t / 2.4 for t in WIDE], "c": [0.8] * 6}  # cross at 2.5, 1.2, never


def enumerated():
    """The right answer of a and b in two spellings, the wrong ones as one; c has a single right and wrong answer."""
    rows = []
    for name in "abc":
        for temperature in GRID:
            right = EXACT[name][WIDE.index(temperature)]
            parts = [0.75, 0.25] if name in "ab" else [1.0]
            rows += [answer(name, temperature, True, weight=right * part) for part in parts]
            rows.append(answer(name, temperature, False, weight=1 - right))
    return answer_table(rows)


def exact_score(error=0.0, names="abc", **options):
    table = curves(*((name, WIDE, EXACT[name], [error] * len(WIDE)) for name in names), below=0.1, above=0.02)
    return score("exact", table, enumerated(), **options)


def test_enumerated_answers_give_the_grid_and_their_curve_what_lies_off_it():
    found = exact_score(error=0.05 / NORMAL_95)
    assert found.settings == {"threshold": 0.5, "k": 2, "unbroken": "one"}
    f = 3.5 / 2 - 1 / 7  # a at 2.5
    assert figures(found, "frs.entropy", "frs.count") == pytest.approx(
        {
            "frs": (1 + 7 / 9 + 1) / 3,
            "frs.d1": (1 + 7 / 9 + 1) / 3,
            "frs.unbroken_share": 2 / 3,
            "frs.breaking_temperature.mean_broken": 1.5,
            "frs.breaking_temperature.median": INF,
            "frs.offgrid.d1": ((f + 1) / (f + 2) + 3.2 / 4.2 + 1) / 3,
            "frs.offgrid.breaking_temperature.mean_broken": (2.5 + 1.2) / 2,
            "frs.offgrid.breaking_temperature.median": 2.5,
        },
        rel=1e-9,
    )
    assert by_question(found, "breaking_temperature") == [INF, 1.5, INF]
    assert by_question(found, "breaking_temperature_offgrid") == pytest.approx([2.5, 1.2, INF])
    assert by_question(found, "breaking_temperature_offgrid_low") == pytest.approx([2.25, 1.08, INF])
    assert by_question(found, "breaking_temperature_offgrid_high") == pytest.approx([2.75, 1.32, INF])


def test_off_the_grid_the_threshold_holds_as_well_and_a_question_without_a_curve_has_no_break():
    found = exact_score(names="ac", threshold=0.75)
    assert by_question(found, "breaking_temperature_offgrid") == pytest.approx([1.25, NAN, INF], nan_ok=True)


def test_enumerated_answers_come_with_certified_bounds():
    mean = {t: sum(curve[WIDE.index(t)] for curve in EXACT.values()) / 3 for t in GRID}
    assert {name: values_of(curve) for name, curve in exact_score().curves.items()} == {
        "accuracy": pytest.approx(mean),
        "accuracy_certified_lower": pytest.approx({t: p - 0.1 for t, p in mean.items()}),
        "accuracy_certified_upper": pytest.approx({t: p + 0.02 for t, p in mean.items()}),
        "frs.survival": pytest.approx({0.5: 1.0, 1.0: 1.0, 1.5: 2 / 3}),
    }


def test_weights_that_are_probabilities_are_summed():
    table = exact_score().tables["frs_accuracy"].to_pydict()
    right = [EXACT[name][WIDE.index(t)] for name in "abc" for t in GRID]
    assert table["correct"] == pytest.approx(right)
    assert table["replies"] == pytest.approx([1.0] * 9)


def test_enumerated_answers_count_by_their_probability_in_the_certainty_bins():
    sure, unsure = {"sampling_logprobs": [math.log(0.85)]}, {"sampling_logprobs": [math.log(0.15)]}
    rows = [
        answer("a", 0.5, True, weight=0.625, answer_tokens=1, **sure),
        answer("a", 0.5, True, weight=0.125, answer_tokens=1, **unsure),
        answer("a", 0.5, False, weight=0.25, answer_tokens=1, **unsure),
        answer("b", 0.5, True, weight=0.5, answer_tokens=1, **sure),
        answer("b", 0.5, False, weight=0.25, answer_tokens=0, **sure),
    ]
    assert certainty_bins(answer_table(rows)).to_pylist() == [
        {"temperature": 0.5, "certainty_from": 0.1, "right": 0.125, "wrong": 0.25},
        {"temperature": 0.5, "certainty_from": 0.8, "right": 1.125, "wrong": 0.0},
    ]


def test_a_corrected_share_at_the_end_of_its_range_has_no_interval_without_width():
    # six of ten trials are right everywhere: no fact breaks, but some do in resamples, which reflection puts beyond 1
    questions = [Question(str(number), f"{number}?", ("a",)) for number in range(5)]
    drawn = [trials(each.id, t, 6, 10) for each in questions for t in (0.5, 1.0)]
    rows = [row | {"trial": place} for part in drawn for place, row in enumerate(part)]
    graded, people = answer_table(rows), [float(row["correct"]) for row in rows]
    for name, values in ((HUMAN_LABEL, people), (HUMAN_LABEL_WEIGHT, [1.0] * len(rows))):
        graded = graded.append_column(name, pa.array(values, pa.float64()))
    baseline = answer_table([answer(each.id, top_logprobs=[SURE], answer_tokens=1) for each in questions])
    found = FactualRobustness(k=2, d=1).corrected(questions, Measured(baseline, graded), 0).values
    share = found["frs.corrected.unbroken_share"]
    assert share.value == 1
    assert math.isnan(share.low)
    assert math.isnan(share.high)
