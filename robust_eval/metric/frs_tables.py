"""Tables of FRS: accuracy by temperature, and certainty against correctness.

Fastowski, Prenkaj, Kasneci, "From Confidence to Collapse in LLM Factual Robustness", Fig. 2, 6 and 7.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from robust_eval.answer import NO_REPLY
from robust_eval.answer import rows as table_rows
from robust_eval.metric.score import Grid
from robust_eval.stats.estimate import Estimate
from robust_eval.stats.frs import crossing_temperature
from robust_eval.stats.interval import (
    NORMAL_95,
    RESAMPLES,
    SHARE,
    Floats,
    bootstrap,
    degenerate_interval,
    drop_degenerate,
    independent,
)

PAPER_N = 1000
"""Number of questions that the paper takes from either end."""


def type_shares(
    scores: Floats,
    types: Sequence[str],
    n: int = PAPER_N,
    groups: Sequence[str] | None = None,
    seed: int = 0,
) -> pa.Table:
    """Return a table of the share of each question type's questions among the n most robust, out of the n most and n
    least.

    n is at most half of the questions; questions tied at a cut (unbroken facts all score 1) count in part, so that
    their order does not matter (Fastowski et al., Fig. 5; docs/methods.md, §1).

    ``scores`` (N,) are the robustness of each question, NaN without one, ``types`` (N,) its type, ``n`` the number of
    questions wanted from either end; questions without a type ("") are ranked with the others and have a row of their
    own. The bootstrap is over questions, or ``groups`` (N,) of them, with this ``seed``.

    There is a row for each type, in alphabetical order: ``type``; ``questions`` that have a score; how many of them are
    among the ``most_robust`` and the ``least_robust``, which sum to the n taken; ``share_most_robust`` of both
    together, NaN where there is none, with the bounds ``low`` and ``high`` of its 95 % interval. Where the questions of
    a type are at one end in all resamples, it is exact (:func:`~robust_eval.stats.interval.degenerate_interval`); where
    all facts tie, which leaves nothing to rank, there is none.
    """
    is_scored = ~np.isnan(scores)
    values, scored_types = scores[is_scored], np.asarray(types, dtype=object)[is_scored]
    names, kind = np.unique(scored_types.astype(str), return_inverse=True)
    top, bottom = _end_counts(values, kind, len(names), n)

    def shares(values: Floats, kind: NDArray[np.intp]) -> Floats:
        return _shares(*_end_counts(values, kind, len(names), n))

    estimates, bounds = _shares(top, bottom), np.full((len(names), 2), np.nan)
    if len(values) > 1:
        labels = None if groups is None else np.asarray(groups)[is_scored]
        resamples = RESAMPLES if len(values) < 5000 else RESAMPLES // 4  # each sorts all facts
        resampled = np.column_stack(bootstrap(shares, values, kind, groups=labels, seed=seed, resamples=resamples))
        at_an_end = np.maximum(*(_membership(each, min(n, len(values) // 2)) for each in (-values, values))) > 0
        for place, (low, high) in enumerate(resampled.tolist()):
            if not np.isnan(estimates[place]):
                bounds[place] = drop_degenerate(low, high)
            if np.isnan(bounds[place, 0]) and estimates[place] in (0, 1):
                in_type = at_an_end & (kind == place)
                number = independent(int(in_type.sum()), None if labels is None else labels[in_type])
                bounds[place] = degenerate_interval(estimates[place], number, SHARE)
    return pa.table(
        {
            "type": pa.array(names.tolist(), pa.string()),
            "questions": pa.array(np.bincount(kind, minlength=len(names)), pa.int64()),
            "most_robust": pa.array(top, pa.float64()),
            "least_robust": pa.array(bottom, pa.float64()),
            "share_most_robust": pa.array(estimates, pa.float64()),
            "low": pa.array(bounds[:, 0], pa.float64()),
            "high": pa.array(bounds[:, 1], pa.float64()),
        }
    )


def cut_size(shares: pa.Table) -> int:
    """Return the number of questions from either end, n, of a table of :func:`type_shares`."""
    counts: list[float] = shares["most_robust"].to_pylist()
    return round(sum(counts))


def share_estimates(shares: pa.Table) -> dict[str, Estimate]:
    """Return the share of each type in a table of :func:`type_shares`, with its interval."""
    columns = ("type", "share_most_robust", "low", "high")
    return {name: Estimate(*share) for name, *share in table_rows(shares, *columns)}


def _shares(top: Floats, bottom: Floats) -> Floats:
    both = top + bottom
    shares: Floats = np.divide(top, both, out=np.full(both.shape, np.nan), where=both > 1e-9)
    return shares


def _end_counts(values: Floats, kind: NDArray[np.intp], type_count: int, n: int) -> tuple[Floats, Floats]:
    """Return (types,) the numbers of questions of each type among the n most and the n least robust by ``values``
    (N,).
    """
    n = min(n, len(values) // 2)
    top, bottom = (np.bincount(kind, _membership(each, n), type_count) for each in (-values, values))
    return top.astype(float), bottom.astype(float)


def _membership(values: Floats, n: int) -> Floats:
    """Return the weight of each value among the n smallest: 1 below the cut, and ties at the cut share what is left."""
    if n == 0:
        return np.zeros(len(values))
    cut = np.partition(values, n - 1)[n - 1]
    below, tied = values < cut, values == cut
    weights: Floats = below + tied * (n - below.sum()) / tied.sum()
    return weights


_SCORE = "frs_d"


def score_column(d: float) -> str:
    """Return the name of the column with the scores for weight d, in the table with a row for each fact."""
    return f"{_SCORE}{d:g}"


def score_columns(table: pa.Table) -> dict[float, str]:
    """Return the names of the columns with scores by their weight d, in the table with a row for each fact.

    >>> score_columns(pa.table({"entropy": [0.1], "frs_d0.5": [0.9], "frs_d1": [0.8]}))
    {0.5: 'frs_d0.5', 1.0: 'frs_d1'}
    """
    return {float(name.removeprefix(_SCORE)): name for name in table.column_names if name.startswith(_SCORE)}


def accuracy_table(question_ids: Sequence[str], answers: Grid) -> pa.Table:
    """Return a table of the right answers and replies of each question at each temperature."""
    temperatures = answers.temperatures
    return pa.table(
        {
            "question_id": [name for name in question_ids for _ in temperatures],  # numpy would cut them off at a NUL
            "temperature": np.tile(temperatures, len(question_ids)),
            "correct": answers.correct.ravel(),
            "replies": answers.replies.ravel(),
        }
    )


def certainty_bins(graded: pa.Table) -> pa.Table:
    """Return right and wrong replies by temperature and certainty bin [0, 0.1), …, [0.9, 1] (Fastowski et al., Fig. 2).

    Certainty is the mean probability of the answer's tokens at the sampling temperature; replies without tokens or
    log-probabilities are left out. Enumerated answers count by their probability.
    """
    counts: dict[tuple[float, int], list[float]] = {}
    columns = ["weight", "temperature", "sampling_logprobs", "answer_tokens", "correct", "outcome"]
    for weight, temperature, logprobs, answer_tokens, correct, outcome in table_rows(graded, *columns):
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


def crossings(question_ids: list[str], curves: pa.Table, threshold: float) -> dict[str, Floats]:
    """Return for each question the temperature at which its curve crosses the threshold, with the ends of its 95 %
    interval.

    The interval reaches from where the curve less its error crosses to where the curve and its error do.
    """
    by_question: dict[str, list[tuple[float, float, float]]] = {question_id: [] for question_id in question_ids}
    for question_id, *point in table_rows(curves, "question_id", "temperature", "accuracy", "standard_error"):
        by_question[question_id].append((point[0], point[1], point[2]))
    columns: dict[str, Floats] = {name: np.full(len(question_ids), np.nan) for name in ("value", "low", "high")}
    for index, points in enumerate(by_question.values()):
        if len(points) > 1 and not np.isnan(points).any():  # without a right answer there is no accuracy
            temperature, accuracy, error = np.array(sorted(points)).T
            for name, shift in (("value", 0.0), ("low", -NORMAL_95), ("high", NORMAL_95)):
                curve = np.clip(accuracy + shift * error, 0, 1)
                columns[name][index] = crossing_temperature(curve, temperature, threshold)
    return columns
