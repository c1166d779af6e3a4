"""Terminal output: printed text, log lines and progress bars."""

import copy
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib.util import find_spec
from typing import Any, NoReturn

from rich import console
from rich.console import Console as RichConsole
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from robust_eval.runtime.text import printable, printable_lines


class Console(console.Console):
    """Rich console without markup that prints invisible characters as escapes."""

    def __init__(self, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, soft_wrap=True, markup=False, emoji=False)

    def render_str(self, text: str, **settings: Any) -> Text:
        """Make a text printable. All texts pass here before they are laid out, those in cells of tables as well."""
        return super().render_str(printable_lines(text), **settings)

    def on_broken_pipe(self) -> NoReturn:
        """Exit silently where the reader has gone (``| head``), with the status of a command that SIGPIPE ended."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.file.fileno())  # so that nothing more is said when the process ends
        os.close(nowhere)
        sys.exit(128 + signal.SIGPIPE)


class Formatter(logging.Formatter):
    """Writes each message on one line, whatever it quotes, and indents the lines of a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        record = copy.copy(record)
        record.exc_text = None  # as another formatter may have left it
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802
        return _indented(super().formatStack(stack_info))


def log_plainly() -> None:
    """Log warnings and errors to standard error, without time or logger name."""
    handler = logging.StreamHandler()
    handler.setFormatter(Formatter("%(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in printable_lines(text).split("\n"))


def silence_tqdm() -> None:
    """Switch off the progress bars of libraries that are imported from now on: this program draws its own."""
    for switch in ("TQDM_DISABLE", "HF_HUB_DISABLE_PROGRESS_BARS", "HF_DATASETS_DISABLE_PROGRESS_BARS"):
        os.environ.setdefault(switch, "1")


@contextmanager
def progress(stage: str, total: int, unit: str, transient: bool = False) -> Iterator[Callable[[float, str], None]]:
    """Show a bar with rate and time left. Yields a function of the increment and a status text.

    A ``transient`` bar is removed when it is done.
    """
    console = Console(stderr=True)
    with Progress(*columns(unit), console=console, disable=not shows_bars(console), transient=transient) as bar:
        task = bar.add_task(printable(stage), total=total, status="")

        def advance(share: float, status: str = "") -> None:
            bar.update(task, advance=share, status=printable(status))

        yield advance


def shows_bars(console: RichConsole) -> bool:
    """Return True if bars can be drawn: at a terminal, or in a notebook that has the package for it."""
    return console.is_terminal or (console.is_jupyter and find_spec("ipywidgets") is not None)


def columns(unit: str) -> list[ProgressColumn]:
    """Return the columns of a bar, from left to right."""
    return [
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(unit),
        _TimeLeft(),
        TextColumn("{task.fields[status]}", markup=False),
    ]


class _Rate(ProgressColumn):
    """Rate over the whole step: blocks differ in size, so a momentary rate would jump."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        rate = task.completed / task.elapsed if task.elapsed else 0.0
        return Text(f"{rate:{'.1f' if rate >= 1 else '.2g'}} {self._unit}/s" if rate else "")


class _TimeLeft(ProgressColumn):
    """Time left at this rate; known when the first block is done."""

    def render(self, task: Task) -> Text:
        if not task.completed or task.remaining is None or task.elapsed is None:
            return Text("-:--:--", style="progress.remaining")
        seconds = task.remaining * task.elapsed / task.completed
        return Text(str(timedelta(seconds=round(max(seconds, 0)))), style="progress.remaining")
