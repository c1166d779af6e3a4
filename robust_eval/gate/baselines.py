"""Baselines by name: a small file under ``mlruns/baselines`` names the run of each."""

import json
import re
from pathlib import Path

from robust_eval.error import OutageError, UserError
from robust_eval.runs.mlflow_runs import TrackedRuns
from robust_eval.runtime.files import write_text
from robust_eval.runtime.json_files import parsed_json

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,99}")


def set_baseline(mlruns: Path, name: str, run: str) -> None:
    """Set the run of a baseline: its folder, or its id in MLflow. A folder under ``mlruns`` is stored as relative."""
    if not _NAME.fullmatch(name):
        raise UserError(f"the name of a baseline may contain only letters, digits and . _ -, not {name!r}")
    path = Path(run)
    if path.is_dir():
        inside = path.resolve().is_relative_to(mlruns.resolve())
        run = str(path.resolve().relative_to(mlruns.resolve())) if inside else str(path.resolve())
    kind = "folder" if path.is_dir() else "id"
    file = _file(mlruns, name)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(json.dumps({kind: run}) + "\n", file)


def baseline_named(mlruns: Path, name: str) -> str | None:
    """Return the run of the baseline ``name``: a folder, or an id in MLflow; None if there is no such baseline."""
    if not _NAME.fullmatch(name) or not (file := _file(mlruns, name)).is_file():
        return None
    try:
        entry = parsed_json(file.read_text(encoding="utf-8"))
        if "folder" in entry:
            return str(mlruns / str(entry["folder"]))
        return str(entry["id"])
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise UserError(f"the baseline {name} is damaged ({file}); set it again") from problem


def folder_of(name: str, mlruns: Path, tracked: TrackedRuns) -> Path:
    """Return the folder of a run, from the name of a baseline, a folder, or an id in MLflow (whose files are
    downloaded).

    UserError if there is none.
    """
    target = baseline_named(mlruns, name)
    if target is None and Path(name).is_dir():
        return Path(name)
    if target is not None and (Path(target).is_dir() or len(Path(target).parts) > 1):  # an id is no path
        return Path(target)
    if target is not None:
        return tracked.fetched(target)
    try:
        return tracked.fetched(name)
    except OutageError:
        raise
    except UserError as problem:
        if not (names := baselines(mlruns)):
            raise
        raise UserError(f"there is no baseline {name} (baselines are {', '.join(names)}); {problem}") from problem


def baselines(mlruns: Path) -> list[str]:
    """Return the names of all baselines of gates, sorted."""
    return sorted(file.stem for file in (mlruns / "baselines").glob("*.json"))


def _file(mlruns: Path, name: str) -> Path:
    return mlruns / "baselines" / f"{name}.json"
