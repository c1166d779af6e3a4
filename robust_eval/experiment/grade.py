"""Answers as graded tables."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from robust_eval.aggregator.base import Aggregator
from robust_eval.aggregator.text import EqualText
from robust_eval.answer import Answers
from robust_eval.config.config import Config
from robust_eval.question import Question


def grade(
    config: Config, questions: Sequence[Question], answers: Mapping[str, Answers], read: Mapping[str, str]
) -> dict[str, pa.Table]:
    """Read and grade the answers of each sampler, and give answers that mean the same one label.

    ``read`` names the sampler whose answers each metric reads. Only where a metric reads labels is the aggregator
    asked: elsewhere equal texts suffice.
    """
    comparing = compared_by(config, read)
    return {
        sampler: comparing.get(sampler, EqualText()).aggregate(questions, config.judge.grade(questions, sampled.table))
        for sampler, sampled in answers.items()
    }


def compared_by(config: Config, read: Mapping[str, str]) -> dict[str, Aggregator]:
    """Return the aggregator by the samplers of whose answers a metric reads labels; ``read`` as in :func:`grade`."""
    return {read[name]: config.aggregator for name, metric in config.metric.items() if metric.needs_clusters}
