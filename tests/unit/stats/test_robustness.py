import itertools
import math
import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robust_eval.stats.robustness import Robustness, guessing, question_robustness, robustness

NAN = math.nan
PROPERTY = settings(max_examples=60, deadline=None, database=None, derandomize=True)
BOTH = pytest.mark.parametrize("measure", [robustness, question_robustness])


def whole(message):
    return f"^{re.escape(message)}$"


@st.composite
def graded(draw, verdicts=(0, 1), ungraded=False):
    """Verdicts of raters, and of an ensemble answer that is one of theirs, or is not graded."""
    raters = draw(st.integers(1, 6))
    row = st.lists(st.sampled_from(verdicts), min_size=raters, max_size=raters)
    correct = draw(st.lists(row, min_size=1, max_size=8))
    ensemble = []
    for row in correct:
        choices = [verdict for verdict in row if not math.isnan(verdict)]
        if ungraded or not choices:
            choices = [*choices, NAN]
        ensemble.append(draw(st.sampled_from(choices)))
    return correct, ensemble


# column 0 is the original question
TABLE = [
    [1, 1, 0, NAN],
    [0, 0, 0, 0],
    [NAN, 1, 1, NAN],  # the original question was not graded
    [1, NAN, NAN, NAN],
    [NAN, NAN, NAN, NAN],
    [0, 1, 0, 1],
]
ENSEMBLE = [1, 0, NAN, 1, NAN, 0]


def test_every_question_of_a_hand_computed_table_is_measured_over_the_raters_that_it_has():
    found = question_robustness(TABLE, ENSEMBLE)
    expected = {
        "accuracy": [1, 0, NAN, 1, NAN, 0],
        "worst": [0, 0, 1, 1, NAN, 0],
        "best": [1, 0, 1, 1, NAN, 1],
        "plurality": [1, 0, NAN, 1, NAN, 0],
        "difficulty": [2 / 3, 0, 1, 1, NAN, 1 / 2],
    }
    assert found._fields == tuple(expected)
    for figure, values in expected.items():
        np.testing.assert_array_equal(getattr(found, figure), values, err_msg=figure)


def test_each_figure_of_a_hand_computed_table_is_the_mean_over_the_questions_that_have_it():
    found = robustness(TABLE, ENSEMBLE)
    assert found._asdict() == {
        "accuracy": pytest.approx(2 / 4),
        "worst": pytest.approx(2 / 5),
        "best": pytest.approx(4 / 5),
        "plurality": pytest.approx(2 / 4),
        "difficulty": pytest.approx((2 / 3 + 0 + 1 + 1 + 1 / 2) / 5),
    }


def mean(values):
    defined = [value for value in values if value is not None]
    return float(sum(defined, Fraction(0)) / len(defined)) if defined else NAN


@PROPERTY
@given(graded(verdicts=(0, 1, 0, 1, NAN), ungraded=True))
def test_the_figures_are_their_definitions_written_out_in_loops(tables):
    correct, ensemble = tables
    known = [[int(verdict) for verdict in row if not math.isnan(verdict)] for row in correct]
    expected = Robustness(
        accuracy=mean([None if math.isnan(row[0]) else Fraction(row[0]) for row in correct]),
        worst=mean([Fraction(all(row)) if row else None for row in known]),
        best=mean([Fraction(any(row)) if row else None for row in known]),
        plurality=mean([None if math.isnan(verdict) else Fraction(verdict) for verdict in ensemble]),
        difficulty=mean([Fraction(sum(row), len(row)) if row else None for row in known]),
    )
    assert robustness(correct, ensemble) == pytest.approx(expected, abs=1e-12, nan_ok=True)


@PROPERTY
@given(graded())
def test_accuracy_and_plurality_and_difficulty_lie_between_the_worst_and_the_best(tables):
    found = robustness(*tables)
    assert 0 <= found.worst <= found.accuracy <= found.best <= 1
    assert found.worst <= found.plurality <= found.best
    assert found.worst <= found.difficulty + 1e-12
    assert found.difficulty <= found.best + 1e-12


