"""A process that records a run: MLflow takes more than a second to import, in which this one can go on.

It serves one run (:mod:`robust_eval.record.run_beside`): it is sent what is to be recorded, in order, and answers each
message; what it logs and what is wrong comes back, so that people see it where they look. This module imports little:
the process can be started before anything else.
"""

import logging
import subprocess
import sys
from multiprocessing import Pipe
from typing import Any

from robust_eval.error import UserError

_BEGIN = (
    "import sys; sys.path[:] = sys.argv[2:]; "
    "from robust_eval.runtime.gc_tuning import collect_seldom; collect_seldom(); "
    "from robust_eval.record.run_beside import serve; serve(int(sys.argv[1]))"
)
LOG, DONE, REFUSED, CRASHED = "log", "done", "refused", "crashed"
"""Kinds of answers."""

_waiting: list["TrackerProcess"] = []
"""A process that was started before its run began."""


class TrackerProcess:
    """The process, seen from the one that measures. Calls do not wait; what came of them is read later."""

    def __init__(self) -> None:
        self._pipe, theirs = Pipe()
        self._unanswered = 0
        self._answer: Any = None
        self._over = False
        # A session of its own: Ctrl-C is for the process that measures, which says then how its run has ended.
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BEGIN, str(theirs.fileno()), *sys.path],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()

    def send(self, *message: Any) -> None:
        """Have something done after all that was sent before."""
        self._read(wait=False)
        self._unanswered += 1
        try:
            self._pipe.send(message)
        except OSError:
            self._read(wait=True)  # why it has ended

    def settle(self) -> Any:
        """Wait until all that was sent is done; return what came of the last message. UserError where it failed."""
        self._read(wait=True)
        return self._answer

    def stop(self) -> None:
        """End the process, whatever it does."""
        self._over = True
        self._pipe.close()
        self._process.kill()
        self._process.wait()

    @property
    def over(self) -> bool:
        """Whether it has ended because something was wrong."""
        return self._over

    def _read(self, wait: bool) -> None:
        while self._unanswered and (wait or self._pipe.poll()):
            try:
                kind, said = self._pipe.recv()
            except (EOFError, OSError):
                kind, said = REFUSED, "tracking: the process that records the run was ended from outside"
            if kind == LOG:
                logging.getLogger(said[0]).log(*said[1:])
                continue
            self._unanswered -= 1
            self._answer = said
            if kind != DONE:
                self._unanswered, self._over = 0, True
                raise UserError(said) if kind == REFUSED else RuntimeError(f"tracking: {said}")


def start() -> None:
    """Start a process for the run that is about to begin, so that it is ready then."""
    if not _waiting:
        _waiting.append(TrackerProcess())


def stop() -> None:
    """End a process whose run has not begun."""
    while _waiting:
        _waiting.pop().stop()


def taken() -> TrackerProcess:
    """Return the process that waits, or a new one."""
    return _waiting.pop() if _waiting else TrackerProcess()
