"""Parts of heavy work as tasks of Ray: embedding, ranking, clustering, resampling.

Ray reuses the processes of tasks, unlike those of actors: a loaded library or sentence model stays loaded.
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


def run_as_tasks(
    stage: str,
    work: Callable[[Shared, Part], Done],
    shared: Shared,
    parts: Sequence[Part],
    room: int,
    num_cpus: int,
    attempts: int,
) -> list[Done]:
    """See :func:`robust_eval.runtime.parallel.run_parts`; ``room`` parts at a time, each on ``num_cpus`` CPUs.

    This process repeats failed parts. A UserError ends the work.
    """
    remote: Any = ray.remote(_run_part)
    task = remote.options(num_cpus=num_cpus, max_retries=attempts - 1)
    inputs = ray.put((work, shared))  # once on each machine
    waiting = list(reversed(range(len(parts))))
    under_way: dict[Any, int] = {}
    done: dict[int, Done] = {}
    failed: dict[int, str] = {}
    with progress(stage, total=len(parts), unit="parts", transient=True) as advance:
        while waiting or under_way:
            while waiting and len(under_way) < room:
                number = waiting.pop()
                under_way[task.remote(inputs, parts[number], num_cpus)] = number
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
            log.warning("%s: %d of %d parts failed and are repeated here: %s", stage, len(failed), len(parts), reasons)
        for number in failed:
            done[number] = work(shared, parts[number])
            advance(1, "")
    return [done[number] for number in range(len(parts))]


def _run_part(inputs: tuple[Callable[[Any, Any], Any], Any], part: Any, threads: int) -> bytes:
    """Do a part of the work; return its result as bytes, because arrays would be views that keep Ray's store full."""
    silence_tqdm()
    import torch

    torch.set_num_threads(threads)
    work, shared = inputs
    return pickle.dumps(work(shared, part))
