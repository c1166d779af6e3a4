import math

import numpy as np
import pytest

from robust_eval.stats.calibration import calibration_bins, calibration_error, calibration_errors


def test_the_corrected_calibration_error_of_a_calibrated_forecaster_is_zero_on_average():
    random = np.random.default_rng(8)
    errors = []
    for _ in range(400):
        probability = random.beta(2, 1, 200)
        errors.append(calibration_errors(probability, (random.random(200) < probability).astype(float)))
    assert abs(np.mean([each.corrected.value for each in errors])) < 0.01
    assert np.mean([each.plug_in for each in errors]) > 0.04
    assert np.mean([each.corrected.low <= 0 <= each.corrected.high for each in errors]) > 0.93
    assert min(each.corrected.value for each in errors) < 0
    assert all(each.corrected.low <= each.corrected.value <= each.corrected.high for each in errors)


def test_a_large_calibration_error_needs_no_correction():
    probability = np.repeat([0.9, 0.6], 500)
    correct = np.concatenate([np.arange(500) < 250, np.arange(500) < 100]).astype(float)
    errors = calibration_errors(probability, correct)
    assert errors.plug_in == pytest.approx(0.4)
    assert errors.corrected.value == calibration_error(probability, correct) == pytest.approx(0.4, abs=1e-6)


def test_bins_hold_equally_many_and_equal_probabilities_share_one():
    binned = calibration_bins(np.linspace(0, 1, 400), np.ones(400))
    assert binned.number.tolist() == [40] * 10
    tied = calibration_bins([1.0] * 300 + [0.2] * 60 + [math.nan], [1.0] * 361)
    assert tied.number.tolist() == [60, 300]
    assert tied.bin[-1] == -1
