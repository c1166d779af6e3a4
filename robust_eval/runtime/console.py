"""Console, the terminal output: printed text, log lines and progress bars."""

import copy
import logging
import math
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from importlib.util import find_spec
from threading import Event, Thread
from time import monotonic
from typing import Any, NoReturn

from rich import console
from rich.console import Console as RichConsole
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from robust_eval.runtime.text import duration, printable, printable_lines

log = logging.getLogger(__name__)

HEARTBEAT = 60.0
"""Seconds between the lines on a stage where no bar is drawn."""
DEFAULT_WIDTH = 80
"""Width in characters if the environment says that the window has none."""


class Console(console.Console):
    """Rich console without markup, which prints invisible characters as escapes."""

    def __init__(self, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, soft_wrap=True, markup=False, emoji=False)
        if self.width < 1:  # COLUMNS=0, at which rich prints nothing
            self.width = DEFAULT_WIDTH

    def render_str(self, text: str, **settings: Any) -> Text:
        """Make a text printable for the console; rich calls this for all texts, those in cells of tables included."""
        return super().render_str(printable_lines(text), **settings)

    def print_sentence(self, text: str) -> None:
        """Print a sentence, at a terminal in lines that end between words; words are never broken."""
        if self.is_terminal:
            lines = self.render_str(text, overflow="ignore").wrap(self, self.width)  # print alone would not wrap
            text = "\n".join(line.plain.rstrip() for line in lines)
        self.print(text)

    def on_broken_pipe(self) -> NoReturn:
        """Exit silently when the console's reader has ended (``| head``), with the status of SIGPIPE."""
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self.file.fileno())  # no message at the end of the process
        os.close(null)
        sys.exit(128 + signal.SIGPIPE)


class Formatter(logging.Formatter):
    """Log formatter that writes each message on one line and indents the lines of a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        record = copy.copy(record)
        record.exc_text = None  # cached by another formatter
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        record.message = record.message.replace("\t", " ").strip()  # Hydra indents the jobs of a sweep by a tab
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802
        return _indented(super().formatStack(stack_info))


def configure_logging() -> None:
    """Log warnings, errors and the progress of stages to standard error, without time or logger name."""
    handler = logging.StreamHandler()
    handler.setFormatter(Formatter("%(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    log.setLevel(logging.INFO)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in printable_lines(text).split("\n"))


def silence_tqdm() -> None:
    """Switch off the progress bars of libraries that are imported later: this program draws its own."""
    for switch in ("TQDM_DISABLE", "HF_HUB_DISABLE_PROGRESS_BARS", "HF_DATASETS_DISABLE_PROGRESS_BARS"):
        os.environ.setdefault(switch, "1")


class StageProgress:
    """Progress of a stage by a ``clock`` in seconds: the completed part, the rate, and the time left at that rate.

    The rate is measured up to the last step, so that the time left counts down between the blocks of a model.
    """

    def __init__(self, stage: str, total: float, unit: str, clock: Callable[[], float] = monotonic) -> None:
        self._stage, self._total, self._unit, self._clock = stage, total, unit, clock
        self._done, self._status = 0.0, ""
        self._start = self._last_step = clock()

    def advance(self, increment: float, status: str = "") -> None:
        """Add a completed ``increment`` to the progress, and set the status text."""
        self._done, self._status = self._done + increment, printable(status)
        if increment:
            self._last_step = self._clock()

    def rate(self) -> str:
        """Return the rate of progress in words; empty before the first step."""
        seconds = self._last_step - self._start
        if not self._done or not seconds:
            return ""
        rate = self._done / seconds
        return f"{rate:.1f} {self._unit}/s" if rate >= 1 else f"{1 / rate:.1f} s per {self._unit.removesuffix('s')}"

    def seconds_left(self) -> float | None:
        """Return the time left for the stage; None before the first step, and when a step exceeds that time."""
        if not self._done:
            return None
        left = self._start + (self._last_step - self._start) * self._total / self._done - self._clock()
        return left if left >= 0 else 0.0 if math.isclose(self._done, self._total) else None

    def in_words(self) -> str:
        """Return the progress in words, such as "sampled answers: 84 of 203 (41 %), about 9 min left"."""
        seconds = self.seconds_left()
        so_far = f"{duration(self._clock() - self._start)} so far"
        time = so_far if seconds is None else f"about {duration(seconds)} left"
        percent = 100 * self._done / max(self._total, 1)
        done = f"{self._stage}: {self._done:,.0f} of {self._total:,} ({percent:.0f} %)"
        return ", ".join(filter(None, [done, time, self._status]))


_stages: ContextVar[list[Callable[[], str]]] = ContextVar("stages")
"""Descriptions of the current stages of this thread or task, the innermost last; unset without a stage."""


@contextmanager
def heartbeat(describe: Callable[[], str]) -> Iterator[None]:
    """Without a visible bar, log the description of the innermost current stage once a minute."""
    if stages := _stages.get([]):
        depth = len(stages)
        try:
            stages.append(describe)
            yield
        finally:
            del stages[depth:]
    elif shows_bars(Console(stderr=True)):
        yield
    else:
        stages, ended = [describe], Event()
        thread = Thread(target=_log_each_minute, args=[stages, ended], daemon=True)
        try:
            _stages.set(stages)
            thread.start()
            yield
        finally:
            _stages.set([])
            ended.set()
            if thread.ident is not None:
                thread.join()


def _log_each_minute(stages: Sequence[Callable[[], str]], ended: Event) -> None:
    while not ended.wait(HEARTBEAT):
        log.info(stages[-1]())


@contextmanager
def progress(
    stage: str, total: int, unit: str, transient: bool = False, clock: Callable[[], float] = monotonic
) -> Iterator[Callable[[float, str], None]]:
    """Show a progress bar with rate and time left; without a terminal, log a line a minute. Yields a function of the
    increment and a status text. A ``transient`` bar is removed at the end.
    """
    console = Console(stderr=True)
    measured = StageProgress(printable(stage), total, unit, clock)
    with (
        heartbeat(measured.in_words),
        Progress(*columns(measured), console=console, disable=not shows_bars(console), transient=transient) as bar,
    ):
        task = bar.add_task(printable(stage), total=total, status="")

        def advance(increment: float, status: str = "") -> None:
            measured.advance(increment, status)
            bar.update(task, advance=increment, status=printable(status))

        yield advance


def shows_bars(console: RichConsole) -> bool:
    """Return True if progress bars can be drawn: at a terminal, or in a notebook with ipywidgets."""
    at_terminal = console.is_interactive and console.file.isatty()  # FORCE_COLOR alone makes rich interactive
    return at_terminal or (console.is_jupyter and find_spec("ipywidgets") is not None)


def columns(measured: StageProgress) -> list[ProgressColumn]:
    """Return the columns of a progress bar, from left to right."""
    return [
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        CallbackColumn(measured.rate),
        CallbackColumn(lambda: _clock_time(measured.seconds_left())),
        TextColumn("{task.fields[status]}", markup=False),
    ]


class CallbackColumn(ProgressColumn):
    """Column of a progress bar with the current text of a function."""

    def __init__(self, text: Callable[[], str]) -> None:
        super().__init__()
        self._text = text

    def render(self, task: Task) -> Text:
        return Text(self._text())


def _clock_time(seconds: float | None) -> str:
    return "-:--:--" if seconds is None else str(timedelta(seconds=round(seconds)))
