"""Questions in a row to which all replies at the highest temperature are equal."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from robust_eval.answer import NO_REPLY

HOT = 1.0
"""Temperature from which on equal replies are remarkable; below, a model may be that certain."""
MANY = 20
"""Questions in a row from which on equal replies are remarkable."""


def equal_in_a_row(graded: Mapping[str, pa.Table], question_ids: Sequence[str]) -> int:
    """Return the longest row of questions, in this order, all of whose replies at the highest temperature of a sampler
    are equal, two or more to each wording; 0 where no temperature is 1 or more, or the model's own.
    """
    return max((_longest(_repeated(table), question_ids) for table in graded.values()), default=0)


def _repeated(table: pa.Table) -> set[str]:
    """Return the questions whose replies at the highest temperature are equal."""
    temperatures = table["temperature"].to_numpy()
    own = np.isnan(temperatures)
    highest = math.nan if own.any() else float(temperatures.max(initial=0.0))
    if highest < HOT:
        return set()
    at = own if own.any() else temperatures == highest
    came = pc.and_(pc.invert(pc.is_in(table["outcome"], pa.array(sorted(NO_REPLY)))), pc.not_equal(table["text"], ""))
    columns = table.select(["question_id", "rewrite", "form", "text"]).filter(pc.and_(pa.array(at), came))
    groups = columns.group_by(["question_id", "rewrite", "form"]).aggregate(
        [("text", "count"), ("text", "count_distinct")]
    )
    several = groups.filter(pc.greater(groups["text_count"], 1))
    different = groups.filter(pc.greater(groups["text_count_distinct"], 1))
    return set(several["question_id"].to_pylist()) - set(different["question_id"].to_pylist())


def _longest(repeated: set[str], question_ids: Sequence[str]) -> int:
    longest = row = 0
    for question_id in question_ids:
        row = row + 1 if question_id in repeated else 0
        longest = max(longest, row)
    return longest
