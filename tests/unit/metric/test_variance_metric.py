import math
from dataclasses import replace

import numpy as np
import pytest
from answer_rows import answer_row

from robust_eval.answer import answer_table
from robust_eval.metric.score import Measured, Score
from robust_eval.metric.variance_metric import SPECS, VarianceDecomposition, answer_variance, difference_variance
from robust_eval.question import Question
from robust_eval.report.score_presentation import present
from robust_eval.stats.variance import variance_components

QUESTIONS = [Question(f"q{place}", f"{place}?", ("a",)) for place in range(6)]
RIGHT = np.random.default_rng(0).integers(2, size=(6, 3, 4))


def answers(right: np.ndarray):
    """The answers to each question, in each wording, of each trial."""
    return answer_table(
        [
            answer_row(f"q{place}", rewrite=rewrite, trial=trial, correct=bool(correct))
            for (place, rewrite, trial), correct in np.ndenumerate(right)
        ]
    )


def scored(right: np.ndarray, questions: list[Question] = QUESTIONS) -> Score:
    return VarianceDecomposition().score(questions, Measured(answer_table([]), answers(right)), seed=0)


def test_the_components_are_those_of_all_answers():
    question, rewrite, _ = np.indices(RIGHT.shape)
    expected = variance_components(RIGHT.ravel(), question.ravel(), rewrite.ravel())
    score = scored(RIGHT)
    assert [score.values[spec.name] for spec in SPECS[:3]] == [*expected]
    assert score.n("variance.question") == 6
    error = RIGHT.mean(axis=(1, 2)).std(ddof=1) / math.sqrt(6)
    assert score.values["variance.standard_error"].value == pytest.approx(error)
    rows = score.tables["variance"].to_pylist()
    assert [row["doubled"] for row in rows] == ["", "questions", "rewrites", "trials"]
    for row in rows:
        numbers = row["questions"], row["rewrites"], row["trials"]
        assert row["standard_error"] == pytest.approx(expected.standard_error(*numbers))


def test_an_answer_without_a_reply_and_one_at_another_temperature_are_left_out():
    failed = answer_row("q0", outcome="error", trial=9)
    other = answer_row("q0", temperature=0.2, correct=True, trial=9)
    table = answer_table([*answers(RIGHT).to_pylist(), failed, other])
    again = VarianceDecomposition().score(QUESTIONS, Measured(answer_table([]), table), seed=0)
    assert again.values == scored(RIGHT).values


@pytest.mark.parametrize(
    ("right", "component", "reason", "left"),
    [
        (RIGHT[:, :1], "rewrite", "each has one wording", ["this run", "twice the questions", "twice the trials"]),
        (
            RIGHT[..., :1],
            "trial",
            "each wording has one trial",
            ["this run", "twice the questions", "twice the rewrites"],
        ),
    ],
)
def test_a_component_that_the_answers_do_not_show_has_a_reason(
    right: np.ndarray, component: str, reason: str, left: list[str]
):
    score = scored(right)
    assert math.isnan(score.values[f"variance.{component}"].value)
    assert score.reasons[f"variance.{component}"].endswith(reason)
    (table,) = present(score, QUESTIONS).presentation.tables
    assert [row[0].value for row in table.rows] == left
    (note,) = present(score, QUESTIONS).presentation.notes
    assert f"between {component}s" not in note
    assert {"rewrite": "between questions (each in one wording)", "trial": "between rewrites (one trial each)"}[
        component
    ] in note


def test_of_a_single_question_and_of_equal_answers_nothing_is_known_and_that_is_said():
    score = scored(RIGHT[:1], QUESTIONS[:1])
    assert {*score.reasons} == {spec.name for spec in SPECS}
    presentation = present(score, QUESTIONS[:1]).presentation
    assert presentation.left_out == ["The variance is undefined: fewer than two questions have verdicts."]
    in_one_group = [replace(question, group="g") for question in QUESTIONS]
    presentation = present(scored(RIGHT, in_one_group), in_one_group).presentation
    assert presentation.left_out == ["The variance is undefined: all questions are in one group."]
    by_chance = present(scored(np.tile([0, 1], (6, 1, 2))), QUESTIONS).presentation
    assert by_chance.left_out == ["The variance is undefined: the questions do not differ by more than chance."]
    alike = scored(np.ones_like(RIGHT))
    assert alike.values["variance.trial"].value == 0
    assert present(alike, QUESTIONS).presentation.left_out == ["The variance is undefined: the answers do not vary."]


def test_questions_that_depend_on_one_another_have_a_larger_standard_error():
    pairs = np.repeat(RIGHT[:3], 2, axis=0)
    grouped = answer_variance(answers(pairs), {f"q{place}": f"g{place // 2}" for place in range(6)})
    alone = answer_variance(answers(pairs))
    by_pair = pairs.mean(axis=(1, 2))[::2].std(ddof=1) / math.sqrt(3)
    assert grouped.standard_error() == pytest.approx(by_pair)
    assert grouped.standard_error(questions=6) / alone.standard_error(questions=6) == pytest.approx(
        grouped.standard_error() / alone.standard_error()
    )


def test_the_components_of_a_difference_are_those_of_paired_answers():
    one = [[[1, 1], [1, 1]], [[0, 1], [0, 0]], [[1, 0], [1, 1]]]
    other = [[[0, 0], [1, 1]], [[0, 0], [0, 0]], [[1, 1], [1, 0]]]
    # differences: [[1, 1], [0, 0]], [[0, 1], [0, 0]], [[0, -1], [0, 1]], whose means are 1/2, 1/4 and 0
    mean_squares = 4 * (1 / 4**2 + 1 / 4**2) / 2, 2 * (2 * 0.5**2 + 2 * 0.25**2 + 2 * 0.5**2) / 3, 3 * 0.5 / 6
    trial = mean_squares[2]
    rewrite = (mean_squares[1] - trial) / 2
    question = (mean_squares[0] - mean_squares[1]) / 4
    variance = difference_variance(answers(np.array(one)), answers(np.array(other)))
    assert [each.value for each in variance.components] == pytest.approx([question, rewrite, trial])
    assert (variance.questions, variance.rewrites, variance.trials, variance.temperature) == (3, 2, 2, 1.0)
    assert variance.standard_error() == pytest.approx(0.25 / math.sqrt(3))
    first, second = (variance.standard_error(**more) for more in ({"questions": 100}, {"trials": 10}))
    assert first == pytest.approx(math.sqrt(question / 103 + rewrite / 206 + trial / 412))
    assert second == pytest.approx(math.sqrt(question / 3 + rewrite / 6 + trial / 72))
    assert f"±{1.96 * first:.3f} with 100 more questions" in variance.interval_words


def test_answers_of_one_run_alone_are_in_no_difference():
    failed = answer_row("q0", outcome="error", trial=9)
    other = 1 - RIGHT
    more = answer_table([*answers(RIGHT).to_pylist(), answer_row("q0", correct=True, trial=8), failed])
    again = answer_table([*answers(other).to_pylist(), answer_row("q0", correct=True, trial=9)])
    groups = {f"q{place}": f"g{place // 2}" for place in range(6)}
    paired = difference_variance(answers(RIGHT), answers(other), groups)
    assert difference_variance(more, again, groups) == paired
    assert paired.design_effect != 1
    assert math.isnan(difference_variance(more, again.slice(0, 0)).standard_error())
