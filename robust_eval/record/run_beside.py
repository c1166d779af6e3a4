"""A run that another process records (:mod:`robust_eval.record.tracker_process`): both sides of what is sent.

That process is sent what a :class:`robust_eval.record.mlflow_run.MlflowRun` is to record.
"""

import logging
import os
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa

from robust_eval.error import UserError, first_line
from robust_eval.metric.score import Score
from robust_eval.question import Question
from robust_eval.record.ending import EndedElsewhereError, Ending, ending
from robust_eval.record.logged_values import metric_points, question_columns
from robust_eval.record.mlflow_tracker import GONE, import_what_a_run_needs
from robust_eval.record.tracker_process import CRASHED, DONE, LOG, REFUSED, TrackerProcess, taken
from robust_eval.record.tracking import Tracking

log = logging.getLogger(__name__)

_ID, _END, _FAIL = "run_id", "end", "fail"


class RunBeside:
    """A run that is recorded by another process; see :class:`robust_eval.record.tracking.Run`."""

    def __init__(self, process: TrackerProcess) -> None:
        self._process = process

    @cached_property
    def run_id(self) -> str | None:
        """The id under which it is recorded. Whoever asks first waits for it."""
        self._process.send(_ID)
        found: str | None = self._process.settle()
        return found

    def leave_id(self, file: Path) -> None:
        self._process.send("leave_id", file.absolute())

    def parameters(self, values: Mapping[str, Any]) -> None:
        self._process.send("parameters", {name: str(value) for name, value in values.items()})

    def tags(self, values: Mapping[str, str]) -> None:
        self._process.send("tags", dict(values))

    def dataset(self, name: str, source: str, questions: Sequence[Question], digest: str) -> None:
        self._process.send("rows", name, source, question_columns(questions), digest)

    def scores(self, scores: Sequence[Score], figures: Mapping[str, float]) -> None:
        self._process.send("metrics", metric_points(scores, figures))

    def note(self, markdown: str) -> None:
        self._process.send("note", markdown)

    def tables(self, tables: Mapping[str, pa.Table]) -> None:
        self._process.send("tables", dict(tables))

    def folder(self, path: Path) -> None:
        self._process.send("folder", path.absolute())

    def discard(self) -> None:
        self._process.send("discard")


@contextmanager
def recorded_beside(tracking: Tracking, name: str, mlruns: Path) -> Iterator[RunBeside]:
    """Record a run as ``tracking.run`` does, in a process of its own.

    A store that cannot be used is a UserError at the first call that waits: of ``run_id``, or the end of the context.
    """
    process = taken()
    try:
        process.send(tracking, name, mlruns, sys.argv)
        try:
            yield RunBeside(process)
            process.send(_END)
            process.settle()
        except BaseException as problem:
            if not process.over:
                _end_as(process, problem)
            raise
    finally:
        process.stop()


def _end_as(process: TrackerProcess, problem: BaseException) -> None:
    """Have it recorded how the run has ended. That it cannot be is no more than a warning beside that."""
    try:
        process.send(_FAIL, ending(problem))
        process.settle()
    except (UserError, RuntimeError) as second:
        log.warning("the run could not be marked as failed: %s", first_line(second))


class _Answers(logging.Handler):
    """Sends answers, and what is logged meanwhile, to the process that measures."""

    def __init__(self, pipe: Connection) -> None:
        super().__init__(logging.WARNING)
        self._pipe = pipe

    def send(self, kind: str, said: object) -> None:
        """Send an answer, or a line of the log; nothing where nobody is left to read it."""
        self.acquire()  # a thread of the tracker may log something
        try:
            self._pipe.send((kind, said))
        except OSError:
            pass
        finally:
            self.release()

    def emit(self, record: logging.LogRecord) -> None:
        self.send(LOG, (record.name, record.levelno, "%s", record.getMessage()))


def serve(descriptor: int) -> None:
    """Record the run that comes through this pipe, and end the process. MLflow is imported before the run comes.

    Where the other process is gone without a word, the run is recorded as killed.
    """
    pipe = Connection(descriptor)
    answers = _Answers(pipe)
    logging.getLogger().addHandler(answers)
    try:
        import_what_a_run_needs()
        try:
            tracking, name, mlruns, sys.argv[:] = pipe.recv()  # MLflow records what the program is called
        except (EOFError, OSError):  # the run never began
            os._exit(0)
        with tracking.run(name, mlruns) as record:
            _serve(pipe, answers, record)
        answers.send(DONE, None)
    except EndedElsewhereError:
        answers.send(DONE, None)
    except UserError as problem:
        answers.send(REFUSED, str(problem))
    except Exception as problem:
        answers.send(CRASHED, "".join(traceback.format_exception(problem)))
    os._exit(0)  # nothing is left to be put in order, which takes a while


def _serve(pipe: Connection, answers: _Answers, record: Any) -> None:
    """Do what is asked for until the run ends; EndedElsewhereError where it did not finish."""
    answers.send(DONE, None)
    while True:
        try:
            called, *arguments = pipe.recv()
        except (EOFError, OSError):  # the latter where it left answers unread
            raise EndedElsewhereError(Ending(GONE, GONE, "KILLED")) from None
        if called == _END:
            return
        if called == _FAIL:
            raise EndedElsewhereError(*arguments)
        answers.send(DONE, record.run_id if called == _ID else getattr(record, called)(*arguments))
