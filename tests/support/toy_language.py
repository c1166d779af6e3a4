"""A language of a few tokens whose every probability can be computed by hand: what trees are compared with."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import torch
from torch import Tensor

from robust_eval.grader.answer_matcher import AnswerMatcher
from robust_eval.model.generation import Generation
from robust_eval.model.local.vocabulary import Vocabulary
from robust_eval.model.token_texts import TokenTexts

PIECES = [b"", b"\n", b" Paris", b" Par", b"is", b" ", b"ian", b",", b" the", b"x", b" in", b" Rome", b"\n\n", b"Lyon"]
DEPTH = 4
GRID = (0.2, 0.6, 1.0, 1.4, 2.0)
ALL = (0.1, *GRID, 3.0)
MATCHER = AnswerMatcher(["paris", "lyon"])


@dataclass
class Table:
    """Prefixes whose logits are random, but always the same for the same prefix of the same language."""

    language: int
    vocabulary: int = len(PIECES)
    spread: float = 2.5
    evaluated: int = 0
    """Prefixes that were asked for beyond the prompts."""
    _drawn: dict[tuple[int, ...], Tensor] = field(default_factory=dict, repr=False)

    def logits(self, prefix: tuple[int, ...]) -> Tensor:
        if prefix not in self._drawn:
            random = np.random.default_rng([self.language, *prefix])
            self._drawn[prefix] = torch.from_numpy(random.normal(size=self.vocabulary) * self.spread).float()
        return self._drawn[prefix]

    def roots(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        self._level = [()] * len(prompts)
        return torch.stack([self.logits(prefix) for prefix in self._level])

    def children(self, parents: np.ndarray, tokens: np.ndarray) -> Tensor:
        assert np.array_equal(parents, np.sort(parents))
        pairs = zip(parents.tolist(), tokens.tolist(), strict=True)
        self._level = [(*self._level[parent], token) for parent, token in pairs]
        self.evaluated += len(self._level)
        return torch.stack([self.logits(prefix) for prefix in self._level])


def vocabulary(pieces: Sequence[bytes] = PIECES) -> Vocabulary:
    texts = TokenTexts(pieces)
    ends = texts.breaks_line.copy()
    ends[0] = True
    return Vocabulary(ends, ~ends, lambda: texts)


WORDS = vocabulary()


@cache
def _levels(depth: int) -> list[tuple[list[tuple[int, ...]], np.ndarray, np.ndarray]]:
    """The prefixes (n) of every length after which answers go on, whether each token (n, V) after them ends an answer
    that is right, and whether the answer goes on after it. They are the same in every language.
    """
    ends = WORDS.ends
    levels, prefixes = [], [()]
    for last in (False,) * (depth - 1) + (True,):
        ended = np.broadcast_to(ends | last, (len(prefixes), len(ends)))
        right = ended.copy()
        for row, token in np.argwhere(ended).tolist():
            text = b"".join(PIECES[each] for each in (*prefixes[row], token))
            right[row, token] = MATCHER.right(WORDS.answer(text).decode())
        levels.append((prefixes, right, ~ended))
        prefixes = [(*prefixes[row], token) for row, token in np.argwhere(~ended).tolist()]
    return levels


def truth(table: Table, cut: Generation | None = None, depth: int = DEPTH) -> np.ndarray:
    """By the definition: the probability of all answers, up to an end or the last token, that are right."""
    temperatures = torch.tensor(ALL, dtype=torch.float64)[:, None]
    total, reached = np.zeros(len(ALL)), np.ones((1, len(ALL)))
    for prefixes, right, goes_on in _levels(depth):
        scaled = torch.stack([table.logits(prefix) for prefix in prefixes]).double()[:, None] / temperatures
        after = cut.truncated(scaled.flatten(0, 1)).view_as(scaled) if cut else scaled
        probability = np.moveaxis(reached[:, :, None] * after.softmax(-1).numpy(), 1, 2)
        total += probability[right].sum(axis=0)
        reached = probability[goes_on]
    return total
