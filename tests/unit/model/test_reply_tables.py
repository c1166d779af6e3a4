import numpy as np
import pytest

from robust_eval.model.base import Curve, Reply, Request
from robust_eval.model.reply_tables import curve_of
from robust_eval.prompt.prompt import Prompt


def test_an_accuracy_lies_within_its_bounds_and_keeps_its_error():
    bounds = np.array([0.0, 0.25, 0.0]), np.array([1.0, 0.5, 1.0])
    curve = Curve(np.array([0.2, 0.4, 0.6]), np.array([1.044, 0.2, 0.7]), np.array([0.06, 0.05, 0.04]), *bounds)
    table = curve_of(Reply(Request("q", 0, Prompt("", (), "q"), (0.2, 0.4, 0.6), 1, 1, 0), [], curve))
    assert table["accuracy"].to_pylist() == [1.0, 0.25, 0.7]
    assert table["standard_error"].to_pylist() == pytest.approx([0.06, 0.05, 0.04])
