"""Progress bars at a terminal; silent anywhere else."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from robust_eval.runtime.console import Console
from robust_eval.runtime.printable import printable


@contextmanager
def progress(stage: str, total: int, unit: str, passing: bool = False) -> Iterator[Callable[[float, str], None]]:
    """Show a bar with rate and time left. Yields a function that takes how much more is done, and a status text.

    A ``passing`` bar is removed when it is done.
    """
    console = Console(stderr=True)
    columns: list[ProgressColumn] = [
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(unit),
        TimeRemainingColumn(),
        TextColumn("{task.fields[status]}", markup=False),
    ]
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=passing) as bar:
        task = bar.add_task(printable(stage), total=total, status="")

        def advance(share: float, status: str = "") -> None:
            bar.update(task, advance=share, status=printable(status))

        yield advance


class _Rate(ProgressColumn):
    """The rate over the whole step: blocks differ in size, so a momentary rate would jump."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        elapsed = task.elapsed or 0.0
        return Text(f"{task.completed / elapsed:.1f} {self._unit}/s" if elapsed > 0 and task.completed else "")
