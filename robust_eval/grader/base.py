"""What every grader can be asked."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from robust_eval.question import Question
from robust_eval.sampler.base import Judge


class Grader(Judge, Protocol):
    """A way of telling right from wrong; a dataclass whose fields are its configuration."""

    def grade(self, questions: Sequence[Question], answers: pa.Table) -> pa.Table:
        """The answer table with ``label``, ``correct`` and ``exact`` filled."""

    def unusable_aliases(self, questions: Sequence[Question]) -> Mapping[str, int]:
        """How many accepted answers of each question cannot be compared with, by question; only where there are any."""
