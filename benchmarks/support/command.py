"""The command line of every benchmark: its sizes, ``--quick`` and ``--json``."""

import argparse
import json
import math
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robust_eval.runtime.versions import origin

UNDEFINED = "undefined"
"""In place of a figure that is NaN, which JSON does not know."""


class Command(argparse.ArgumentParser):
    """Reads the arguments of a benchmark, which describes itself."""

    def __init__(self, description: str | None) -> None:
        super().__init__(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
        self.add_argument("--quick", action="store_true", help="in seconds: it shows that the code runs, and no more")
        self.add_argument("--json", type=Path, metavar="FILE", help="write the figures")

    def options(self, **quick: Any) -> argparse.Namespace:
        """The arguments; with ``--quick`` those that are not given have the values of ``quick``."""
        if self.parse_args().quick:
            self.set_defaults(**quick)
            print("--quick: this shows that the code runs, and no more", file=sys.stderr)
        return self.parse_args()


def write_figures(file: Path | None, figures: Mapping[str, float | str]) -> None:
    """Write the figures as one flat JSON object, if a file is named, and after them what they are of: the command, the
    time, the machine, the versions, the commit.
    """
    if file:
        known = {
            name: UNDEFINED if isinstance(value, float) and math.isnan(value) else value
            for name, value in figures.items()
        }
        known |= {f"origin.{name}": value for name, value in (origin(None) | processor()).items()}
        known["origin.command"] = without_paths(str(known["origin.command"]))
        file.write_text(json.dumps(known, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def without_paths(command: str) -> str:
    """A command without the file that it writes, and with the names of other files in place of where they lie."""
    words = shlex.split(command)
    if "--json" in words:
        del words[words.index("--json") : words.index("--json") + 2]
    return shlex.join(Path(word).name if Path(word).is_absolute() else word for word in words)


def processor() -> dict[str, str]:
    """The name of the processor, how many cores this process may use, and how threads of OpenMP wait."""
    listed = Path("/proc/cpuinfo")
    lines = listed.read_text().splitlines() if listed.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    waiting = [f"{name}={os.environ[name]}" for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT") if name in os.environ]
    return {
        "processor": names[0] if names else platform.machine(),
        "cores": str(len(os.sched_getaffinity(0))),
        "waiting threads": ", ".join(waiting),
    }


def of_its_own(file: str, *case: object) -> Any:
    """What a benchmark prints last of a ``--case``, in a process of its own."""
    command = [sys.executable, file, "--case", *map(str, case)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(output.splitlines()[-1])


def peak_megabytes() -> float:
    """The most memory that this process has taken; resource.getrusage would count what its parent took."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 2**10 for line in status if line.startswith("VmHWM"))
