"""Tree of prompts: a common prefix of several, such as a passage with its questions, is evaluated once."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

MIN_SHARED_TOKENS = 16
"""Minimum number of common tokens for which a separate pass is worthwhile."""
PASS_COST = 64
"""Cost of an additional pass, in tokens."""
MAX_DEPTH = 4
"""Maximum number of stages of a tree."""


@dataclass(frozen=True)
class Stage:
    """Runs of tokens that one pass evaluates: n different ones, each after a run of the previous stage.

    ``tokens`` holds the n runs, some of which may be empty, and ``parents`` (n,) the indices of their predecessors.
    """

    tokens: list[list[int]]
    parents: list[int]

    @property
    def width(self) -> int:
        """Length of the longest run: shorter ones are padded to it."""
        return max(map(len, self.tokens))


@dataclass(frozen=True)
class PromptTree:
    """Sequences in stages; ``leaves`` are the indices of the sequences in the last stage."""

    stages: list[Stage]
    leaves: list[int]

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]], cheapest: bool = True) -> "PromptTree":
        """Return the cheapest tree, which may be a row for each sequence, or the deepest.

        >>> tree = PromptTree.of([[1] * 99 + [2], [1] * 99 + [3], [4] * 100])
        >>> [[len(run) for run in stage.tokens] for stage in tree.stages], tree.leaves
        ([[99, 100], [1, 1, 0]], [0, 1, 2])
        """
        if not cheapest:
            return cls.in_stages(sequences, MAX_DEPTH)
        return min((cls.in_stages(sequences, depth) for depth in range(1, MAX_DEPTH + 1)), key=cls._cost)

    @classmethod
    def in_stages(cls, sequences: Sequence[Sequence[int]], depth: int) -> "PromptTree":
        """Return the tree of at most ``depth`` stages; in the last one each sequence has its own run."""
        stages: list[Stage] = []
        places, done = [0] * len(sequences), [0] * len(sequences)
        while len(stages) < depth and not (stages and all(map(_ended, sequences, done))):
            last = len(stages) == depth - 1
            groups: dict[tuple[int, ...], list[int]] = {}
            for index, (sequence, place, start) in enumerate(zip(sequences, places, done, strict=True)):
                group = (index,) if last else (place, *sequence[start : start + MIN_SHARED_TOKENS])
                groups.setdefault(group, []).append(index)
            stage = Stage([], [])
            for members in groups.values():
                first = members[0]
                run = common_prefix([sequences[index][done[first] :] for index in members])
                stage.parents.append(places[first])
                for index in members:
                    places[index] = len(stage.tokens)
                    done[index] += len(run)
                stage.tokens.append(run)
            stages.append(stage)
        return cls(stages, places)

    def _cost(self) -> int:
        return sum(len(stage.tokens) * stage.width + PASS_COST for stage in self.stages)


def _ended(sequence: Sequence[int], done: int) -> bool:
    return done == len(sequence)


def common_prefix(sequences: Sequence[Sequence[int]]) -> list[int]:
    """Return the longest common prefix of all sequences: that of the first and the last in lexical order."""
    lists = [list(sequence) for sequence in sequences]
    first, last = min(lists), max(lists)
    return [a for a, _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))]
