"""Choose the number of threads with which torch computes fastest on this machine."""

import logging
import os
import time
from collections.abc import Callable

import torch

from robust_eval.runtime.measured_choices import remembered

log = logging.getLogger(__name__)

ROUNDS = 3
SECONDS = 0.1
"""Seconds per number of threads and round: a container with a CPU quota is throttled once in this time."""
WORTH = 1.1
"""The speed-up from which another number than torch's own is used."""


def fastest_threads() -> int:
    """Return the number of threads with which a layer of usual size is computed fastest.

    Torch starts a thread for every physical core that it sees. In a container that may use a few of them only, or
    where two threads of a core are faster than one, that is not the fastest.
    """
    own = torch.get_num_threads()
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or own
    numbers = sorted({own, processors, *(2**power for power in range(processors.bit_length()))})
    circumstances = f"torch-{torch.__version__} {processors} processors {own} threads"
    chosen = remembered(
        "threads", circumstances, lambda: str(_fastest(numbers, own)), lambda known: known in map(str, numbers)
    )
    log.info("torch threads: %s, the fastest of %s on this machine", chosen, ", ".join(map(str, numbers)))
    return int(chosen)


def _fastest(numbers: list[int], own: int) -> int:
    seconds = dict.fromkeys(numbers, float("inf"))
    layer = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.SiLU(), torch.nn.Linear(4096, 1024))
    hidden = torch.randn(128, 1024, generator=torch.Generator().manual_seed(0))
    try:
        for _ in range(ROUNDS):  # in turns, because neighbours on a machine come and go
            for number in numbers:
                torch.set_num_threads(number)
                seconds[number] = min(seconds[number], _seconds(lambda: layer(hidden).softmax(dim=-1)))
    finally:
        torch.set_num_threads(own)
    best = min(numbers, key=lambda number: seconds[number])
    return best if seconds[best] * WORTH <= seconds[own] else own


@torch.inference_mode()
def _seconds(work: Callable[[], object]) -> float:
    """Return the mean seconds of a call, after one call that starts the threads."""
    work()
    calls = 0
    start = time.perf_counter()
    while (elapsed := time.perf_counter() - start) < SECONDS:
        work()
        calls += 1
    return elapsed / calls
