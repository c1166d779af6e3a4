"""Answers as graded tables."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

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
    labelled = {read[name] for name, metric in config.metric.items() if metric.reads_labels}
    return {
        sampler: (config.aggregator if sampler in labelled else EqualText()).aggregate(
            questions, config.judge.grade(questions, sampled.table)
        )
        for sampler, sampled in answers.items()
    }
