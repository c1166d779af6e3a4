"""Heavy work in independent parts: run sequentially in this process, or distributed by an engine."""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Protocol, TypeVar

import numpy as np

from robust_eval.runtime.console import progress

Shared = TypeVar("Shared")
Part = TypeVar("Part")
Done = TypeVar("Done")


class PartRunner(Protocol):
    """Function that runs parts of parallel work; see :func:`run_parts`."""

    def __call__(
        self, stage: str, work: Callable[[Shared, Part], Done], shared: Shared, parts: Sequence[Part]
    ) -> list[Done]: ...


def run_sequentially(
    stage: str, work: Callable[[Shared, Part], Done], shared: Shared, parts: Sequence[Part]
) -> list[Done]:
    """Run all parts of parallel work sequentially in this process."""
    if len(parts) < 2:
        return [work(shared, part) for part in parts]
    results = []
    with progress(stage, total=len(parts), unit="parts", transient=True) as advance:
        for part in parts:
            results.append(work(shared, part))
            advance(1, "")
    return results


PART_RUNNER: ContextVar[PartRunner] = ContextVar("spread", default=run_sequentially)
"""Function that runs the parts; an engine may run them elsewhere."""


def run_parts(stage: str, work: Callable[[Shared, Part], Done], shared: Shared, parts: Sequence[Part]) -> list[Done]:
    """Return ``work(shared, part)`` of each parallel part, in their order; a progress bar is named ``stage``.

    The work may run in another process or machine: it must have no side effects, and input and output that can be
    pickled. The division must not depend on the runner, because random numbers depend on it (:func:`generators`).

    >>> run_parts("powers", pow, 2, [1, 2, 3])
    [2, 4, 8]
    """
    return PART_RUNNER.get()(stage, work, shared, parts)


def generators(seed: int, number: int) -> list[np.random.Generator]:
    """Return independent random generators for ``number`` parallel parts; the first is default_rng(seed).

    >>> [bool(part.random() == np.random.default_rng(0).random()) for part in generators(0, 3)]
    [True, False, False]
    """
    first = np.random.default_rng(seed)
    return [first, *first.spawn(number - 1)]
