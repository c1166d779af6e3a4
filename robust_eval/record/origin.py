"""What started a run, when, in what, and under which id it is recorded."""

import shlex
import sys
from datetime import datetime
from pathlib import Path

from robust_eval.runtime.process import environment


def origin(run_id: str | None) -> dict[str, str]:
    """Return the command of this process, the time, the id of the run, and the versions; unknown ones are left out."""
    versions = {name: value for name, value in environment().items() if value not in ("none", "not installed")}
    found = {"command": typed_command(), "time": f"{datetime.now().astimezone():%d %B %Y, %H:%M %Z}"}
    return found | ({} if run_id is None else {"run id": run_id}) | versions


def typed_command() -> str:
    """Return the command that started this process, with programs called by their names."""
    first, *words = sys.orig_argv
    named = [Path(word).name if Path(word).is_absolute() else word for word in words[:1]]
    program = [] if named and not named[0].startswith("-") and not named[0].endswith(".py") else [Path(first).name]
    return shlex.join([*program, *named, *words[1:]])
