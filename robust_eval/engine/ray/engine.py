"""Ray engine: many worker processes, on this machine or in a cluster."""

import importlib.util
import logging
import os
import pickle
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from robust_eval.engine.base import ATTEMPTS
from robust_eval.error import UserError, first_line
from robust_eval.model.base import LanguageModel
from robust_eval.model.model_config import ModelConfig
from robust_eval.runtime.console import progress, silence_tqdm
from robust_eval.runtime.parallel import PART_RUNNER, Done, Part, Shared, run_sequentially

log = logging.getLogger(__name__)

CONNECT_TIMEOUT = 5.0
"""Timeout of the connection to a cluster, in seconds."""
MIN_PARTS = 16
"""Minimum number of parts of heavy work for Ray; this process does fewer sooner."""
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",  # else it logs its housekeeping to the terminal
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_worker_niceness": "0",  # the priority of other engines
}


@dataclass
class Ray:
    """Ray engine (engine=ray): blocks of questions go through Ray Data to actors, each of which holds the model."""

    address: str | None = None
    """Address of a cluster: auto (that of this machine), or HOST:PORT. null: start one on this machine for the run."""
    actors: int | None = None
    """Number of worker processes; null: as many as fit into the cluster."""
    num_cpus: int = 1
    """CPUs of each actor: the number of threads of a model on the CPU."""
    num_gpus: float = 0.0
    """GPUs of each actor; above 0, a model with device=auto runs on a GPU."""
    block_size: int = 32
    """Minimum number of questions in a block for an actor. Answers do not depend on it."""

    def __post_init__(self) -> None:
        self._is_started = False
        for name in ("actors", "num_cpus", "block_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        if not self.num_gpus >= 0:
            raise ValueError(f"num_gpus must be 0 or more, not {self.num_gpus:g}")
        if self.num_gpus > 1 and self.num_gpus % 1:
            raise ValueError(f"num_gpus above 1 must be a whole number, not {self.num_gpus:g}")
        if importlib.util.find_spec("ray") is None:
            raise ValueError("Ray is not installed: pip install 'robust_eval[ray]', or choose engine=local")

    @contextmanager
    def open(self) -> Iterator[None]:
        """Start or join Ray on demand; shut down a started one at the end."""
        import torch

        threads = torch.get_num_threads()
        torch.set_num_threads(self.num_cpus)  # as in the actors: the last digits of numbers depend on it
        self._is_started = False
        before = PART_RUNNER.set(self._spread)
        try:
            yield
        finally:
            PART_RUNNER.reset(before)
            torch.set_num_threads(threads)
            if self._is_started:
                import ray

                ray.shutdown()

    def place(self, config: ModelConfig) -> ModelConfig:
        """Return the model's settings with the device of Ray's actors, which may differ from that of this process."""
        return config.on("cuda" if self.num_gpus else "cpu")

    def load(self, config: ModelConfig) -> LanguageModel:
        """Return the Ray actors, which load the model with their first block; UserError without cluster or room."""
        from robust_eval.engine.ray.actors import Actors

        self._connect()
        self.room()
        return Actors(self, config)

    def _spread(
        self, stage: str, work: Callable[[Shared, Part], Done], shared: Shared, parts: Sequence[Part]
    ) -> list[Done]:
        """Return the results of parts of heavy work, from tasks of Ray if there are many."""
        if len(parts) < MIN_PARTS:
            return run_sequentially(stage, work, shared, parts)
        try:
            self._connect()
            self._room(num_gpus=0)
        except UserError as problem:  # answers that have arrived can still be graded
            log.warning("%s: %s; continuing in this process", stage, problem)
            return run_sequentially(stage, work, shared, parts)
        return _run_as_tasks(stage, work, shared, parts, self.num_cpus)

    def _connect(self) -> None:
        """Start or join Ray, unless this process has done so."""
        imported = sys.modules.get("ray")
        if not (self._is_started or (imported is not None and imported.is_initialized())):
            self._refuse_dead_address()  # before the import, which takes seconds
        self.import_quietly()
        import ray

        if ray.is_initialized():
            return
        dashboard = False if self.address is None else None  # None: the cluster decides
        try:
            with _silence():
                ray.init(
                    self.address or "local",
                    include_dashboard=dashboard,
                    log_to_driver=False,
                    logging_level=logging.CRITICAL,
                )
        except (ConnectionError, RuntimeError, ValueError) as problem:
            raise UserError(f"engine.address={self.address or 'null'}: Ray reports {first_line(problem)}") from problem
        self._is_started = True

    def _refuse_dead_address(self) -> None:
        """Raise UserError if no connection to HOST:PORT is accepted: Ray would wait for minutes."""
        url = urlsplit(f"//{(self.address or '').removeprefix('ray://')}")
        try:
            if not url.hostname or url.port is None:
                return
            with socket.create_connection((url.hostname, url.port), CONNECT_TIMEOUT):
                pass
        except (OSError, ValueError) as problem:
            raise UserError(
                f"engine.address={self.address}: no Ray cluster answers ({first_line(problem)}): start one with "
                "ray start --head, or set engine.address=null"
            ) from problem

    @staticmethod
    def import_quietly() -> None:
        """Import Ray without output to the terminal and without usage reports."""
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        import ray.data

        for handler in logging.getLogger("ray.data").handlers:
            if handler.name == "console":
                handler.setLevel(logging.CRITICAL + 1)  # its log files have all
        ray.data.DataContext.get_current().enable_progress_bars = False

    def room(self) -> int:
        """Return the number of actors that Ray has room for now; UserError if no machine has room for one."""
        room = self._room(self.num_gpus)
        return self.actors or room

    def _room(self, num_gpus: float) -> int:
        """Return the number of processes with so much of a GPU that Ray has room for now."""
        import ray

        needed = {"CPU": float(self.num_cpus), "GPU": num_gpus}
        nodes = ray.nodes()  # type: ignore[no-untyped-call]
        machines = [node["Resources"] for node in nodes if node["Alive"]]
        room = sum(
            min(_times(machine.get(kind, 0), amount) for kind, amount in needed.items() if amount)
            for machine in machines
        )
        if not room:
            resources = "; ".join(", ".join(f"{m.get(kind, 0):g} {kind}" for kind in needed) for m in machines)
            raise UserError(
                f"no machine has room for an actor with engine.num_cpus={self.num_cpus} and "
                f"engine.num_gpus={num_gpus:g}; machines have {resources}"
            )
        return room


def _times(available: float, amount: float) -> int:
    """Return how many times an amount fits into Ray's resources; a fraction must fit into one unit, such as a GPU."""
    return int(available) * int(1 / amount + 1e-9) if 0 < amount < 1 else int(available / amount)


@contextmanager
def _silence() -> Iterator[None]:
    """Silence standard error while Ray starts, also that of libraries in other languages."""
    sys.stderr.flush()
    saved, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(null)


def _run_as_tasks(
    stage: str, work: Callable[[Shared, Part], Done], shared: Shared, parts: Sequence[Part], num_cpus: int
) -> list[Done]:
    """Run parts as tasks of Ray, each on ``num_cpus`` CPUs; see :func:`robust_eval.runtime.parallel.run_parts`.

    Ray reuses the processes of tasks, unlike those of actors: a loaded library or sentence model stays loaded. This
    process repeats failed parts. A UserError ends the work.
    """
    import ray
    from ray.exceptions import RayError, RayTaskError

    remote: Any = ray.remote(_run_part)
    task = remote.options(num_cpus=num_cpus, max_retries=ATTEMPTS - 1)
    inputs = ray.put((work, shared))  # once on each machine
    tasks = [task.remote(inputs, part, num_cpus) for part in parts]
    done: dict[int, Done] = {}
    failed: dict[int, str] = {}
    with progress(stage, total=len(parts), unit="parts", transient=True) as advance:
        for number, each in enumerate(tasks):
            try:
                done[number] = pickle.loads(ray.get(each))
                advance(1, "")
            except RayError as problem:
                cause = problem.cause if isinstance(problem, RayTaskError) else problem
                if isinstance(cause, UserError):
                    raise cause from None
                failed[number] = f"{type(cause).__name__}: {first_line(cause)}"
        if failed:
            reasons = "; ".join(dict.fromkeys(failed.values()))
            message = "%s: %d of %d parts failed on Ray, and will be recomputed in this process: %s"
            log.warning(message, stage, len(failed), len(parts), reasons)
        for number in failed:
            done[number] = work(shared, parts[number])
            advance(1, "")
    return [done[number] for number in range(len(parts))]


def _run_part(inputs: tuple[Callable[[Any, Any], Any], Any], part: Any, threads: int) -> bytes:
    """Do a part of the work in a task of Ray; return its result as bytes: array views would keep Ray's store full."""
    silence_tqdm()
    import torch

    torch.set_num_threads(threads)
    work, shared = inputs
    return pickle.dumps(work(shared, part))
