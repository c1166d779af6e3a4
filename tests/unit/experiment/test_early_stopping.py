"""Rules of early stopping, and the expected share of the answers with it."""

from pathlib import Path

import pytest

from robust_eval.answer import EarlyStopping
from robust_eval.experiment.early_stopping import (
    DEFAULT_SHARE,
    early_stopping_rules,
    expected_share,
    refuse_early_stopping,
    remember_share,
)
from robust_eval.metric.frs_metric import FactualRobustness
from robust_eval.sampler.recorded_answers import RecordedAnswers
from robust_eval.sampler.temperature_sweep import TemperatureSweep

MODEL = {"model": "small"}


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


def test_the_share_of_the_last_run_is_expected_of_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert expected_share(MODEL)[0] == DEFAULT_SHARE
    remember_share(MODEL, 36, 100)
    assert expected_share(MODEL) == (0.36, "36 %, as in the last such run of this model")
    assert expected_share({"model": "other"})[0] == DEFAULT_SHARE


@pytest.mark.parametrize("text", ["", "0.3x", "nan", "inf", "-1", "36"])
def test_a_share_that_cannot_be_read_is_absent(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    remember_share(MODEL, 36, 100)
    (file,) = (file for file in tmp_path.rglob("*") if file.is_file())
    file.write_text(text)
    assert expected_share(MODEL) == (DEFAULT_SHARE, "assuming half, because there is no earlier run of this model")