@PROPERTY
@given(graded(verdicts=(0, 1, 0, 1, NAN), ungraded=True))
def test_with_missing_raters_the_same_holds_for_each_question(tables):
    found = question_robustness(*tables)
    for figure in (found.accuracy, found.plurality, found.difficulty):
        defined = ~np.isnan(figure)
        assert np.all(found.worst[defined] <= figure[defined])
        assert np.all(figure[defined] <= found.best[defined])


def test_the_order_of_the_rewrites_does_not_matter_but_the_original_question_does():
    generator = np.random.default_rng(2)
    correct = generator.integers(0, 2, size=(50, 6))
    ensemble = correct[:, 3]
    rewrites = [0, *(1 + generator.permutation(5))]
    assert robustness(correct[:, rewrites], ensemble) == robustness(correct, ensemble)
    found, other = robustness(correct[:, ::-1], ensemble), robustness(correct, ensemble)
    assert found == other._replace(accuracy=correct[:, 5].mean())
    assert found.accuracy != other.accuracy


@pytest.mark.parametrize(
    ("correct", "ensemble", "expected"),
    [
        ([[NAN, NAN]], [NAN], (NAN, NAN, NAN, NAN, NAN)),
        (np.zeros((0, 3)), [], (NAN, NAN, NAN, NAN, NAN)),
        ([[NAN, 1], [NAN, 0]], [NAN, NAN], (NAN, 0.5, 0.5, NAN, 0.5)),
        ([[1, 0]], [NAN], (1, 0, 1, NAN, 0.5)),
        ([[1]], [1], (1, 1, 1, 1, 1)),
        ([[0]], [0], (0, 0, 0, 0, 0)),
    ],
)
def test_a_figure_that_no_question_has_is_undefined_and_the_others_are_not(correct, ensemble, expected):
    np.testing.assert_equal(tuple(robustness(correct, ensemble)), expected)


@BOTH
@pytest.mark.parametrize(
    ("correct", "ensemble", "message"),
    [
        ([[1, 0], [0, 0]], [1, 1], "question 1: the ensemble answer is right, and no rater's answer is"),
        ([[1, 0], [0, 1], [1, 1]], [1, 1, 0], "question 2: the ensemble answer is wrong, and no rater's answer is"),
        ([[1, NAN, 1]], [0], "question 0: the ensemble answer is wrong, and no rater's answer is"),
        ([[NAN, NAN, 0]], [1], "question 0: the ensemble answer is right, and no rater's answer is"),
        (
            [[NAN, NAN], [1, 0], [0, 0], [1, 1]],
            [NAN, 0, 1, 0],
            "question 2: the ensemble answer is right, and no rater's answer is",
        ),
    ],
)
def test_an_ensemble_answer_whose_verdict_no_rater_has_is_refused_with_the_first_such_question(
    measure, correct, ensemble, message
):
    with pytest.raises(ValueError, match=whole(message)):
        measure(correct, ensemble)


@BOTH
@pytest.mark.parametrize(
    ("correct", "shape"), [([1, 0], "(2,)"), ([], "(0,)"), ([[], []], "(2, 0)"), ([[[1], [0]]], "(1, 2, 1)"), (1, "()")]
)
def test_verdicts_that_are_no_table_or_have_no_raters_are_refused(measure, correct, shape):
    message = f"correct must be (questions, raters) with at least one rater, not {shape}"
    with pytest.raises(ValueError, match=whole(message)):
        measure(correct, [1, 0])


@BOTH
@pytest.mark.parametrize(("ensemble", "shape"), [([1], "(1,)"), ([1, 0, 1], "(3,)"), ([[1, 0]], "(1, 2)"), (1, "()")])
def test_an_ensemble_of_other_questions_is_refused(measure, ensemble, shape):
    message = f"ensemble_correct must hold one value for each of 2 questions, not {shape}"
    with pytest.raises(ValueError, match=whole(message)):
        measure([[1, 0], [0, 1]], ensemble)


