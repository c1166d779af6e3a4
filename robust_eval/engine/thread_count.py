"""Choice of the number of threads with which torch computes fastest on this machine."""

import logging
import os
from collections.abc import Callable

import torch

from robust_eval.runtime.cache import get_or_measure

log = logging.getLogger(__name__)

ROUNDS = 3
SECONDS = 0.1
"""Seconds per number of threads and round: a container with a CPU quota is throttled once in this time."""
MIN_SPEED_UP = 1.1
"""Minimum speed-up over torch's default number of threads."""


def fastest_threads() -> int:
    """Return the number of threads with which a layer of usual size is computed fastest.

    Torch starts a thread for every physical core. That is slow in a container with few of the cores, or where two
    threads of a core are faster than one.
    """
    default = torch.get_num_threads()
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or default
    numbers = sorted({default, processors, *(2**power for power in range(processors.bit_length()))})
    circumstances = f"torch-{torch.__version__} {processors} processors {default} threads"
    chosen = get_or_measure(
        "threads", circumstances, lambda: str(_fastest(numbers, default)), lambda cached: cached in map(str, numbers)
    )
    log.info("torch threads: %s, the fastest of %s on this machine", chosen, ", ".join(map(str, numbers)))
    return int(chosen)


def _fastest(numbers: list[int], default: int) -> int:
    seconds = dict.fromkeys(numbers, float("inf"))
    layer = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.SiLU(), torch.nn.Linear(4096, 1024))
    hidden = torch.randn(128, 1024, generator=torch.Generator().manual_seed(0))
    for _ in range(ROUNDS):  # in turns, because the load of a machine varies
        for number in numbers:
            seconds[number] = min(seconds[number], _seconds(lambda: layer(hidden).softmax(dim=-1), number))
    best = min(numbers, key=lambda number: seconds[number])
    return best if seconds[best] * MIN_SPEED_UP <= seconds[default] else default


@torch.inference_mode()
def _seconds(work: Callable[[], object], threads: int) -> float:
    """Return the mean seconds of a call with this number of threads."""
    from torch.utils.benchmark import Timer

    timer = Timer("work()", globals={"work": work}, num_threads=threads)
    return timer.blocked_autorange(min_run_time=SECONDS).mean
