import math

import numpy as np
import pytest
from answer_rows import answer_row

from robust_eval.answer import answer_table
from robust_eval.metric.metric_spec import spec_of
from robust_eval.metric.score import Measured
from robust_eval.metric.uncertainty_metric import ALL_RIGHT, NONE_GRADED, ErrorDetection
from robust_eval.question import Question
from robust_eval.report.score_presentation import present
from robust_eval.stats.frs import top_entropy
from robust_eval.stats.uncertainty import auroc, error_ranking, prediction_rejection_ratio

LABELS = {"q0": "aaaa", "q1": "aaab", "q2": "abcd", "q3": "aabb", "q4": "aaaa", "q5": "bbba"}
RIGHT = {"q0": True, "q1": True, "q2": False, "q3": False, "q4": True, "q5": True}
QUESTIONS = [Question(name, f"{name}?", ("a",)) for name in LABELS]


def greedy(right=RIGHT, top=(-0.2, -2.5, -4.0), logprob=None):
    rows = []
    for place, (name, correct) in enumerate(right.items()):
        logprobs = [-0.1 * (place + 1), -5.0] if logprob is None else [logprob, -5.0]
        rows.append(
            answer_row(
                *(name,),
                temperature=0.0,
                label="a",
                correct=correct,
                token_logprobs=logprobs,
                top_logprobs=[list(top), [-0.01, -6.0, -7.0]],
                answer_tokens=1,
            )
        )
    return answer_table(rows)


def trials(temperature=1.0, labels=LABELS):
    """The trials of each question; "a" is right."""
    return [
        answer_row(name, temperature=temperature, trial=trial, label=label, correct=label == "a", weight=0.25)
        for name, each in labels.items()
        for trial, label in enumerate(each)
    ]


def scored(baseline=None, rows=None, estimator="trials", questions=QUESTIONS, **settings):
    graded = answer_table(trials() if rows is None else rows)
    measured = Measured(greedy() if baseline is None else baseline, graded, estimator=estimator)
    return ErrorDetection(**settings).score(questions, measured, seed=0)


def test_each_score_ranks_the_errors_of_the_greedy_answers():
    score = scored()
    table = score.tables["uncertainty"].to_pydict()
    third = -0.75 * math.log(0.75) - 0.25 * math.log(0.25)
    assert table["answer_entropy"] == pytest.approx([0, third, math.log(4), math.log(2), 0, third])
    assert table["disagreement"] == pytest.approx([0, 0.25, 0.75, 0.5, 0, 0.25])
    assert table["greedy_surprisal"] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])  # of the tokens of the answer
    # three log-probabilities per token: the entropy of as many
    assert table["initial_entropy"] == pytest.approx([top_entropy(np.exp([-0.2, -2.5, -4.0]), 3)] * 6)
    assert table["correct"] == [1, 1, 0, 0, 1, 1]
    for name in ("answer_entropy", "greedy_surprisal", "initial_entropy"):
        expected = error_ranking(table[name], table["correct"])
        assert score.values[f"uncertainty.auroc.{name}"] == expected.auroc.estimate
        assert score.values[f"uncertainty.prr.{name}"] == expected.prr.estimate
    assert score.values["uncertainty.auroc.answer_entropy"].value == 1
    assert score.values["uncertainty.auroc.initial_entropy"].value == 0.5
    assert "uncertainty.auroc.early_break" not in score.values  # one temperature
    for name, values in score.by_question.items():
        assert np.nanmean(values) == pytest.approx(score.values[name].value, abs=1e-12), name
        assert spec_of(name, score.specs).mean


def test_probabilities_have_a_brier_score_and_a_calibration_error():
    score = scored()
    shares, correct = np.array([1, 0.75, 0.25, 0.5, 1, 0.75]), np.array([1, 1, 0, 0, 1, 1])
    assert score.values["uncertainty.brier.disagreement"].value == pytest.approx(np.mean((shares - correct) ** 2))
    assert score.values["uncertainty.ece.disagreement"].value == pytest.approx(abs(np.mean(shares - correct)))
    probability = np.exp(-0.1 * np.arange(1, 7))
    brier = score.values["uncertainty.brier.greedy_surprisal"].value
    assert brier == pytest.approx(np.mean((probability - correct) ** 2))
    assert "uncertainty.brier.answer_entropy" not in score.values


