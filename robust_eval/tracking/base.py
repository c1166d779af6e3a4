"""Base of trackers and their runs, which records nothing."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from robust_eval.metric.metric_spec import MetricSpec
from robust_eval.metric.score import Score
from robust_eval.question import Question


class TracedAnswer(NamedTuple):
    """Graded answer to trace in a tracker: the ``question`` as asked, the ``reply``, its ``condition`` as tags, and the
    verdict with its ``reason``.

    ``correct`` is None without a verdict; ``judge`` is the model that gave the verdict, None if it was computed.
    """

    question: Mapping[str, str]
    reply: str
    condition: Mapping[str, str]
    correct: bool | None
    reason: str
    judge: str | None


class Run:
    """Run in a tracker; this base class records nothing."""

    run_id: str | None = None
    """Id in the tracker."""
    traces = 0
    """Maximum number of answers that the tracker takes (:meth:`answers`)."""

    def write_id(self, file: Path) -> None:
        """Write the tracked run's id into a file."""

    def parameters(self, values: Mapping[str, Any]) -> None:
        """Record the tracked run's settings, flat."""

    def tags(self, values: Mapping[str, str]) -> None:
        """Record metadata of the tracked run other than settings."""

    def dataset(self, name: str, source: str, questions: Sequence[Question], digest: str) -> None:
        """Record the tracked run's questions, their source and their fingerprint."""

    def model(self, name: str, identity: Mapping[str, object]) -> None:
        """Record the evaluated model, which runs with the same identity share; later scores belong to it."""

    def scores(self, scores: Sequence[Score], metrics: Mapping[str, float]) -> None:
        """Record the headline metrics with intervals, other flat metrics, and curves by step, under ``curve/``.

        A curve's values at headline temperatures are metrics as well.
        """

    def best_of_sweep(self, specs: Sequence[MetricSpec]) -> None:
        """Record the best value and the range of the headline metrics over the jobs of a sweep, with the sweep.

        The run is the sweep or one of its jobs; other runs record nothing. A failure is a warning.
        """

    def answers(self, answers: Sequence[TracedAnswer]) -> None:
        """Record answers with their verdicts in the tracker."""

    def note(self, markdown: str) -> None:
        """Record the note at the top of the run's page in the tracker."""

    def tables(self, tables: Mapping[str, pa.Table]) -> None:
        """Record short tables by name, for the pages of the tracker."""

    def folder(self, path: Path) -> None:
        """Record all files of the run's folder as artifacts in the tracker."""

    def discard(self) -> None:
        """Delete the tracker's record of a run without requests."""


@dataclass
class Tracking:
    """Tracker of runs, whose fields are its configuration. This base class, tracking=none, records nothing and does not
    import MLflow.
    """

    def run(self, name: str, mlruns: Path) -> AbstractContextManager[Run]:
        """Record the run of the context in the tracker. An exception that leaves the context marks it as failed."""
        return nullcontext(Run())

    def sweep(self, name: str, mlruns: Path, folder: Path) -> AbstractContextManager[Run]:
        """Record a sweep in the tracker. The runs of the context, in any process, become its children."""
        return nullcontext(Run())

    def command(self, mlruns: Path) -> str | None:
        """Return the command that shows the tracked runs, if there is one."""
        return None