@BOTH
@pytest.mark.parametrize("verdict", [0.5, 2, -1, math.inf, -math.inf])
def test_verdicts_other_than_0_1_and_nan_are_refused(measure, verdict):
    with pytest.raises(ValueError, match=whole("correct must hold 0, 1 and NaN alone")):
        measure([[1, 0], [verdict, 1]], [1, 1])
    with pytest.raises(ValueError, match=whole("ensemble_correct must hold 0, 1 and NaN alone")):
        measure([[1, 0], [NAN, 1]], [1, verdict])


def test_arguments_are_left_as_they_are_and_may_be_boolean():
    correct, ensemble = np.array([[True, False], [False, False]]), np.array([True, False])
    assert robustness(correct, ensemble) == Robustness(0.5, 0.0, 0.5, 0.5, 0.25)
    assert correct.tolist() == [[True, False], [False, False]]
    table, votes = np.array(TABLE), np.array(ENSEMBLE, dtype=float)
    robustness(table, votes)
    np.testing.assert_array_equal(table, TABLE)
    np.testing.assert_array_equal(votes, ENSEMBLE)


# guessing


@pytest.mark.parametrize(("choices", "raters"), [(1, 3), (2, 1), (2, 2), (2, 6), (3, 4), (4, 3), (4, 5), (5, 4)])
def test_guessing_gives_the_means_over_all_answers_that_guessers_could_give(choices, raters):
    totals = [Fraction(0)] * 5
    for answers in itertools.product(range(choices), repeat=raters):  # the right choice is 0
        votes = [answers.count(choice) for choice in range(choices)]
        winners = [choice for choice in range(choices) if votes[choice] == max(votes)]
        figures = (
            answers[0] == 0,
            votes[0] == raters,
            votes[0] > 0,
            Fraction(0 in winners, len(winners)),  # a tie is broken evenly
            Fraction(votes[0], raters),
        )
        totals = [total + figure for total, figure in zip(totals, figures, strict=True)]
    expected = Robustness(*(float(total / choices**raters) for total in totals))
    assert guessing(choices, raters) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("ties", ["at random", "to the original question"])
@pytest.mark.parametrize(("choices", "raters"), [(2, 6), (4, 6), (3, 4), (4, 3)])
def test_guessing_gives_what_simulated_guessers_score(choices, raters, ties):
    n = 60_000
    generator = np.random.default_rng(10 * choices + raters)
    answers, key = generator.integers(choices, size=(n, raters)), generator.integers(choices, size=n)
    votes = (answers[:, :, None] == np.arange(choices)).sum(axis=1).astype(float)
    if ties == "at random":
        votes += generator.uniform(0, 0.5, votes.shape)
    else:
        votes += generator.uniform(0, 0.25, votes.shape)
        votes[np.arange(n), answers[:, 0]] += 0.5
    correct, ensemble = answers == key[:, None], votes.argmax(axis=1) == key
    figures = [correct[:, 0], correct.all(axis=1), correct.any(axis=1), ensemble, correct.mean(axis=1)]
    errors = [figure.std() / math.sqrt(n) for figure in figures]
    assert min(errors) > 0
    expected, simulated = guessing(choices, raters), robustness(correct, ensemble)
    for name, figure, value, error in zip(expected._fields, expected, simulated, errors, strict=True):
        assert figure == pytest.approx(value, abs=4.5 * error), name


@pytest.mark.parametrize(("choices", "raters"), [(0, 2), (2, 0), (-1, 3), (0, 0)])
def test_guessing_without_choices_or_raters_is_refused(choices, raters):
    message = f"choices and raters must be whole numbers of at least 1, not {choices} and {raters}"
    with pytest.raises(ValueError, match=whole(message)):
        guessing(choices, raters)
