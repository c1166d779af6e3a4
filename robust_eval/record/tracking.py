"""What a tracker can be asked to record, and the one that records nothing."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from robust_eval.metric.score import Score
from robust_eval.question import Question
from robust_eval.record.logged_values import Point


class Tracking(Protocol):
    """A place where runs are recorded; a dataclass whose fields are its configuration."""

    def run(self, name: str, mlruns: Path) -> AbstractContextManager["Run"]:
        """Record the run that happens within the context. An exception that leaves the context marks it as failed."""

    def sweep(self, name: str, mlruns: Path, folder: Path) -> AbstractContextManager["Run"]:
        """Record a sweep. The runs that happen within the context, in any process, become its children."""

    def beside(self) -> bool:
        """Tell whether a run is better recorded by a process of its own (robust_eval.record.run_beside)."""

    def command(self, mlruns: Path) -> str | None:
        """Return the command that shows the runs, if there is one."""


class Run(Protocol):
    """A run that is being recorded."""

    @property
    def run_id(self) -> str | None:
        """The id under which it is recorded; None where it is not."""

    def leave_id(self, file: Path) -> None:
        """Write the id into a file; nothing where the run is not recorded."""

    def parameters(self, values: Mapping[str, Any]) -> None:
        """Record settings, flat."""

    def tags(self, values: Mapping[str, str]) -> None:
        """Record what describes the run and is not a setting."""

    def dataset(self, name: str, source: str, questions: Sequence[Question], digest: str) -> None:
        """Record the questions, their source and their fingerprint."""

    def scores(self, scores: Sequence[Score], figures: Mapping[str, float]) -> None:
        """Record the figures of the metrics that a person wants first, with their intervals, and other flat figures.

        Of a curve, the values at telling temperatures are figures. The whole curve is under ``curve/``, by step.
        """

    def note(self, markdown: str) -> None:
        """Record the note that a reader sees first."""

    def tables(self, tables: Mapping[str, pa.Table]) -> None:
        """Record short tables by name, to be read in the tracker itself."""

    def folder(self, path: Path) -> None:
        """Record all files of the run's folder as artifacts."""

    def discard(self) -> None:
        """Delete the record of a run that has asked nothing."""


@dataclass
class Untracked:
    """tracking=none: a run leaves its folder and nothing else, and MLflow is not imported."""

    @contextmanager
    def run(self, name: str, mlruns: Path) -> Iterator[Run]:
        """Record nothing."""
        yield NothingRecorded()

    def sweep(self, name: str, mlruns: Path, folder: Path) -> AbstractContextManager["Run"]:
        """Record nothing."""
        return nullcontext(NothingRecorded())

    def beside(self) -> bool:
        """Return False: there is nothing to record."""
        return False

    def command(self, mlruns: Path) -> str | None:
        """Return None: there is no user interface."""
        return None


class NothingRecorded:
    """A run that leaves nothing in a tracker; see :class:`Run`. It also takes what another process sends for the
    questions and the scores (:mod:`robust_eval.record.run_beside`).
    """

    run_id = None

    def leave_id(self, file: Path) -> None: ...

    def parameters(self, values: Mapping[str, Any]) -> None: ...

    def tags(self, values: Mapping[str, str]) -> None: ...

    def dataset(self, name: str, source: str, questions: Sequence[Question], digest: str) -> None: ...

    def scores(self, scores: Sequence[Score], figures: Mapping[str, float]) -> None: ...

    def rows(self, name: str, source: str, columns: Mapping[str, Sequence[str]], digest: str) -> None: ...

    def metrics(self, points: Sequence[Point]) -> None: ...

    def note(self, markdown: str) -> None: ...

    def tables(self, tables: Mapping[str, pa.Table]) -> None: ...

    def folder(self, path: Path) -> None: ...

    def discard(self) -> None: ...
