import math

import matplotlib.pyplot as plt
import numpy as np

from robust_eval.plot.thinking_figures import accuracy_by_budget, variance_of_questions
from robust_eval.stats.estimate import Estimate

UNKNOWN = Estimate(math.nan)


def test_accuracy_and_facts_that_need_no_more_stand_above_the_tokens_of_each_budget():
    _, axes = plt.subplots()
    accuracy = [Estimate(0.25, 0.1, 0.4), Estimate(0.5, 0.3, 0.7), Estimate(0.75, 0.6, 0.9)]
    accuracy_by_budget(axes, ["none", "low", "high"], accuracy, [UNKNOWN] * 3, [2, math.nan, 300.4])
    assert [line.get_ydata().tolist() for line in axes.lines] == [[0.25, 0.5, 0.75]]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["none\n(2 tokens)", "low", "high\n(300 tokens)"]
    plt.close("all")


def test_questions_whose_variance_is_not_known_are_left_out():
    _, axes = plt.subplots()
    variance_of_questions(axes, [0.1, -0.01, math.nan], [0.05, 0.2, 0.1])
    np.testing.assert_allclose(axes.collections[0].get_offsets(), [[0.05, 0.1], [0.2, -0.01]])
    assert axes.get_title().endswith("(n = 2)")
    plt.close("all")
