"""Progress bars at a terminal and in a notebook; silent anywhere else."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib.util import find_spec

from rich.console import Console as RichConsole
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from robust_eval.runtime.console import Console
from robust_eval.runtime.printable import printable


def silence_tqdm() -> None:
    """Switch off the progress bars of libraries that are imported from now on: this program draws its own."""
    for switch in ("TQDM_DISABLE", "HF_HUB_DISABLE_PROGRESS_BARS", "HF_DATASETS_DISABLE_PROGRESS_BARS"):
        os.environ.setdefault(switch, "1")


@contextmanager
def progress(stage: str, total: int, unit: str, passing: bool = False) -> Iterator[Callable[[float, str], None]]:
    """Show a bar with rate and time left. Yields a function that takes how much more is done, and a status text.

    A ``passing`` bar is removed when it is done.
    """
    console = Console(stderr=True)
    with Progress(*columns(unit), console=console, disable=not shows_bars(console), transient=passing) as bar:
        task = bar.add_task(printable(stage), total=total, status="")

        def advance(share: float, status: str = "") -> None:
            bar.update(task, advance=share, status=printable(status))

        yield advance


def shows_bars(console: RichConsole) -> bool:
    """Return whether bars can be drawn: at a terminal, or in a notebook that has the package for it."""
    return console.is_terminal or (console.is_jupyter and find_spec("ipywidgets") is not None)


def columns(unit: str) -> list[ProgressColumn]:
    """Return what stands in a bar, from left to right."""
    return [
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(unit),
        _TimeLeft(),
        TextColumn("{task.fields[status]}", markup=False),
    ]


class _Rate(ProgressColumn):
    """The rate over the whole step: blocks differ in size, so a momentary rate would jump."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        rate = task.completed / task.elapsed if task.elapsed else 0.0
        return Text(f"{rate:{'.1f' if rate >= 1 else '.2g'}} {self._unit}/s" if rate else "")


class _TimeLeft(ProgressColumn):
    """How long the rest takes at this rate; known when the first block is done."""

    def render(self, task: Task) -> Text:
        if not task.completed or task.remaining is None or task.elapsed is None:
            return Text("-:--:--", style="progress.remaining")
        seconds = task.remaining * task.elapsed / task.completed
        return Text(str(timedelta(seconds=round(max(seconds, 0)))), style="progress.remaining")