def test_the_majority_may_be_the_target_and_stands_in_where_there_are_no_greedy_answers():
    for settings in ({"target": "majority"}, {"baseline": answer_table([])}):
        score = scored(**settings)
        assert score.settings["target"] == "majority"
        assert score.tables["uncertainty"]["correct"].to_pylist() == [1, 1, 1, 1, 1, 0]  # a tie: the first label


def test_enumerated_answers_count_by_their_probability():
    rows = [
        answer_row(name, label=label, correct=label == "a", weight=weight)
        for name, weights in (("q0", (0.9, 0.05)), ("q1", (0.3, 0.6)))
        for label, weight in zip("ab", weights, strict=True)
    ]
    score = scored(rows=rows, estimator="exact", questions=QUESTIONS[:2], target="majority")
    table = score.tables["uncertainty"].to_pydict()
    assert table["disagreement"] == pytest.approx([0.1, 0.4])
    assert table["correct"] == [1, 0]


def test_the_breaking_temperature_is_a_score_of_a_sweep():
    hot = {name: "bbbb" if name in ("q1", "q2") else "aaaa" for name in LABELS}
    score = scored(rows=[*trials(0.5), *trials(1.5, hot)])
    assert score.tables["uncertainty"]["early_break"].to_pylist() == [-math.inf, -1.5, -0.5, -math.inf, -math.inf, -0.5]
    assert score.settings["temperature"] == 0.5  # the one nearest to 1, the lower of two
    assert score.values["uncertainty.auroc.early_break"].value == auroc([0, 1, 2, 0, 0, 2], [1, 1, 0, 0, 1, 1])


def test_where_only_known_facts_were_swept_a_sentence_names_the_setting():
    score = scored(baseline=greedy(dict.fromkeys(RIGHT, True)))
    assert not score.values
    assert score.reasons["uncertainty.auroc.answer_entropy"] == ALL_RIGHT
    presentation = present(score, QUESTIONS).presentation
    (sentence,) = presentation.left_out
    assert sentence.endswith(
        "all answers are right. Set sampler.selection=none to include questions with wrong answers."
    )
    assert not presentation.claims
    no_gold = scored(baseline=greedy(dict.fromkeys(RIGHT)), rows=[{**row, "correct": None} for row in trials()])
    assert no_gold.reasons["uncertainty.auroc.answer_entropy"] == NONE_GRADED


def test_two_scores_are_compared_on_the_questions_that_have_both():
    rows = [row for row in trials() if row["question_id"] != "q0" or row["trial"] == 0]  # one answer has no entropy
    score = scored(rows=rows)
    table = score.tables["uncertainty"].to_pydict()
    assert math.isnan(table["answer_entropy"][0])
    pairs = {(row["first"], row["second"]): row for row in score.tables["uncertainty_differences"].to_pylist()}
    row = pairs["answer_entropy", "greedy_surprisal"]
    one, other = (auroc(table[name][1:], table["correct"][1:]) for name in ("answer_entropy", "greedy_surprisal"))
    assert (row["difference"], row["questions"]) == (pytest.approx(one - other), 5)
    assert row["difference_low"] < row["difference"] < row["difference_high"]


def test_the_first_screen_says_how_many_errors_the_least_sure_answers_hold():
    score = present(scored(), QUESTIONS)
    (claim,) = score.presentation.claims
    assert claim.startswith("The least certain 20 % of its answers contain 60 %")
    (table,) = score.presentation.tables
    assert [row[0].value for row in table.rows] == [
        *("answer entropy", "disagreement", "−ln P(greedy answer)", "initial entropy H")
    ]
    prr = prediction_rejection_ratio(score.tables["uncertainty"]["greedy_surprisal"].to_numpy(), [1, 1, 0, 0, 1, 1])
    assert table.rows[2][2].value == f"{prr:.3f}"
