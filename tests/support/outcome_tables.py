"""Outcomes of tokens from sets of tokens: outcome 1 for those of the first set, and so on."""

from collections.abc import Sequence

import numpy as np

from robust_eval.model.local.vocabulary import OutcomeTable
from robust_eval.model.token_texts import Ids, NextTokenOutcomes


def table_of_sets(rows: Sequence[Sequence[Ids]], size: int) -> OutcomeTable:
    """The outcomes after prefixes with some sets of tokens each, of a vocabulary of ``size`` tokens."""
    return OutcomeTable.of(outcomes_of_sets(rows, size), len(rows[0]))


def outcomes_of_sets(rows: Sequence[Sequence[Ids]], size: int) -> list[NextTokenOutcomes]:
    """The outcomes after each prefix."""
    usual = np.zeros(size, dtype=np.uint8)
    numbered = [{token: n for n, ids in enumerate(sets, 1) for token in ids.tolist()} for sets in rows]
    return [NextTokenOutcomes.of(usual, of_row) for of_row in numbered]
