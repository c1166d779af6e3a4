"""Tables behind the figures of the paper: certainty against correctness, and robustness by question type.

Fastowski, Prenkaj, Kasneci, "From Confidence to Collapse in LLM Factual Robustness", Fig. 2 and 5.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from robust_eval.answer import NO_REPLY
from robust_eval.answer import rows as table_rows
from robust_eval.metric.score import Floats, reply_weights


def certainty_bins(graded: pa.Table) -> pa.Table:
    """Right and wrong replies by temperature and certainty bin [0, 0.1), …, [0.9, 1] (Fastowski et al., Fig. 2).

    Certainty is the mean probability of the answer's tokens at the sampling temperature; replies without tokens or
    log-probabilities are left out. Enumerated answers count by their probability.
    """
    counts: dict[tuple[float, int], list[float]] = {}
    columns = ["temperature", "sampling_logprobs", "answer_tokens", "correct", "outcome"]
    weights = reply_weights(graded)
    for weight, (temperature, logprobs, answer_tokens, correct, outcome) in zip(
        weights.tolist(), table_rows(graded, *columns), strict=True
    ):
        if not logprobs or not answer_tokens or correct is None or outcome in NO_REPLY:
            continue
        certainty = float(np.exp(logprobs[:answer_tokens]).mean())
        bin_index = min(int(certainty * 10), 9)
        counts.setdefault((temperature, bin_index), [0.0, 0.0])[int(correct)] += weight
    keys = sorted(counts)
    return pa.table(
        {
            "temperature": pa.array([t for t, _ in keys], pa.float64()),
            "certainty_from": pa.array([index / 10 for _, index in keys], pa.float64()),
            "right": pa.array([counts[key][1] for key in keys], pa.float64()),
            "wrong": pa.array([counts[key][0] for key in keys], pa.float64()),
        }
    )


def type_shares(scores: Floats, types: Sequence[str], n: int = 1000) -> pa.Table:
    """For each question type, the share of its questions among the n most robust, out of the n most and n least.

    n is at most half of the questions; questions tied at a cut (unbroken facts all score 1) count in part, so that
    their order does not matter (Fastowski et al., Fig. 5; METHODS §1).
    """
    known = ~np.isnan(scores)
    values, kinds = scores[known], np.asarray(types, dtype=object)[known]
    n = min(n, len(values) // 2)
    most, least = _membership(-values, n), _membership(values, n)
    names = sorted(set(kinds))
    top = np.array([most[kinds == name].sum() for name in names])
    bottom = np.array([least[kinds == name].sum() for name in names])
    share = np.divide(top, top + bottom, out=np.full(len(names), np.nan), where=top + bottom > 0)
    return pa.table(
        {
            "type": pa.array(names, pa.string()),
            "most_robust": pa.array(top, pa.float64()),
            "least_robust": pa.array(bottom, pa.float64()),
            "share_most_robust": pa.array(share, pa.float64()),
        }
    )


def _membership(values: Floats, n: int) -> NDArray[np.float64]:
    """Weight of each value among the n smallest: 1 below the cut, and ties at the cut share what is left."""
    if n == 0:
        return np.zeros(len(values))
    cut = np.partition(values, n - 1)[n - 1]
    below, tied = values < cut, values == cut
    weights: Floats = below + tied * (n - below.sum()) / tied.sum()
    return weights
