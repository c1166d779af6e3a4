"""Parts of heavy work as tasks of Ray: embedding, clustering, resampling.

They are tasks and no actors, because Ray keeps the processes of tasks for the next ones: a library or a sentence model
that one of them has loaded stays there.
"""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import ray
from ray.exceptions import RayError

from robust_eval.progress import progress

if TYPE_CHECKING:
    from robust_eval.engine.ray import Ray

log = logging.getLogger(__name__)

Shared = TypeVar("Shared")
Part = TypeVar("Part")
Done = TypeVar("Done")


def by_hands(
    engine: "Ray", stage: str, work: Callable[[Shared, Part], Done], shared: Shared, parts: Sequence[Part]
) -> list[Done]:
    """See :func:`robust_eval.parts.in_parts`; what fails there is done here, where a problem can be told."""
    hand: Any = ray.remote(_hand)
    hand = hand.options(num_cpus=engine.num_cpus, max_retries=engine.attempts - 1)
    given, room = ray.put((work, shared)), engine.room()
    waiting = list(reversed(range(len(parts))))
    under_way: dict[Any, int] = {}
    done: dict[int, Done] = {}
    failed: list[int] = []
    with progress(stage, total=len(parts), unit="parts") as advance:
        while waiting or under_way:
            while waiting and len(under_way) < room:
                number = waiting.pop()
                under_way[hand.remote(given, parts[number], engine.num_cpus)] = number
            (ready, *_), _ = ray.wait(list(under_way), num_returns=1)
            number = under_way.pop(ready)
            try:
                done[number] = ray.get(ready)
                advance(1, "")
            except RayError:
                failed.append(number)
        if failed:
            log.warning("%s: %d of %d parts failed, and are done here", stage, len(failed), len(parts))
        for number in failed:
            done[number] = work(shared, parts[number])
            advance(1, "")
    return [done[number] for number in range(len(parts))]


def _hand(given: tuple[Callable[[Any, Any], Any], Any], part: Any, threads: int) -> Any:
    import torch

    torch.set_num_threads(threads)
    work, shared = given
    return work(shared, part)
