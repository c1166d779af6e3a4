"""What a tracker can be asked to record, and the one that records nothing."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from robust_eval.metric.score import Score
from robust_eval.question import Question


class Tracking(Protocol):
    """A place where runs are recorded; a dataclass whose fields are its configuration."""

    def run(self, name: str, mlruns: Path) -> AbstractContextManager["Run"]:
        """Record the run that happens inside of the context; one that is left by an exception has failed."""

    def sweep(self, name: str, mlruns: Path, folder: Path) -> AbstractContextManager["Run"]:
        """Record a sweep: the runs that happen inside of the context, in any process, become its children."""

    def command(self, mlruns: Path) -> str | None:
        """The command that shows the runs, if there is one."""


class Run(Protocol):
    """A run that is being recorded."""

    def parameters(self, values: Mapping[str, Any]) -> None:
        """Settings, flat."""

    def tags(self, values: Mapping[str, str]) -> None:
        """What describes the run without being a setting."""

    def dataset(self, name: str, source: str, questions: Sequence[Question], digest: str) -> None:
        """The questions, where they are from, and their fingerprint."""

    def scores(self, scores: Sequence[Score], figures: Mapping[str, float]) -> None:
        """The metrics' figures, of curves those at telling temperatures, and other flat figures; whole curves under
        ``curve/``, by integer step.
        """

    def note(self, markdown: str) -> None:
        """What is read first of the run."""

    def tables(self, tables: Mapping[str, pa.Table]) -> None:
        """Short tables by name, to be read in the tracker itself."""

    def folder(self, path: Path) -> None:
        """Everything in the run's folder, as artifacts."""

    def discard(self) -> None:
        """Leave nothing of it: nothing was asked."""


@dataclass
class Untracked:
    """tracking=none: the run's folder is all that is left of a run, and MLflow is not imported."""

    @contextmanager
    def run(self, name: str, mlruns: Path) -> Iterator[Run]:
        """A run that is recorded nowhere."""
        yield NothingRecorded()

    def sweep(self, name: str, mlruns: Path, folder: Path) -> AbstractContextManager["Run"]:
        """A sweep that is recorded nowhere."""
        return nullcontext(NothingRecorded())

    def command(self, mlruns: Path) -> str | None:
        """No user interface."""
        return None


class NothingRecorded:
    """A run that leaves nothing in a tracker; see :class:`Run`."""

    run_id = None

    def parameters(self, values: Mapping[str, Any]) -> None: ...

    def tags(self, values: Mapping[str, str]) -> None: ...

    def dataset(self, name: str, source: str, questions: Sequence[Question], digest: str) -> None: ...

    def scores(self, scores: Sequence[Score], figures: Mapping[str, float]) -> None: ...

    def note(self, markdown: str) -> None: ...

    def tables(self, tables: Mapping[str, pa.Table]) -> None: ...

    def folder(self, path: Path) -> None: ...

    def discard(self) -> None: ...
