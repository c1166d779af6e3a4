"""Figures of lm-eval's tasks over values that were made here."""

import math

import numpy as np
import pytest

from robust_eval.interop.lm_eval_tasks.tasks import QuestionValue, aggregations
from robust_eval.metric.score import mean_estimate


def ends(found: list[QuestionValue]) -> list[float]:
    assert [*aggregations("x")] == ["x", "x_low", "x_high"]
    return [part(found) for part in aggregations("x").values()]


def test_undefined_values_are_left_out_and_groups_are_resampled_together():
    values = [1.0, 0.0, 2.0, 2.0, 1.0, math.nan]
    groups = ["a", "a", "b", "b", "", ""]
    pairs = enumerate(zip(values, groups, strict=True))
    found = [QuestionValue(None if v != v else v, str(n), g, 2.0) for n, (v, g) in pairs]
    labels = ["group a", "group a", "group b", "group b", "question 4", "question 5"]
    assert ends(found) == list(mean_estimate(np.array(values), labels, (0.0, 2.0)))
    alone = [one._replace(group="") for one in found]
    assert ends(alone) == list(mean_estimate(np.array(values), None, (0.0, 2.0)))
    assert ends(alone)[0] == pytest.approx(6 / 5)


def test_questions_that_are_all_alike_have_an_interval_of_clopper_and_pearson():
    low, high = ends([QuestionValue(1.0, str(n), "", 1.0) for n in range(10)])[1:]
    assert (low, high) == (pytest.approx(0.025 ** (1 / 10)), 1.0)


def test_without_a_value_it_is_undefined():
    assert all(map(math.isnan, ends([QuestionValue(None, "1", "", 1.0)])))
