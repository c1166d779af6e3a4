"""What is begun for a command line before what it needs is imported."""

import sys

import pytest

from robust_eval.cli.main import _is_recorded


@pytest.mark.parametrize(
    ("line", "recorded"),
    [
        ("", True),
        ("experiment=smoke seed=1", True),
        ("tracking=none", False),
        ("tracking=mlflow tracking.uri=http://server", False),
        ("-m seed=0,1", False),
        ("--cfg job", False),
        ("experiment=frs dry_run=true", False),
        ("cancel_batches=true", False),
    ],
)
def test_a_process_that_records_begins_at_once_for_what_looks_like_a_run(
    monkeypatch: pytest.MonkeyPatch, line: str, recorded: bool
):
    monkeypatch.delitem(sys.modules, "mlflow", raising=False)
    assert _is_recorded(line.split()) == recorded


def test_none_begins_where_mlflow_is_imported_already(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "mlflow", sys)
    assert not _is_recorded([])
