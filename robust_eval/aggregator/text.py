"""Aggregator by equal normal forms or letters."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from robust_eval.aggregator.base import Aggregator, with_votes
from robust_eval.question import Question


@dataclass
class EqualText(Aggregator):
    """aggregator=text: the grader's labels are unchanged, and no model is needed."""

    def aggregate(self, questions: Sequence[Question], graded: pa.Table) -> pa.Table:
        """See :class:`robust_eval.aggregator.base.Aggregator`; the first answer with the winning label is elected."""
        return with_votes(questions, graded, lambda pairs: [0.0] * len(pairs))

    def description(self) -> dict[str, Any]:
        """Return nothing: no model is used."""
        return {}
