"""Process of a command: signals, exit statuses, locks, open files, and the times of its stages."""

import io
import os
import shlex
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import NoReturn

from filelock import FileLock
from rich.text import Text

from robust_eval.error import UserError
from robust_eval.runtime.console import Console, heartbeat
from robust_eval.runtime.text import duration, printable, printable_lines

RESEND_DELAY = 0.05
"""Seconds after which an interrupt that Python has discarded is sent again."""


class Terminated(KeyboardInterrupt):
    """Interrupt by SIGTERM, which stops a command as Ctrl-C does."""


@contextmanager
def command(mistake: int = 1, failure: int = 1) -> Iterator[None]:
    """Wrap the body of a command and set its exit status.

    A UserError exits with the status ``mistake`` and one sentence, Ctrl-C with 130, SIGTERM with 143, any other
    exception with the status ``failure`` and a traceback.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _terminate)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # an ASCII terminal shows κ as \u03ba
    try:
        with resend_lost_interrupts():
            yield
    except KeyboardInterrupt as problem:
        sys.exit(128 + (signal.SIGTERM if isinstance(problem, Terminated) else signal.SIGINT))
    except Exception as problem:
        print_error(problem)
        sys.exit(mistake if isinstance(problem, UserError) else failure)


@contextmanager
def resend_lost_interrupts() -> Iterator[None]:
    """Send signals (Ctrl-C, SIGTERM) again, a moment later, when Python ignores them, as it does with every exception
    in a ``__del__`` method or in the callback of a weak reference.
    """

    def hook(unraisable: "sys.UnraisableHookArgs") -> None:
        """Send the lost signal again; pass any other exception on."""
        if isinstance(unraisable.exc_value, KeyboardInterrupt):
            number = signal.SIGTERM if isinstance(unraisable.exc_value, Terminated) else signal.SIGINT
            main = threading.main_thread().ident
            threading.Timer(RESEND_DELAY, signal.pthread_kill, [main, number]).start()
        else:
            previous_hook(unraisable)

    previous_hook, sys.unraisablehook = sys.unraisablehook, hook
    try:
        yield
    finally:
        sys.unraisablehook = previous_hook


def print_error(problem: Exception) -> None:
    """Print a command's error to standard error: the sentence of a UserError, the traceback of any other exception."""
    if isinstance(problem, UserError):
        message = printable(str(problem))
    else:
        message = printable_lines("".join(traceback.format_exception(problem)))
    Console(stderr=True).print(Text.assemble(("error:", "bold red"), f" {message}"))


def _terminate(*_: object) -> NoReturn:
    raise Terminated


_LOCKS: dict[tuple[int, Path], FileLock] = {}


def process_lock(file: Path) -> FileLock:
    """Return this process's only lock of a file, which lives until the process ends.

    A lock that is garbage-collected would lose a Ctrl-C in ``FileLock.__del__``. A fork cannot use an inherited lock,
    so each process has its own.
    """
    key = os.getpid(), file.absolute()
    if key not in _LOCKS:
        _LOCKS[key] = FileLock(key[1])
    return _LOCKS[key]


RESERVED_FILES = 32
"""Number of open files besides connections: the store, locks, tables, the tracker's database."""


def allow_connections(number: int, setting: str) -> None:
    """Raise the process's limit of open files for ``number`` connections, the value of ``setting``; UserError above the
    hard limit.
    """
    try:
        import resource

        reserved = len(os.listdir("/dev/fd")) + RESERVED_FILES
    except (ImportError, OSError):  # Windows has no such limit, and a container may hide the open files
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = number + reserved
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return
    if hard != resource.RLIM_INFINITY and needed > hard:
        max_connections = hard - reserved
        lower = f"{setting}={max_connections}, or " if max_connections > 0 else ""
        raise UserError(
            f"{setting}={number} needs about {needed} open files, but the hard limit is {hard} (ulimit -Hn): "
            f"set {lower}a higher limit"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def timestamp() -> str:
    """Return the time of the call as the path of a new folder: DATE/TIME."""
    return datetime.now().strftime("%Y-%m-%d/%H-%M-%S-%f")


class Stopwatch:
    """Stopwatch of stages; ``seconds`` maps their names to wall-clock seconds."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inner = 0.0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure the block under this name, except the stages inside it. Blocks of one name add up."""
        start = time.perf_counter()
        before, self._inner = self._inner, 0.0
        try:
            with heartbeat(lambda: f"{name}: {duration(time.perf_counter() - start)} so far"):
                yield
        finally:
            seconds = time.perf_counter() - start
            self.seconds[name] = round(self.seconds.get(name, 0.0) + seconds - self._inner, 3)
            self._inner = before + seconds


def typed_command() -> str:
    """Return the command that started this process, with the names of programs instead of their paths."""
    first, *words = sys.orig_argv
    script = [Path(word).name if Path(word).is_absolute() else word for word in words[:1]]
    program = [] if script and not script[0].startswith("-") and not script[0].endswith(".py") else [Path(first).name]
    return shlex.join([*program, *script, *words[1:]])
