"""On Ray: many processes answer, on this machine or on all of a cluster."""

import importlib.util
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from robust_eval.error import UserError, first_line
from robust_eval.model.model_config import ModelConfig
from robust_eval.runtime.parallel import PART_RUNNER, Done, Part, Shared, run_sequentially

if TYPE_CHECKING:
    from robust_eval.engine.ray.actors import Actors

log = logging.getLogger(__name__)

CONNECTED = 5.0
"""Seconds within which a cluster takes a connection."""
WORTH = 16
"""Parts of heavy work for which Ray is asked; fewer are done sooner in this process."""
SURROUNDINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",  # it would tell the terminal about its own housekeeping
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # an actor without a GPU need not be told again that it has none
    "RAY_worker_niceness": "0",  # other engines do not stand back either
}


@dataclass
class Ray:
    """Questions go in blocks through Ray Data to actors, each of which holds the model."""

    address: str | None = None
    """Of a cluster: auto is the one that this machine belongs to, HOST:PORT another. null: one is started here, and
    ended with the run."""
    actors: int | None = None
    """Processes that answer; null: as many as the cluster has room for."""
    num_cpus: int = 1
    """Of each actor; a model on the CPU computes with so many threads."""
    num_gpus: float = 0.0
    """Of each actor; above 0 a model whose device is auto is on a GPU."""
    block_size: int = 32
    """Questions that an actor is given at once, at least: they are whole blocks of the model. Answers do not depend on
    it."""
    attempts: int = 3
    """Times that a block is tried before its answers are given up: they are errors then, and asked again by the next
    run."""

    def __post_init__(self) -> None:
        self._began = False
        for name in ("actors", "num_cpus", "block_size", "attempts"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        if not self.num_gpus >= 0:
            raise ValueError(f"num_gpus must be 0 or more, not {self.num_gpus:g}")
        if self.num_gpus > 1 and self.num_gpus % 1:
            raise ValueError(f"num_gpus above 1 must be whole, not {self.num_gpus:g}")
        if importlib.util.find_spec("ray") is None:
            raise ValueError('Ray is not installed: pip install -e ".[ray]", or choose engine=local')

    @contextmanager
    def open(self) -> Iterator[None]:
        """Ray is started, or joined, when there is something to do; what was joined goes on afterwards."""
        import torch

        threads = torch.get_num_threads()
        torch.set_num_threads(self.num_cpus)  # as in the actors: numbers depend on it in their last digits
        self._began = False
        before = PART_RUNNER.set(self._spread)
        try:
            yield
        finally:
            PART_RUNNER.reset(before)
            torch.set_num_threads(threads)
            if self._began:
                import ray

                ray.shutdown()

    def place(self, config: ModelConfig) -> ModelConfig:
        """Return the settings with the device of the actors: this process may have another."""
        return config.on("cuda" if self.num_gpus else "cpu")

    def load(self, config: ModelConfig) -> "Actors":
        """Return the actors load it, when they are first asked. UserError where there is no cluster, or no
        room in it.
        """
        from robust_eval.engine.ray.actors import Actors

        self._connect()
        self.room()
        return Actors(self, config)

    def _spread(
        self, stage: str, work: Callable[[Shared, Part], Done], shared: Shared, parts: Sequence[Part]
    ) -> list[Done]:
        """Return parts of heavy work, by tasks of Ray where there are many."""
        if len(parts) < WORTH:
            return run_sequentially(stage, work, shared, parts)
        try:
            self._connect()
            room = self._room(num_gpus=0)
        except UserError as problem:  # what has been answered is to be graded
            log.warning("%s: %s; it is done here", stage, problem)
            return run_sequentially(stage, work, shared, parts)
        from robust_eval.engine.ray.ray_tasks import by_hands

        return by_hands(stage, work, shared, parts, room, self.num_cpus, self.attempts)

    def _connect(self) -> None:
        """Start or join Ray, unless this process has done so."""
        there = sys.modules.get("ray")
        if not (self._began or (there is not None and there.is_initialized())):
            self._refuse_dead_address()  # before the seconds that the import takes
        self.import_quietly()
        import ray

        if ray.is_initialized():
            return
        dashboard = False if self.address is None else None  # a cluster has one or not
        try:
            with _silence():
                ray.init(
                    self.address or "local",
                    include_dashboard=dashboard,
                    log_to_driver=False,
                    logging_level=logging.CRITICAL,
                )
        except (ConnectionError, RuntimeError, ValueError) as problem:
            raise UserError(f"engine.address={self.address or 'null'}: Ray gives {first_line(problem)}") from problem
        self._began = True

    def _refuse_dead_address(self) -> None:
        """Raise UserError where nothing takes a connection at HOST:PORT, for which Ray would wait for minutes."""
        place = urlsplit(f"//{(self.address or '').removeprefix('ray://')}")
        try:
            if not place.hostname or place.port is None:
                return
            with socket.create_connection((place.hostname, place.port), CONNECTED):
                pass
        except (OSError, ValueError) as problem:
            raise UserError(
                f"engine.address={self.address}: no Ray cluster answers ({first_line(problem)}): start one with "
                "ray start --head, or set engine.address=null"
            ) from problem

    @staticmethod
    def import_quietly() -> None:
        """Import Ray so that it leaves the terminal to others, and reports to nobody."""
        for name, value in SURROUNDINGS.items():
            os.environ.setdefault(name, value)
        import ray.data

        for handler in logging.getLogger("ray.data").handlers:
            if handler.name == "console":
                handler.setLevel(logging.CRITICAL + 1)  # its files have it all
        ray.data.DataContext.get_current().enable_progress_bars = False

    def room(self) -> int:
        """Return how many actors there can be by now; UserError where no machine has room for one."""
        room = self._room(self.num_gpus)
        return self.actors or room

    def _room(self, num_gpus: float) -> int:
        """Return how many processes with so much of a GPU there can be by now."""
        import ray

        needed = {"CPU": float(self.num_cpus), "GPU": num_gpus}
        nodes = ray.nodes()  # type: ignore[no-untyped-call]
        machines = [node["Resources"] for node in nodes if node["Alive"]]
        room = sum(
            min(_times(machine.get(kind, 0), amount) for kind, amount in needed.items() if amount)
            for machine in machines
        )
        if not room:
            there = "; ".join(", ".join(f"{m.get(kind, 0):g} {kind}" for kind in needed) for m in machines)
            raise UserError(
                f"no machine has room for an actor with engine.num_cpus={self.num_cpus} and "
                f"engine.num_gpus={num_gpus:g}: there are {there}"
            )
        return room


def _times(there: float, amount: float) -> int:
    """Return how often a machine has an amount of something; a part is one of a whole, as of a GPU."""
    if 0 < amount < 1:
        return int(there) * int(1 / amount + 1e-9)
    return int(there / amount)


@contextmanager
def _silence() -> Iterator[None]:
    """Keep standard error silent meanwhile, also for libraries that are not written in Python."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
