"""Batches of requests, and the batch context that affects the last digits of their numbers."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from robust_eval.model.base import Request
from robust_eval.model.local.prompt_tree import MIN_SHARED_TOKENS, common_prefix

MAX_PROMPT_TOKENS = 8192
"""Maximum number of prompt tokens that are evaluated together."""
RAMP_UP = 8
"""Size of the later blocks of a stage, in multiples of the first block."""
PADDING = 16
"""Maximum difference of prompt lengths in a block, in tokens: small, so that little padding is computed, and large
enough for large blocks (16 questions were answered 7 % faster than with 4)."""


@dataclass(frozen=True)
class BatchContext:
    """Summary of all requests of a stage, which the numbers of each block depend on besides its own requests."""

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
        """Return the summary of requests, at least one, with their prompts' ids."""
        prompts = sorted((ids for ids, _ in encoded), key=len)
        shorter = [prompt for prompt in prompts if len(prompt) < len(prompts[-1])]
        return cls(
            common_prefix(prompts)[: len(prompts[0]) - 1],
            [*shorter[-1:], prompts[-1]],
            max(request.answers for _, request in encoded),
            max(request.max_new_tokens for _, request in encoded),
        )


def in_order(encoded: Sequence[tuple[list[int], Request]]) -> list[tuple[list[int], Request]]:
    """Return requests, with their prompts' ids, by prompt length.

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
    """Return the properties that requests of one block share."""
    enumeration = request.enumeration
    enumerated = (request.max_new_tokens, enumeration.temperatures, enumeration.choices is None) if enumeration else ()
    return request.first_line, enumerated


def growing_blocks(
    encoded: list[tuple[list[int], Request]], max_answers: int
) -> Iterator[list[tuple[list[int], Request]]]:
    """Yield the blocks of a stage: prompts, :func:`in_order`, of which the first blocks are small.

    Answers are stored block by block, so that a run that stops after seconds has stored some. The first block has 1/8
    of the size of the later ones (:data:`RAMP_UP`), the second 2/8, the third 4/8.
    """
    number = 0

    def share(whole: int) -> int:
        return max(1, whole * min(1 << number, RAMP_UP) // RAMP_UP)

    for block in blocks(encoded, lambda: share(max_answers), PADDING, lambda: share(MAX_PROMPT_TOKENS)):
        yield block
        number += 1


def blocks(
    encoded: list[tuple[list[int], Request]],
    answers_at_once: Callable[[], int],
    padding: int,
    tokens_at_once: Callable[[], int] = lambda: MAX_PROMPT_TOKENS,
) -> Iterator[list[tuple[list[int], Request]]]:
    """Yield blocks of prompts, in the given order, with at most ``answers_at_once()`` answers (or one prompt) and
    lengths that differ by at most ``padding`` tokens.
    """
    block: list[tuple[list[int], Request]] = []
    answers = shortest = longest = 0
    for ids, request in encoded:
        answers += request.answers
        shortest, longest = min(shortest, len(ids)), max(longest, len(ids))
        other = longest - shortest > padding or (bool(block) and _batch_key(request) != _batch_key(block[0][1]))
        too_much = answers > answers_at_once() or (len(block) + 1) * longest > tokens_at_once()
        if block and (other or too_much):
            yield block
            block = []
        if not block:
            answers, shortest, longest = request.answers, len(ids), len(ids)
        block.append((ids, request))
    if block:
        yield block
