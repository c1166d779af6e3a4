"""Which requests are answered together, and what else their answers depend on in the last digits."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from robust_eval.model.base import Request
from robust_eval.model.local.prompt_tree import LEAST, common_prefix

PROMPT_TOKENS_AT_ONCE = 8192
"""Prompt tokens that are evaluated together at most."""
FIRST = 8
"""How many times as much as the first block of a stage a later one may take."""
PADDING = 16
"""Prompts in a block differ by at most so many tokens: few enough that little is computed for nothing, and enough that
blocks are large (16 questions were answered 7 % faster than with 4)."""


@dataclass(frozen=True)
class BatchContext:
    """What the numbers of a block depend on besides its own requests: a summary of all that are asked together."""

    shared: list[int]
    """The tokens with which every prompt begins."""
    longest: list[list[int]]
    """The longest prompt, after the longest of those that are shorter, if there is one."""
    answers: int
    """The most that one of the requests wants."""
    new_tokens: int
    """The most that one of their answers has."""

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
    """Return requests, with their prompts' ids, the shortest prompts first, but those that begin alike together: the
    questions to a passage, say, which follow by the longest of them.
    """
    shared = len(common_prefix([ids for ids, _ in encoded])) if encoded else 0

    def beginning(ids: list[int]) -> tuple[int, ...]:
        return tuple(ids[shared : shared + LEAST])

    count = Counter(beginning(ids) for ids, _ in encoded)
    longest: dict[tuple[int, ...], int] = {}
    for ids, _ in encoded:
        longest[beginning(ids)] = max(len(ids), longest.get(beginning(ids), 0))

    def place(pair: tuple[list[int], Request]) -> tuple[int, tuple[int, ...], int]:
        ids = pair[0]
        own = beginning(ids)
        return (longest[own], own, len(ids)) if count[own] > 1 else (len(ids), (), len(ids))

    return sorted(encoded, key=place)


def _kind(request: Request) -> tuple[Any, ...]:
    """Return what requests must share to be answered together."""
    enumeration = request.enumeration
    enumerated = (request.max_new_tokens, enumeration.temperatures, enumeration.choices is None) if enumeration else ()
    return request.first_line, enumerated


def growing_blocks(
    encoded: list[tuple[list[int], Request]], most_answers: int
) -> Iterator[list[tuple[list[int], Request]]]:
    """Yield the blocks of a stage: prompts, :func:`in_order`, of which the first blocks are small.

    Answers are kept block by block, so that a run that is stopped after seconds has kept some. The first block takes
    1/8 of what the later ones take (:data:`FIRST`), the second 2/8, the third 4/8.
    """
    number = 0

    def share(whole: int) -> int:
        return max(1, whole * min(1 << number, FIRST) // FIRST)

    for block in blocks(encoded, lambda: share(most_answers), PADDING, lambda: share(PROMPT_TOKENS_AT_ONCE)):
        yield block
        number += 1


def blocks(
    encoded: list[tuple[list[int], Request]],
    answers_at_once: Callable[[], int],
    padding: int,
    tokens_at_once: Callable[[], int] = lambda: PROMPT_TOKENS_AT_ONCE,
) -> Iterator[list[tuple[list[int], Request]]]:
    """Yield prompts in the order given, as many together as bring at most ``answers_at_once()`` answers (one at
    least), and as differ by at most ``padding`` tokens.
    """
    block: list[tuple[list[int], Request]] = []
    answers = shortest = longest = 0
    for ids, request in encoded:
        answers += request.answers
        shortest, longest = min(shortest, len(ids)), max(longest, len(ids))
        other = longest - shortest > padding or (bool(block) and _kind(request) != _kind(block[0][1]))
        too_much = answers > answers_at_once() or (len(block) + 1) * longest > tokens_at_once()
        if block and (other or too_much):
            yield block
            block = []
        if not block:
            answers, shortest, longest = request.answers, len(ids), len(ids)
        block.append((ids, request))
    if block:
        yield block
