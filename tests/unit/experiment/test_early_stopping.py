"""Expected share of the answers with early stopping."""

from pathlib import Path

import pytest

from robust_eval.experiment.early_stopping import DEFAULT_SHARE, expected_share, remember_share

MODEL = {"model": "small"}


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
