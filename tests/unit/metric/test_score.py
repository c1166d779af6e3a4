import math

import numpy as np
import pytest
from answer_rows import answer_row

from robust_eval.answer import answer_table
from robust_eval.error import UserError
from robust_eval.metric.score import Measured, Score, grid, question_groups
from robust_eval.question import Question
from robust_eval.stats.estimate import Estimate


def answer(question_id, temperature, correct, outcome="ok", weight=1.0):
    return answer_row(question_id, temperature=temperature, correct=correct, outcome=outcome, weight=weight)


def test_flat_names_every_figure_once_with_its_bounds_where_it_has_them():
    score = Score(
        values={"frs.d1": Estimate(0.6, 0.5, 0.7), "frs.count.broken": Estimate(3.0), "frs.d0.5": Estimate(math.nan)},
        curves={
            "accuracy": {0.2: Estimate(0.9, 0.8, 1.0), 1.0: Estimate(0.4), 0.1 + 0.2: Estimate(0.7, 0.7, 0.7)},
            "frs.survival": {2.0: Estimate(0.1, 0.0, 0.2)},
        },
    )
    expected = {
        "frs.d1": 0.6,
        "frs.d1.low": 0.5,
        "frs.d1.high": 0.7,
        "frs.count.broken": 3.0,
        "frs.d0.5": math.nan,
        "accuracy.t0.2": 0.9,
        "accuracy.t0.2.low": 0.8,
        "accuracy.t0.2.high": 1.0,
        "accuracy.t1": 0.4,
        "accuracy.t0.3": 0.7,
        "accuracy.t0.3.low": 0.7,
        "accuracy.t0.3.high": 0.7,
        "frs.survival.t2": 0.1,
        "frs.survival.t2.low": 0.0,
        "frs.survival.t2.high": 0.2,
    }
    assert score.flat() == pytest.approx(expected, nan_ok=True)


def test_flat_says_how_many_questions_a_figure_rests_on():
    score = Score(values={"frs.count.broken": Estimate(3.0), "median": Estimate(0.4)}, of_questions={"median": 5})
    score.add_mean("frs.d1", np.array([0.5, math.nan, 0.75]), None)
    score.add_curve("accuracy", np.array([[1.0, math.nan], [math.nan, math.nan], [0.5, math.nan]]), [0.2, 1.0], None)
    told = {name: value for name, value in score.flat().items() if name.endswith(".n")}
    assert told == {"median.n": 5, "frs.d1.n": 2, "accuracy.t0.2.n": 2, "accuracy.t1.n": 0}


def test_of_a_curve_its_ends_and_three_temperatures_tell_most():
    curve = {t: Estimate(t) for t in (0.1, 0.2, 0.4, 1.0, 1.8, 2.0, 2.4)}
    score = Score(values={"frs.d1": Estimate(0.5)}, curves={"accuracy": curve, "alone": {0.7: Estimate(0.7)}})
    names = ["frs.d1", *(f"accuracy.t{t}" for t in ("0.1", "0.2", "1", "2", "2.4")), "alone.t0.7"]
    assert list(score.headline().metrics()) == names


def test_a_grid_counts_trials_in_the_order_of_the_questions_and_of_the_temperatures():
    rows = [
        *[answer("b", 1.0, correct) for correct in (True, False, False)],
        *[answer("a", 1.0, correct) for correct in (True, True, False)],
        *[answer("b", 0.2, correct) for correct in (True, True, True)],
        *[answer("a", 0.2, correct) for correct in (False, False, False)],
    ]
    result = grid(["a", "b"], answer_table(rows))
    assert result.question_ids == ["a", "b"]
    assert result.temperatures.tolist() == [0.2, 1.0]
    assert result.correct.tolist() == [[0, 2], [3, 1]]
    assert result.replies.tolist() == [[3, 3], [3, 3]]
    np.testing.assert_array_equal(result.accuracy, [[0, 2 / 3], [1, 1 / 3]])


def test_only_missing_replies_leave_the_denominator():
    rows = [
        answer("a", 0.2, True),
        answer("a", 0.2, None, "refused"),
        answer("a", 0.2, False, "empty"),
        answer("a", 0.2, False, "invalid"),
        answer("a", 0.2, None, "error"),
        answer("a", 0.2, None, "filtered_prompt"),
        answer("a", 0.2, None, "filtered_reply"),
        answer("a", 0.2, True, "filtered_reply"),  # a reply withheld is not there, whatever was said of it
    ]
    result = grid(["a"], answer_table(rows))
    assert result.correct.tolist() == [[1.0]]
    assert result.replies.tolist() == [[4.0]]


def test_answers_of_different_weight_are_summed_by_weight():
    rows = [
        answer("a", 0.2, True, weight=0.6),
        answer("a", 0.2, False, weight=0.25),
        answer("a", 0.2, True, weight=0.15),
        answer("a", 0.4, True, weight=0.5),
        answer("a", 0.4, None, "error", weight=0.5),
    ]
    result = grid(["a"], answer_table(rows))
    assert result.correct == pytest.approx(np.array([[0.75, 0.5]]), rel=1e-14)
    assert result.replies == pytest.approx(np.array([[1.0, 0.5]]), rel=1e-14)
    assert result.accuracy == pytest.approx(np.array([[0.75, 1.0]]), rel=1e-14)


def test_a_temperature_without_any_reply_has_no_accuracy():
    rows = [
        answer("a", 0.2, True),
        answer("a", 0.4, None, "error"),
        answer("b", 0.2, False),  # b was not asked at 0.4 at all
    ]
    result = grid(["a", "b", "c"], answer_table(rows))
    np.testing.assert_array_equal(result.accuracy, [[1, np.nan], [0, np.nan], [np.nan, np.nan]])


def test_questions_without_any_group_have_no_groups():
    assert question_groups([Question("a", "?"), Question("b", "?")]) is None


def test_a_question_without_a_group_is_a_group_of_its_own():
    questions = [Question("a", "?", group="g"), Question("b", "?"), Question("c", "?", group="g"), Question("d", "?")]
    labels = question_groups(questions)
    assert labels is not None
    assert [labels.index(label) for label in labels] == [0, 1, 0, 3]


def test_trials_count_one_each_however_many_a_question_has():
    """As in recorded answers, where one may be missing: 20 of weight 1/20, and 19 of weight 1/19."""
    rows = [answer_row(name, trial=trial, weight=1 / n) for name, n in (("a", 20), ("b", 19)) for trial in range(n)]
    assert Measured(answer_table([]), answer_table(rows)).graded["weight"].to_pylist() == [1] * 39


@pytest.mark.parametrize("weights", [[0.5, 0.25, 0.25], [0.5, 0.5], [0.7, 0.2, 0.1], [0.3]])
def test_enumerated_answers_count_by_their_probability_even_if_trials_could_weigh_so(weights: list[float]):
    rows = [answer("a", 1.0, place == 0, weight=weight) for place, weight in enumerate(weights)]
    measured = Measured(answer_table([]), answer_table(rows), estimator="exact")
    assert measured.graded["weight"].to_pylist() == weights
    assert grid(["a"], measured.graded).accuracy == pytest.approx(np.array([[weights[0] / sum(weights)]]))


def test_values_may_be_a_list_of_truth_values_but_not_of_texts():
    score = Score(["a", "b"])
    score.add_share("mine", [True, False], groups=None)
    assert score.values["mine"].value == 0.5
    with pytest.raises(UserError, match=r"^mine: the values must be numbers, NaN where undefined: "):
        score.add_curve("mine", [["x"], ["y"]], [1.0], groups=None)
