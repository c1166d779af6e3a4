"""Baselines by name: a small file under ``mlruns/baselines`` says which run stands for each."""

import json
import re
from pathlib import Path

from robust_eval.error import OutageError, UserError
from robust_eval.runs.mlflow_runs import TrackedRuns
from robust_eval.runtime.files import parsed_json

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,99}")


def set_baseline(mlruns: Path, name: str, run: str) -> None:
    """Let a name stand for a run: its folder, or its id in MLflow. A folder under ``mlruns`` may move with it."""
    if not _NAME.fullmatch(name):
        raise UserError(f"a baseline is called by letters, digits and . _ -, not {name!r}")
    where = Path(run)
    if where.is_dir():
        inside = where.resolve().is_relative_to(mlruns.resolve())
        run = str(where.resolve().relative_to(mlruns.resolve())) if inside else str(where.resolve())
    kind = "folder" if where.is_dir() else "id"
    file = _file(mlruns, name)
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"{file.name}.partial")
    partial.write_text(json.dumps({kind: run}) + "\n", encoding="utf-8")
    partial.replace(file)


def baseline_named(mlruns: Path, name: str) -> str | None:
    """Return the run that a name stands for: a folder, or an id in MLflow; None where it stands for none."""
    if not _NAME.fullmatch(name) or not (file := _file(mlruns, name)).is_file():
        return None
    try:
        found = parsed_json(file.read_text(encoding="utf-8"))
        if "folder" in found:
            return str(mlruns / str(found["folder"]))
        return str(found["id"])
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise UserError(f"the baseline {name} is damaged ({file}); set it again") from problem


def folder_of(name: str, mlruns: Path, tracked: TrackedRuns) -> Path:
    """Return the folder of a run that is called by the name of a baseline, its folder, or its id in MLflow, from where
    its files are fetched. UserError where there is none.
    """
    stands_for = baseline_named(mlruns, name)
    if stands_for is None and Path(name).is_dir():
        return Path(name)
    if stands_for is not None and Path(stands_for).is_absolute() | Path(stands_for).is_relative_to(mlruns):
        return Path(stands_for)
    if stands_for is not None:
        return tracked.fetched(stands_for)
    try:
        return tracked.fetched(name)
    except OutageError:
        raise
    except UserError as problem:
        if not (there := baselines(mlruns)):
            raise
        raise UserError(f"there is no baseline {name} (there are {', '.join(there)}); {problem}") from problem


def baselines(mlruns: Path) -> list[str]:
    """Return all names, sorted."""
    return sorted(file.stem for file in (mlruns / "baselines").glob("*.json"))


def _file(mlruns: Path, name: str) -> Path:
    return mlruns / "baselines" / f"{name}.json"
