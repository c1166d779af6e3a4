"""Which requests are answered together, and what else their answers depend on in the last digits."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from robust_eval.model.base import Request

PROMPT_TOKENS_AT_ONCE = 8192
"""Prompt tokens that are evaluated together at most."""
FIRST = 8
"""How many times as much as the first block of a stage a later one may take."""
PADDING = 16
"""Prompts in a block differ by at most so many tokens: few enough that little is computed for nothing, and enough that
blocks are large (16 questions were answered 7 % faster than with 4)."""


@dataclass(frozen=True)
class Beside:
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
    def of(cls, encoded: Sequence[tuple[list[int], Request]]) -> "Beside":
        """Return the summary of requests, at least one, with their prompts' ids, the shortest first."""
        prompts = [ids for ids, _ in encoded]
        shorter = [prompt for prompt in prompts if len(prompt) < len(prompts[-1])]
        return cls(
            _common_prefix(prompts)[: len(prompts[0]) - 1],
            [*shorter[-1:], prompts[-1]],
            max(request.answers for _, request in encoded),
            max(request.max_new_tokens for _, request in encoded),
        )


def _common_prefix(sequences: Sequence[list[int]]) -> list[int]:
    """Return the longest beginning that all sequences share: that of the first and the last in lexical order."""
    first, last = min(sequences), max(sequences)
    differ = (index for index, (a, b) in enumerate(zip(first, last, strict=False)) if a != b)
    return first[: next(differ, len(first))]


def _kind(request: Request) -> tuple[Any, ...]:
    """Return what requests must share to be answered together."""
    enumeration = request.enumeration
    enumerated = (request.max_new_tokens, enumeration.temperatures, enumeration.choices is None) if enumeration else ()
    return request.first_line, request.coupling, enumerated


def growing_blocks(
    encoded: list[tuple[list[int], Request]], most_answers: int
) -> Iterator[list[tuple[list[int], Request]]]:
    """Yield the blocks of a stage: prompts, sorted by length, of which the first blocks are small.

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
    """Prompts, sorted by length, as many together as bring at most ``answers_at_once()`` answers (one at least)."""
    block: list[tuple[list[int], Request]] = []
    answers = 0
    for ids, request in encoded:
        answers += request.answers
        tokens = (len(block) + 1) * len(ids)
        other = bool(block) and (len(ids) > len(block[0][0]) + padding or _kind(request) != _kind(block[0][1]))
        if block and (other or answers > answers_at_once() or tokens > tokens_at_once()):
            yield block
            block, answers = [], request.answers
        block.append((ids, request))
    if block:
        yield block
