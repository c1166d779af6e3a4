"""Answer entropy under repetition: does the model say the same thing when asked again?

Reganova & Steinbach, "Testing Uncertainty of Large Language Models for Physics Knowledge and Reasoning", §2.3.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from robust_eval.answer import NO_REPLY, rows
from robust_eval.error import UserError
from robust_eval.metric.score import Floats, Score, grid, mean_estimate, question_groups
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

    def check(self, temperatures: Sequence[float], trials: int) -> None:
        """UserError unless each question is asked at least twice under the same condition."""
        if trials < 2:
            raise UserError(
                "metric=certainty needs repeated answers to the same question, and the sampler asks once: "
                "set sampler.trials to 2 or more"
            )

    def score(self, questions: Sequence[Question], baseline: pa.Table, graded: pa.Table, seed: int) -> Score:
        """Mean answer entropy (nats) and error rate by temperature; per question in the table ``certainty``."""
        ids = [question.id for question in questions]
        groups = question_groups(questions)
        answers = grid(ids, graded)
        entropy = np.column_stack(
            [answer_entropy(label_weights(ids, graded, float(t))) for t in answers.temperatures]
        ).reshape(len(ids), -1)
        result = Score()
        for name, values in (("certainty.entropy", entropy), ("certainty.error_rate", 1 - answers.accuracy)):
            result.curves[name] = {
                float(t): mean_estimate(values[:, column], groups, seed)
                for column, t in enumerate(answers.temperatures)
            }
        result.tables["certainty"] = pa.table(
            {
                "question_id": np.repeat(ids, len(answers.temperatures)),
                "temperature": np.tile(answers.temperatures, len(ids)),
                "entropy": entropy.ravel(),
                "error_rate": (1 - answers.accuracy).ravel(),
            }
        )
        return result


def label_weights(question_ids: Sequence[str], graded: pa.Table, temperature: float) -> Floats:
    """(n, K) summed weight of each label at one temperature; replies without a label and missing replies are out."""
    weights: dict[str, dict[str, float]] = {question_id: {} for question_id in question_ids}
    columns = ["question_id", "temperature", "label", "outcome", "weight"]
    for question_id, at, label, outcome, weight in rows(graded, *columns):
        if at == temperature and label is not None and outcome not in NO_REPLY:
            labels = weights[question_id]
            labels[label] = labels.get(label, 0.0) + weight
    table = np.zeros((len(question_ids), max([1, *map(len, weights.values())])))
    for row, labels in enumerate(weights.values()):
        table[row, : len(labels)] = list(labels.values())
    return table
