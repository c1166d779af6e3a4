"""Batches of requests, the tree of their prompts, and the batch context that affects the last digits of numbers."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, NamedTuple

from robust_eval.model.base import Request

MIN_SHARED_TOKENS = 16
"""Minimum number of common tokens for which a separate pass is worthwhile."""
PASS_COST = 64
"""Cost of an additional pass, in tokens."""
MAX_DEPTH = 4
"""Maximum number of stages of a tree."""


@dataclass(frozen=True)
class TreeStage:
    """Stage of a prompt tree: n different runs of tokens for one pass, each after a run of the previous stage.

    ``tokens`` holds the n runs, some of which may be empty, and ``parents`` (n,) the indices of their predecessors.
    """

    tokens: list[list[int]]
    parents: list[int]

    @property
    def width(self) -> int:
        """Length of the longest run of the stage, to which shorter ones are padded."""
        return max(map(len, self.tokens))


@dataclass(frozen=True)
class PromptTree:
    """Tree of a batch's prompts in stages; ``leaves`` are the indices of the prompts in the last stage."""

    stages: list[TreeStage]
    leaves: list[int]

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]], cheapest: bool = True) -> "PromptTree":
        """Return the cheapest prompt tree of a batch, which may be a row for each prompt, or the deepest.

        >>> tree = PromptTree.of([[1] * 99 + [2], [1] * 99 + [3], [4] * 100])
        >>> [[len(run) for run in stage.tokens] for stage in tree.stages], tree.leaves
        ([[99, 100], [1, 1, 0]], [0, 1, 2])
        """
        if not cheapest:
            return cls.in_stages(sequences, MAX_DEPTH)
        return min((cls.in_stages(sequences, depth) for depth in range(1, MAX_DEPTH + 1)), key=cls._cost)

    @classmethod
    def in_stages(cls, sequences: Sequence[Sequence[int]], depth: int) -> "PromptTree":
        """Return a batch's prompt tree of at most ``depth`` stages; in the last one each prompt has its own run."""
        stages: list[TreeStage] = []
        places, done = [0] * len(sequences), [0] * len(sequences)
        while len(stages) < depth and not (stages and all(map(_ended, sequences, done))):
            last = len(stages) == depth - 1
            groups: dict[tuple[int, ...], list[int]] = {}
            for index, (sequence, place, start) in enumerate(zip(sequences, places, done, strict=True)):
                group = (index,) if last else (place, *sequence[start : start + MIN_SHARED_TOKENS])
                groups.setdefault(group, []).append(index)
            stage = TreeStage([], [])
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


class BlockSizes(NamedTuple):
    """Limits of the blocks of a stage: the difference of prompt lengths, and the prompt tokens of a block.

    The first block has 1/``ramp_up`` of the size of the later ones, the second 2/``ramp_up``, the third 4/``ramp_up``.
    """

    padding: int
    prompt_tokens: int
    ramp_up: int


BLOCK_SIZES = {False: BlockSizes(16, 8192, 8), True: BlockSizes(64, 65_536, 1)}
"""On a CPU little padding is computed (16 questions were answered 7 % faster than with a difference of 4), and a run
that stops after seconds has stored some answers. On CUDA (True) every block launches as many kernels, however large it
is: blocks are as large as the memory allows from the first one on, which takes seconds."""


@dataclass(frozen=True)
class BatchContext:
    """Summary of all requests of a stage, on which the numbers of each block depend besides its own requests."""

    shared: list[int]
    """The tokens with which every prompt begins."""
    longest: list[list[int]]
    """The longest prompt, preceded by the longest of the shorter ones, if any."""
    answers: int
    """Maximum number of answers of a request."""
    new_tokens: int
    """Maximum number of tokens of an answer."""

    @classmethod
    def of(cls, encoded: Sequence[tuple[list[int], Request]]) -> "BatchContext":
        """Return the batch context of requests, at least one, with their prompts' ids."""
        prompts = sorted((ids for ids, _ in encoded), key=len)
        shorter = [prompt for prompt in prompts if len(prompt) < len(prompts[-1])]
        return cls(
            common_prefix(prompts)[: len(prompts[0]) - 1],
            [*shorter[-1:], prompts[-1]],
            max(request.max_answers for _, request in encoded),
            max(request.max_new_tokens for _, request in encoded),
        )


def in_order(encoded: Sequence[tuple[list[int], Request]]) -> list[tuple[list[int], Request]]:
    """Return requests, with their prompts' ids, by prompt length, for batches with little padding.

    Prompts with a common prefix (the questions to a passage, say) stay together, at the place of the longest.
    """
    shared = len(common_prefix([ids for ids, _ in encoded])) if encoded else 0

    def prefix(ids: list[int]) -> tuple[int, ...]:
        return tuple(ids[shared : shared + MIN_SHARED_TOKENS])

    count = Counter(prefix(ids) for ids, _ in encoded)
    longest: dict[tuple[int, ...], int] = {}
    for ids, _ in encoded:
        longest[prefix(ids)] = max(len(ids), longest.get(prefix(ids), 0))

    def sort_key(pair: tuple[list[int], Request]) -> tuple[int, tuple[int, ...], int]:
        ids = pair[0]
        key = prefix(ids)
        return (longest[key], key, len(ids)) if count[key] > 1 else (len(ids), (), len(ids))

    return sorted(encoded, key=sort_key)


def _batch_key(request: Request) -> tuple[Any, ...]:
    """Return the properties that requests of one batch share."""
    enumeration = request.enumeration
    if enumeration is None:
        return (request.first_line,)
    temperatures = request.temperatures, enumeration.temperatures
    return request.first_line, request.max_new_tokens, temperatures, enumeration.choices is None


def blocks(
    encoded: list[tuple[list[int], Request]], answers_at_once: Callable[[], int], sizes: BlockSizes
) -> Iterator[list[tuple[list[int], Request]]]:
    """Yield blocks of prompts, in the given order, with at most ``answers_at_once()`` answers (or one prompt), within
    the limits of ``sizes``. Answers are stored block by block.
    """
    block: list[tuple[list[int], Request]] = []
    number = answers = shortest = longest = 0

    def share(whole: int) -> int:
        return max(1, whole * min(1 << number, sizes.ramp_up) // sizes.ramp_up)

    for ids, request in encoded:
        answers += request.max_answers
        shortest, longest = min(shortest, len(ids)), max(longest, len(ids))
        other = longest - shortest > sizes.padding or (bool(block) and _batch_key(request) != _batch_key(block[0][1]))
        too_much = answers > share(answers_at_once()) or (len(block) + 1) * longest > share(sizes.prompt_tokens)
        if block and (other or too_much):
            yield block
            block, number = [], number + 1
        if not block:
            answers, shortest, longest = request.max_answers, len(ids), len(ids)
        block.append((ids, request))
    if block:
        yield block


def group_by_question(requests: Sequence[Request]) -> list[list[Request]]:
    """Return the requests of a batch grouped by question; each group is generated together."""
    groups: dict[str, list[Request]] = {}
    for request in requests:
        groups.setdefault(request.question_id, []).append(request)
    return list(groups.values())
