"""How well a classifier tells classes apart."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from robust_eval.metric.score import Score, proportion
from robust_eval.stats.estimate import Estimate


def confusion_matrix(truth: Sequence[str], predicted: Sequence[str], names: Sequence[str]) -> NDArray[np.int_]:
    """Return (K, K) how many items of the class of each row were given the class of each column; K = len(names).

    >>> confusion_matrix(["LOC", "LOC", "NUM"], ["LOC", "NUM", "NUM"], ["LOC", "NUM"]).tolist()
    [[1, 1], [0, 1]]
    """
    place = {name: index for index, name in enumerate(names)}
    counts = np.zeros((len(names), len(names)), dtype=int)
    for true, given in zip(truth, predicted, strict=True):
        counts[place[true], place[given]] += 1
    return counts


def classification(truth: Sequence[str], predicted: Sequence[str], names: Sequence[str]) -> Score:
    """Return accuracy, and of each class recall, precision, and how often it was taken for each other, with the
    confusion matrix as a table: a row for each true class, a column for each predicted one.
    """
    counts = confusion_matrix(truth, predicted, names)
    score = Score()
    score.values["accuracy"] = proportion(int(counts.trace()), int(counts.sum()))
    for place, name in enumerate(names):
        right = int(counts[place, place])
        score.values[f"recall.{name}"] = proportion(right, int(counts[place].sum()))
        score.values[f"precision.{name}"] = proportion(right, int(counts[:, place].sum()))
        for other, count in zip(names, counts[place].tolist(), strict=True):
            score.values[f"confusion.{name}.{other}"] = Estimate(float(count))
    columns = {name: pa.array(counts[:, place], pa.int64()) for place, name in enumerate(names)}
    score.tables["confusion_matrix"] = pa.table({"true": pa.array(names, pa.string()), **columns})
    return score
