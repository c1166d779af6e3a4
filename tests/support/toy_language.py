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

    def children(self, parents: Tensor, tokens: Tensor) -> Tensor:
        assert torch.equal(parents, parents.sort().values)
        pairs = zip(parents.tolist(), tokens.tolist(), strict=True)
        self._level = [(*self._level[parent], token) for parent, token in pairs]
        self.evaluated += len(self._level)
        return torch.stack([self.logits(prefix) for prefix in self._level])


def vocabulary(pieces: Sequence[bytes] = PIECES) -> Vocabulary:
    texts = TokenTexts(pieces)
    ends = torch.from_numpy(texts.breaks_line.copy())
    ends[0] = True
    return Vocabulary(ends, ~ends, lambda: texts)


WORDS = vocabulary()


@cache
def _right(text: bytes) -> bool:
    """Whether an answer is right, which is the same in every language."""
    return MATCHER.right(WORDS.answer(text).decode())


def truth(table: Table, cut: Generation | None = None, depth: int = DEPTH) -> np.ndarray:
    """By the definition: the probability of all answers, up to an end or the last token, that are right."""
    ends = WORDS.ends.tolist()
    temperatures = torch.tensor(ALL, dtype=torch.float64)[:, None]
    total = np.zeros(len(ALL))
    stack: list[tuple[tuple[int, ...], np.ndarray]] = [((), np.ones(len(ALL)))]
    while stack:
        prefix, probability = stack.pop()
        if len(prefix) == depth or (prefix and ends[prefix[-1]]):
            if _right(b"".join(PIECES[token] for token in prefix)):
                total += probability
            continue
        scaled = table.logits(prefix).double() / temperatures
        after = (cut.truncated(scaled) if cut else scaled).softmax(-1).numpy()
        stack += [((*prefix, token), probability * p) for token, p in enumerate(after.T) if p.any()]
    return total
