"""Claims on the first lines of a report."""

import re

import numpy as np
import pytest
from answer_rows import answer_row

from robust_eval.aggregator.base import EqualText
from robust_eval.answer import DEFAULT_TEMPERATURE, answer_table
from robust_eval.metric.agreement_metric import AnswerAgreement
from robust_eval.metric.certainty_metric import AnswerCertainty
from robust_eval.metric.score import Measured, Metric
from robust_eval.question import Question
from robust_eval.report.score_presentation import most_robust_type, present

KINDS = ["HUM", "LOC", "NUM", "ENTY"]


def test_a_kind_is_held_most_firmly_only_where_its_mean_is_above_each_other_by_a_corrected_test():
    spread = np.tile([-0.1, 0.1], 20)
    means = {"HUM": 0.8, "LOC": 0.6, "NUM": 0.5, "ENTY": 0.4}
    (said,) = most_robust_type(
        np.concatenate([mean + spread for mean in means.values()]), np.repeat(list(means), 40), None
    )
    told = (
        r"is most robust on questions of the type Human \(mean FRS 0\.800, n = 40; p = [\de.-]+ after Holm's "
        r"correction for 6 pairs"
    )
    assert re.fullmatch(rf"{told} of types\)", said)
    means["LOC"] = 0.789  # the difference of a standard error or less
    assert (
        most_robust_type(np.concatenate([mean + spread for mean in means.values()]), np.repeat(list(means), 40), None)
        == []
    )


def test_of_kinds_that_are_held_alike_one_is_named_most_firm_in_less_than_one_of_twenty_runs():
    rng = np.random.default_rng(0)
    said = [most_robust_type(rng.beta(3, 2, 120), np.repeat(KINDS, 30), None) for _ in range(200)]
    assert sum(map(len, said)) <= 0.05 * len(said)


def test_facts_of_one_group_are_no_evidence_of_their_own():
    groups = [f"passage {place // 8}" for place in range(80)]
    scores = np.repeat(np.tile([0.9, 0.5, 0.7, 0.4, 0.8], 2), 8) - np.repeat([0.0, 0.1], 40)
    types = np.repeat(["HUM", "LOC"], 40)
    assert len(most_robust_type(scores, types, None)) == 1
    assert most_robust_type(scores, types, groups) == []


def test_nothing_is_said_of_few_facts_of_a_kind_nor_where_nothing_varies():
    assert (
        most_robust_type(np.array([0.9, 0.8, 0.9, 0.8, 0.1, 0.2, 0.1, 0.2, 0.1]), ["HUM"] * 4 + ["LOC"] * 5, None) == []
    )
    assert most_robust_type(np.array([0.9] * 40 + [0.1, 0.2] * 20), ["other"] * 40 + ["LOC"] * 40, None) == []
    assert most_robust_type(np.array([1.0] * 5 + [0.5] * 5), ["HUM"] * 5 + ["LOC"] * 5, None) == []
    assert (
        most_robust_type(np.array([1.0, 1 - 1e-16, 1.0, 1.0, 1.0] + [0.5] * 5), ["HUM"] * 5 + ["LOC"] * 5, None) == []
    )


def test_a_kind_whose_scores_are_all_alike_is_compared_with_one_whose_scores_differ():
    types = ["HUM"] * 40 + ["LOC"] * 40
    assert len(most_robust_type(np.array([1.0] * 40 + [0.6, 0.8] * 20), types, None)) == 1
    assert most_robust_type(np.array([0.7] * 40 + [0.6, 0.8] * 20), types, None) == []


@pytest.mark.parametrize(("metric", "start"), [(AnswerAgreement(), "repeatedly"), (AnswerCertainty(), "repeatedly")])
def test_the_temperature_of_a_model_without_the_setting_is_called_its_own(metric: Metric, start: str):
    rows = [answer_row("q", temperature=DEFAULT_TEMPERATURE, trial=k, label="a", correct=True) for k in range(2)]
    questions = [Question("q", "q?", ("a",))]
    measured = Measured(answer_table([]), EqualText().aggregate(questions, answer_table(rows)))
    sentence = present(metric.score(questions, measured, 0), questions).presentation.sentence
    assert sentence.startswith("repeatedly at the model's own temperature (95 %")
