"""Heavy work in parts that do not depend on one another: done here one by one, or where an engine has it done."""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Protocol, TypeVar

import numpy as np

from robust_eval.runtime.console import progress

Shared = TypeVar("Shared")
Part = TypeVar("Part")
Done = TypeVar("Done")


class Spread(Protocol):
    """A way of having parts done; see :func:`in_parts`."""

    def __call__(
        self, stage: str, work: Callable[[Shared, Part], Done], shared: Shared, parts: Sequence[Part]
    ) -> list[Done]: ...


def one_by_one(stage: str, work: Callable[[Shared, Part], Done], shared: Shared, parts: Sequence[Part]) -> list[Done]:
    """Return all parts in this process."""
    if len(parts) < 2:
        return [work(shared, part) for part in parts]
    done = []
    with progress(stage, total=len(parts), unit="parts", passing=True) as advance:
        for part in parts:
            done.append(work(shared, part))
            advance(1, "")
    return done


SPREAD: ContextVar[Spread] = ContextVar("spread", default=one_by_one)
"""Function that runs the parts; an engine may run them elsewhere."""


def in_parts(stage: str, work: Callable[[Shared, Part], Done], shared: Shared, parts: Sequence[Part]) -> list[Done]:
    """Return ``work(shared, part)`` of each part, in their order; a person is shown the progress of this ``stage``.

    Work may be done in another process, on another machine: it changes nothing, and all that goes in and comes out can
    be pickled. How work is divided must not depend on who does it, because random numbers do (:func:`generators`).

    >>> in_parts("powers", pow, 2, [1, 2, 3])
    [2, 4, 8]
    """
    return SPREAD.get()(stage, work, shared, parts)


def generators(seed: int, number: int) -> list[np.random.Generator]:
    """Random numbers for so many parts, independent of one another; those of the first are default_rng(seed)'s.

    >>> [bool(part.random() == np.random.default_rng(0).random()) for part in generators(0, 3)]
    [True, False, False]
    """
    first = np.random.default_rng(seed)
    return [first, *first.spawn(number - 1)]
