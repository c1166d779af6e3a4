"""How far those who labelled the same replies agree."""

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from robust_eval.labels.label_file import SAID
from robust_eval.stats.agreement import cohen_kappa


class Agreed(NamedTuple):
    """Two labellers: how many ``replies`` both labelled, on how many they said the ``same``, and Cohen's κ."""

    first: str
    second: str
    replies: int
    same: int
    kappa: float


def agreements(labels: pa.Table) -> Iterator[Agreed]:
    """Yield the agreement of every two labellers who labelled the same replies; unclear is a third label."""
    said: dict[str, dict[tuple[str, str], str]] = {}
    for label in labels.to_pylist():
        said.setdefault(label["labeller"], {})[label["question_id"], label["text"]] = label["label"]
    for first, second in combinations(sorted(said), 2):
        both = said[first].keys() & said[second].keys()
        counts = np.zeros((len(SAID), len(SAID)), dtype=int)
        for reply in both:
            counts[SAID.index(said[first][reply]), SAID.index(said[second][reply])] += 1
        if both:
            yield Agreed(first, second, len(both), int(np.trace(counts)), cohen_kappa(counts))
