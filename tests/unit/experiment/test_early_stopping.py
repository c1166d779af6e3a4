"""Rules of early stopping."""

import pytest

from robust_eval.answer import EarlyStopping
from robust_eval.experiment.early_stopping import (
    early_stopping_rules,
    refuse_early_stopping,
)
from robust_eval.metric.frs_metric import FactualRobustness
from robust_eval.sampler.recorded_answers import RecordedAnswers
from robust_eval.sampler.temperature_sweep import TemperatureSweep


def test_metrics_with_one_threshold_share_a_rule(monkeypatch: pytest.MonkeyPatch):
    sweep = {"sweep": TemperatureSweep(temperatures=[0.5, 1.0], early_stop=True)}
    equal = {"frs": FactualRobustness(threshold=0.5), "own": FactualRobustness(threshold=0.5, d=[3])}
    rule = EarlyStopping((0.5, 1.0), 0.5)
    assert early_stopping_rules(sweep, equal, uses_judge=False) == {"sweep": rule}
    monkeypatch.setattr(RecordedAnswers, "early_stopping", {"sweep": rule})
    monkeypatch.setattr(RecordedAnswers, "conditions", lambda _: sweep)
    refuse_early_stopping(RecordedAnswers("answers.parquet"), equal)


def test_metrics_with_several_thresholds_need_all_trials(caplog: pytest.LogCaptureFixture):
    sweep = {"sweep": TemperatureSweep(temperatures=[0.5, 1.0], early_stop=True)}
    metrics = {"frs": FactualRobustness(threshold=0.5), "own": FactualRobustness(threshold=0.7)}
    assert early_stopping_rules(sweep, metrics, uses_judge=False) == {}
    assert caplog.messages == ["sampler=sweep ignores early_stop=true: metrics have several thresholds (0.5, 0.7)"]
