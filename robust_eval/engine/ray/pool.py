"""Stream serialized work through a pool of Ray actors, by Ray Data."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pyarrow as pa
import ray
import ray.data

ASKED, CAME = "asked", "came"
"""The column of an actor's input and that of its output; both tables have one row of bytes."""


def streamed(
    kind: type, arguments: tuple[Any, ...], asked: Sequence[bytes], actors: int, num_cpus: int, num_gpus: float
) -> Iterator[bytes]:
    """Yield the outputs of actors of class ``kind``, made with these arguments, for the inputs ``asked``, in any order.

    A ``kind`` maps a table with one row of :data:`ASKED` to one with one row of :data:`CAME`. The output of an actor
    that failed or died is missing; Ray restarts the actor where there is room.
    """
    names: list[str] = []

    def named() -> dict[str, str]:
        names.append(str(uuid4()))
        return {"name": names[-1]}

    ray.data.DataContext.get_current().max_errored_blocks = -1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # how often actors return and what they are called has no other place yet
        stream = ray.data.from_items([{ASKED: each} for each in asked], override_num_blocks=len(asked)).map_batches(
            kind,
            fn_constructor_args=arguments,
            batch_size=1,
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(
                size=actors,
                max_tasks_in_flight_per_actor=1,  # the first that is ready would take what others are soon free for
            ),
            num_cpus=num_cpus,
            num_gpus=num_gpus or None,
            max_restarts=-1,
            max_task_retries=0,  # what waited for its actor to return would wait for ever on a lost machine
            ray_remote_args_fn=named,
        )
    batch: Any
    try:
        for batch in stream.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
            yield from batch[CAME].to_pylist()
    finally:
        for name in names:  # one that waits for room to return would take it from the next ones
            with suppress(ValueError):
                ray.kill(ray.get_actor(name))


def one_row(came: bytes) -> pa.Table:
    """Return an actor's output as a table of one row."""
    return pa.table({CAME: [came]})
