"""What every command has around it: how it speaks, and how it ends."""

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
    """SIGTERM came, which stops a command as Ctrl-C does."""


@contextmanager
def command() -> Iterator[None]:
    """All that a command does, which ends as others expect: a mistake of its user with status 1 and a sentence, Ctrl-C
    and SIGTERM with 130 and 143, anything unforeseen with 1 and where it came from.
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
        sys.exit(1)


@contextmanager
def no_interrupt_lost() -> Iterator[None]:
    """Ctrl-C and SIGTERM come again, a moment later, where Python throws them away: it does so with whatever is raised
    while an object is ended (``__del__``, the callback of a weak reference).
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
    """What is wrong, on standard error: the sentence of a UserError, and of anything else where it came from."""
    if isinstance(problem, UserError):
        words = printable(str(problem))
    else:
        words = printable_lines("".join(traceback.format_exception(problem)))
    Console(stderr=True).print(Text.assemble(("error:", "bold red"), f" {words}"))


def _terminate(*_: object) -> NoReturn:
    raise Terminated
