"""Answer entropy under repetition: does the model say the same thing when asked again?

Reganova & Steinbach, "Testing Uncertainty of Large Language Models for Physics Knowledge and Reasoning", §2.3.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from robust_eval.answer import NO_ANSWER, NO_REPLY, rows
from robust_eval.error import UserError
from robust_eval.metric.score import Estimate, Floats, Measured, Score, grid, question_groups
from robust_eval.question import Question


def answer_entropy(counts: ArrayLike) -> Floats:
    """Plug-in entropy of the answers to each question, H = −Σ p ln p with p = counts / their sum.

    Parameters
    ----------
    counts
        (n, K), how often question j was answered with label i; sums of weights are taken as well.

    Returns
    -------
    (n,) in nats, at most ln K; NaN for a question without any answer.

    References
    ----------
    Reganova & Steinbach, §2.3.

    Examples
    --------
    >>> answer_entropy([[20, 0], [10, 10]]).round(4).tolist()
    [0.0, 0.6931]
    """
    n = np.asarray(counts, dtype=float)
    if n.ndim != 2:
        raise ValueError(f"counts must be (questions, labels), not {n.shape}")
    if np.any(n < 0):
        raise ValueError("counts must not be negative")
    total = n.sum(axis=1, keepdims=True)
    p = np.divide(n, total, out=np.zeros_like(n), where=total > 0)
    logarithms = np.log(p, out=np.zeros_like(p), where=p > 0)
    return np.where(total[:, 0] > 0, np.abs((p * logarithms).sum(axis=1)), np.nan)


@dataclass
class AnswerCertainty:
    """Entropy of the answers to each question and its error rate, at every temperature apart."""

    @property
    def top_logprobs(self) -> int:
        """None: the entropy is that of whole answers."""
        return 0

    def check(self, temperatures: Sequence[float], repetitions: float) -> None:
        """UserError unless each question is asked at least twice under the same condition."""
        if repetitions < 2:
            raise UserError(
                "metric=certainty needs repeated answers to the same question, and the sampler asks once: "
                "set sampler.trials to 2 or more"
            )

    def score(self, questions: Sequence[Question], measured: Measured, seed: int) -> Score:
        """Mean answer entropy (nats) and error rate by temperature, over valid answers; table ``certainty``."""
        ids = [question.id for question in questions]
        groups = question_groups(questions)
        graded = measured.graded
        valid = valid_answers(graded)
        temperatures = [float(t) for t in np.unique(graded["temperature"].to_numpy())]
        weights = [label_weights(ids, valid, temperature) for temperature in temperatures]
        entropy = np.column_stack([answer_entropy(table) for table in weights])
        accuracy = grid(ids, valid, temperatures).accuracy
        result = Score(question_ids=ids)
        for name, values in (("certainty.entropy", entropy), ("certainty.error_rate", 1 - accuracy)):
            result.add_curve(name, values, temperatures, groups, seed)
        undefined = float(np.isnan(entropy).any(axis=1).sum())
        result.values["certainty.count.undefined"] = Estimate(undefined)
        result.values["certainty.count.unlabelled"] = Estimate(float(graded.num_rows - valid.num_rows))
        result.tables["certainty"] = pa.table(
            {
                "question_id": np.repeat(ids, len(temperatures)),
                "temperature": np.tile(temperatures, len(ids)),
                "entropy": entropy.ravel(),
                "error_rate": (1 - accuracy).ravel(),
            }
        )
        return result


def valid_answers(graded: pa.Table) -> pa.Table:
    """The answers that have a label: entropy and error rate are taken over these (METHODS §3)."""
    outcomes = np.isin(graded["outcome"].to_pylist(), [*NO_REPLY, *NO_ANSWER])
    return graded.filter(pa.array(graded["label"].is_valid().to_numpy(zero_copy_only=False) & ~outcomes))


def label_weights(question_ids: Sequence[str], valid: pa.Table, temperature: float) -> Floats:
    """(n, K) summed weight of each label at one temperature; each question has its own labels."""
    weights: dict[str, dict[str, float]] = {question_id: {} for question_id in question_ids}
    for question_id, at, label, weight in rows(valid, "question_id", "temperature", "label", "weight"):
        if at == temperature:
            weights[question_id][label] = weights[question_id].get(label, 0.0) + weight
    table = np.zeros((len(question_ids), max([1, *map(len, weights.values())])))
    for row, labels in enumerate(weights.values()):
        table[row, : len(labels)] = list(labels.values())
    return table
