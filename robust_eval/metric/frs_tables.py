"""The tables of FRS: accuracy by temperature, and certainty against correctness.

Fastowski, Prenkaj, Kasneci, "From Confidence to Collapse in LLM Factual Robustness", Fig. 2, 6 and 7.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from robust_eval.answer import NO_REPLY
from robust_eval.answer import rows as table_rows
from robust_eval.metric.score import Grid, reply_weights
from robust_eval.stats.frs import crossing_temperature
from robust_eval.stats.interval import NORMAL_95, Floats

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
    """Return right answers and replies of each question at each temperature."""
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


def crossings(question_ids: list[str], curves: pa.Table, threshold: float) -> dict[str, Floats]:
    """Return for each question the temperature at which its curve crosses the threshold, with the ends of its 95 %
    interval.

    The interval reaches from where the curve less its error crosses to where the curve and its error do.
    """
    by_question: dict[str, list[tuple[float, float, float]]] = {question_id: [] for question_id in question_ids}
    for question_id, *point in table_rows(curves, "question_id", "temperature", "accuracy", "standard_error"):
        by_question[question_id].append((point[0], point[1], point[2]))
    found: dict[str, Floats] = {name: np.full(len(question_ids), np.nan) for name in ("value", "low", "high")}
    for index, points in enumerate(by_question.values()):
        if len(points) > 1 and not np.isnan(points).any():  # without a right answer there is no accuracy
            temperature, accuracy, error = np.array(sorted(points)).T
            for name, shift in (("value", 0.0), ("low", -NORMAL_95), ("high", NORMAL_95)):
                curve = np.clip(accuracy + shift * error, 0, 1)
                found[name][index] = crossing_temperature(curve[None], temperature, threshold)[0]
    return found
