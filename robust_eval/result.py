"""What a run found: all that the reports show, in one place."""

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from robust_eval.answer import OUTCOMES
from robust_eval.metric.score import Score, reply_weights
from robust_eval.question import Question
from robust_eval.stopwatch import Stopwatch


@dataclass(frozen=True)
class Result:
    """One finished experiment.

    ``description`` is what was run, flat; ``baseline`` the graded greedy answers to all questions asked, ``graded`` the
    graded answers to the questions ``kept``; ``scores`` maps the names of the metrics to what they found.
    """

    name: str
    description: Mapping[str, object]
    asked: Sequence[Question]
    kept: Sequence[Question]
    baseline: pa.Table
    graded: pa.Table
    scores: Mapping[str, Score]
    watch: Stopwatch

    def counts(self) -> dict[str, float]:
        """Questions asked and kept, outcomes of the sampled answers, seconds of each stage: by their MLflow names.

        Enumerated answers count by their probability.
        """
        outcomes: defaultdict[str, float] = defaultdict(float)
        for outcome, weight in zip(self.graded["outcome"].to_pylist(), reply_weights(self.graded), strict=True):
            outcomes[outcome] += float(weight)
        counts: dict[str, float] = {"questions.asked": len(self.asked), "questions.kept": len(self.kept)}
        counts |= {f"outcomes.{outcome}": outcomes[outcome] for outcome in OUTCOMES}
        return counts | {f"seconds.{stage}": seconds for stage, seconds in self.watch.seconds.items()}

    def summary(self) -> dict[str, float | None]:
        """Every figure of the run under its MLflow name; None where a figure is undefined or infinite."""
        figures = self.counts()
        for score in self.scores.values():
            figures |= score.flat()
        return {name: value if math.isfinite(value) else None for name, value in figures.items()}


def write_summary(result: Result, path: Path) -> None:
    """The summary as flat JSON."""
    path.write_text(json.dumps(result.summary(), indent=2) + "\n", encoding="utf-8")
