"""What is begun for a command line before what it needs is imported."""

import sys
from types import SimpleNamespace

import pytest

from robust_eval.cli import main
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


@pytest.mark.parametrize("line", ["seed=1", "tracking=none"])
def test_the_process_begins_before_the_command_and_is_ended_with_it(monkeypatch: pytest.MonkeyPatch, line: str):
    steps: list[str] = []
    monkeypatch.delitem(sys.modules, "mlflow", raising=False)
    monkeypatch.setattr(sys, "argv", ["run.py", line])
    monkeypatch.setattr(main.tracker_process, "start", lambda: steps.append("start"))
    monkeypatch.setattr(main.tracker_process, "stop", lambda: steps.append("stop"))

    def fails() -> None:
        steps.append("run")
        raise SystemExit(1)

    monkeypatch.setattr(main, "import_module", lambda _: SimpleNamespace(main=fails))
    with pytest.raises(SystemExit):
        main.main()
    assert steps == (["start", "run", "stop"] if line == "seed=1" else ["run", "stop"])


def test_none_begins_where_mlflow_is_imported_already(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "mlflow", sys)
    assert not _is_recorded([])
