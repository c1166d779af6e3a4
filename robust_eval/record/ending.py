"""How a run ended that did not finish: in words that can be sent to another process."""

import traceback
from typing import NamedTuple

from robust_eval.runtime.printable import printable_lines


class Ending(NamedTuple):
    """The reason, the traceback, and the status in MLflow: FAILED or KILLED."""

    reason: str
    trace: str
    status: str


class EndedElsewhereError(Exception):
    """A run has ended so in the process that measures."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.reason)
        self.ending = ending


def ending(problem: BaseException) -> Ending:
    """Return how a run ended that this exception has left."""
    if isinstance(problem, EndedElsewhereError):
        return problem.ending
    stopped = isinstance(problem, SystemExit) and problem.code in (130, 143)  # a job of a sweep, by a signal
    return Ending(
        printable_lines(f"{type(problem).__name__}: {problem}"),
        printable_lines("".join(traceback.format_exception(problem))),
        "KILLED" if stopped or isinstance(problem, KeyboardInterrupt) else "FAILED",
    )
