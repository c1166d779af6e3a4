"""Which question types each measurement holds most firmly, over all its data sets together.

Fastowski et al., "From Confidence to Collapse in LLM Factual Robustness", Fig. 5.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from robust_eval.metric.frs_tables import type_shares
from robust_eval.runs.finished_runs import FinishedRun


class PooledTypes(NamedTuple):
    """The types of a subject's questions over ``datasets``, by a ``score``, such as FRS for one d: see
    :func:`~robust_eval.metric.frs_tables.type_shares`.
    """

    subject: str
    datasets: list[str]
    score: str
    shares: pa.Table


def pooled_types(runs: Sequence[FinishedRun], subjects: Sequence[str], datasets: Sequence[str]) -> list[PooledTypes]:
    """Return the shares for each subject whose questions have types, by the leading score for the smallest number (FRS:
    d) that all runs with it share.

    ``subjects`` and ``datasets`` say of each run what was measured, and on what. Empty where no number is shared.
    """
    leading = next(filter(None, (run.leading_score for run in runs)), None)
    if leading is None:
        return []
    scored = [each for each in zip(runs, subjects, datasets, strict=True) if each[0].by_number(leading)]
    common = set.intersection(*(set(run.by_number(leading)) for run, _, _ in scored))
    if not common:
        return []
    smallest = min(common)
    score = scored[0][0].by_number(leading)[smallest]
    pooled = []
    for subject in dict.fromkeys(subject for _, subject, _ in scored):
        own = [(run, dataset) for run, name, dataset in scored if name == subject]
        types = [name for run, _ in own for name in run.questions["type"].to_pylist()]
        if not any(types):
            continue
        scores = np.concatenate([run.values(run.by_number(leading)[smallest]) for run, _ in own])
        seed = int(own[0][0].settings["seed"])
        shares = type_shares(scores, types, groups=_groups(own), seed=seed)
        pooled.append(PooledTypes(subject, [dataset for _, dataset in own], score, shares))
    return pooled


def _groups(own: Sequence[tuple[FinishedRun, str]]) -> list[str] | None:
    """Return what makes questions dependent, over all data sets; None where nothing does."""
    by_run = [(run.groups(), run.questions.num_rows, dataset) for run, dataset in own]
    if all(groups is None for groups, _, _ in by_run):
        return None
    return [
        f"{dataset} {group}"
        for groups, n, dataset in by_run
        for group in (groups or [f"question {row}" for row in range(n)])
    ]
