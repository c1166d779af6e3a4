"""Parts of heavy work as tasks of Ray: embedding, ranking, clustering, resampling.

They are tasks and no actors, because Ray keeps the processes of tasks for the next ones: a library or a sentence model
that one of them has loaded stays there.
"""

import logging
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from robust_eval.error import UserError, first_line
from robust_eval.runtime.console import progress, silence_tqdm
from robust_eval.runtime.parallel import Done, Part, Shared

log = logging.getLogger(__name__)


def by_hands(
    stage: str,
    work: Callable[[Shared, Part], Done],
    shared: Shared,
    parts: Sequence[Part],
    room: int,
    num_cpus: int,
    attempts: int,
) -> list[Done]:
    """See :func:`robust_eval.runtime.parallel.run_parts`; ``room`` parts at a time, each with so many processors.

    What fails there is done here. UserError, which a person has to see to, ends it.
    """
    hand: Any = ray.remote(_hand)
    hand = hand.options(num_cpus=num_cpus, max_retries=attempts - 1)
    given = ray.put((work, shared))  # once on each machine
    waiting = list(reversed(range(len(parts))))
    under_way: dict[Any, int] = {}
    done: dict[int, Done] = {}
    failed: dict[int, str] = {}
    with progress(stage, total=len(parts), unit="parts", transient=True) as advance:
        while waiting or under_way:
            while waiting and len(under_way) < room:
                number = waiting.pop()
                under_way[hand.remote(given, parts[number], num_cpus)] = number
            (ready, *_), _ = ray.wait(list(under_way), num_returns=1)
            number = under_way.pop(ready)
            try:
                done[number] = pickle.loads(ray.get(ready))
                advance(1, "")
            except RayError as problem:
                cause = problem.cause if isinstance(problem, RayTaskError) else problem
                if isinstance(cause, UserError):
                    raise cause from None
                failed[number] = f"{type(cause).__name__}: {first_line(cause)}"
        if failed:
            reasons = "; ".join(dict.fromkeys(failed.values()))
            log.warning("%s: %d of %d parts are done here: %s", stage, len(failed), len(parts), reasons)
        for number in failed:
            done[number] = work(shared, parts[number])
            advance(1, "")
    return [done[number] for number in range(len(parts))]


def _hand(given: tuple[Callable[[Any, Any], Any], Any], part: Any, threads: int) -> bytes:
    """Do a part of the work and return its result as bytes: arrays would be views into Ray's store, and
    keep it full.
    """
    silence_tqdm()
    import torch

    torch.set_num_threads(threads)
    work, shared = given
    return pickle.dumps(work(shared, part))
