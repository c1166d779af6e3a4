"""Local engine: models in this process, with a thread count measured for this machine."""

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from robust_eval.engine.base import Waves, settling
from robust_eval.model.base import Item, KeyValueStore, LanguageModel, Request, Temperatures
from robust_eval.model.config import ModelConfig
from robust_eval.model.reply_tables import Arrived, arrived
from robust_eval.runtime.console import progress
from robust_eval.runtime.measured_choices import remembered


@dataclass
class Local:
    """Requests go to the model one block after the other."""

    threads: int | None = None
    """CPU threads of torch; null: as many as are fastest on this machine, measured once. Set it when several runs share
    a machine."""

    def __post_init__(self) -> None:
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"threads must be at least 1, not {self.threads}")

    @contextmanager
    def open(self) -> Iterator[None]:
        """Give torch its own number of threads again at the end, where models were loaded in between."""
        self._own: int | None = None
        try:
            yield
        finally:
            if self._own is not None:
                import torch

                torch.set_num_threads(self._own)

    def place(self, config: ModelConfig) -> ModelConfig:
        """Return the settings as they are."""
        return config

    def load(self, config: ModelConfig) -> "LocalRunner":
        """See :class:`robust_eval.engine.base.Engine`."""
        if not config.remote:
            self.prepare()
        return LocalRunner(config.load())

    def prepare(self) -> None:
        """Set what must be set before a model is loaded."""
        import torch

        if getattr(self, "_own", None) is None:  # before the first model of the run
            self._own = torch.get_num_threads()
        torch.set_num_threads(self.threads or fastest_threads())


class LocalRunner:
    """A model that is loaded in this process; see :class:`robust_eval.engine.base.ModelRunner`."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model

    def check(self, requests: Sequence[Request]) -> None:
        self._model.check(requests)

    def temperatures(self, wanted: float) -> Temperatures:
        return self._model.temperatures(wanted)

    def answers(self, requests: Sequence[Request], missing: Set[Item], stage: str) -> Iterator[list[Arrived]]:
        with progress(stage, total=len(missing), unit="prompts") as advance:
            for replies in self._model.complete(requests, missing):
                yield arrived(replies)
                advance(sum(reply.share for reply in replies), self._model.status())

    def in_waves(self, requests: Sequence[Request], waves: Waves, stage: str, items: int) -> Iterator[list[Arrived]]:
        with settling(stage, waves, items) as advance:
            for replies in self._model.in_waves(requests, waves.next):
                yield arrived(replies)
                advance(self._model.status())

    def attach_store(self, store: KeyValueStore) -> None:
        self._model.attach_store(store)

    def cancel(self, requests: Sequence[Request]) -> list[str]:
        return self._model.cancel(requests)

    def description(self) -> dict[str, Any]:
        return self._model.description()


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
