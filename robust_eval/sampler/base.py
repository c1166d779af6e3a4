"""What every sampler can be asked."""

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from robust_eval.model.base import Request
from robust_eval.question import Question


class Sampler(Protocol):
    """A way of asking; a dataclass whose fields are its configuration."""

    temperatures: list[float]
    trials: int

    def baseline(self, questions: Sequence[Question], seed: int, top_logprobs: int) -> list[Request]:
        """The greedy answers that decide which questions are worth asking again."""

    def select(self, questions: Sequence[Question], baseline: pa.Table, seed: int) -> list[Question]:
        """The questions to go on with, given the graded baseline; UserError where there are none."""

    def requests(self, questions: Sequence[Question], seed: int) -> list[Request]:
        """The answers wanted to each of the questions that were selected."""
