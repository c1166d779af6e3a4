"""How every command prints its errors, ends, and handles signals."""

import io
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from rich.text import Text

from robust_eval.error import UserError
from robust_eval.runtime.console import Console
from robust_eval.runtime.printable import printable, printable_lines

AGAIN = 0.05
"""Seconds after which an interrupt comes again that Python has thrown away."""


class Terminated(KeyboardInterrupt):
    """SIGTERM was received; it stops a command as Ctrl-C does."""


@contextmanager
def command(mistake: int = 1, failure: int = 1) -> Iterator[None]:
    """Wrap all that a command does, and set its exit status.

    A UserError exits with the status ``mistake`` and one sentence, Ctrl-C with 130, SIGTERM with 143, any other
    exception with the status ``failure`` and a traceback.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _terminate)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that knows ASCII alone shows κ as \u03ba
    try:
        with no_interrupt_lost():
            yield
    except KeyboardInterrupt as problem:
        sys.exit(128 + (signal.SIGTERM if isinstance(problem, Terminated) else signal.SIGINT))
    except Exception as problem:
        say(problem)
        sys.exit(mistake if isinstance(problem, UserError) else failure)


@contextmanager
def no_interrupt_lost() -> Iterator[None]:
    """Send Ctrl-C and SIGTERM again, a moment later, where Python ignores them.

    Python ignores every exception that is raised in a ``__del__`` method or in the callback of a weak reference.
    """

    def hook(thrown: "sys.UnraisableHookArgs") -> None:
        if isinstance(thrown.exc_value, KeyboardInterrupt):
            number = signal.SIGTERM if isinstance(thrown.exc_value, Terminated) else signal.SIGINT
            main = threading.main_thread().ident
            threading.Timer(AGAIN, signal.pthread_kill, [main, number]).start()  # wakes it where it waits as well
        else:
            before(thrown)

    before, sys.unraisablehook = sys.unraisablehook, hook
    try:
        yield
    finally:
        sys.unraisablehook = before


def say(problem: Exception) -> None:
    """Print what is wrong to standard error: the sentence of a UserError, the traceback of any other exception."""
    if isinstance(problem, UserError):
        words = printable(str(problem))
    else:
        words = printable_lines("".join(traceback.format_exception(problem)))
    Console(stderr=True).print(Text.assemble(("error:", "bold red"), f" {words}"))


def _terminate(*_: object) -> NoReturn:
    raise Terminated
