"""Kinds of tokens from sets of tokens: kind 1 for those of the first set, and so on."""

from collections.abc import Sequence

import numpy as np

from robust_eval.model.local.vocabulary import KindTable
from robust_eval.model.token_texts import Ids, TokenKinds


def table_of_sets(rows: Sequence[Sequence[Ids]], size: int) -> KindTable:
    """The kinds after prefixes with some sets of tokens each, of a vocabulary of ``size`` tokens."""
    return KindTable.of(kinds_of_sets(rows, size), len(rows[0]))


def kinds_of_sets(rows: Sequence[Sequence[Ids]], size: int) -> list[TokenKinds]:
    """The kinds after each prefix."""
    usual = np.zeros(size, dtype=np.uint8)
    return [
        TokenKinds.of(usual, {token: n for n, ids in enumerate(sets, 1) for token in ids.tolist()}) for sets in rows
    ]
