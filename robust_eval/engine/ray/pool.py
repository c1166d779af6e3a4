"""A pool of actors through which Ray Data streams what they are given."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pyarrow as pa
import ray
import ray.data

ASKED, CAME = "asked", "came"
"""The columns of what goes to an actor, and of what comes from it: one row each, which holds some bytes."""


def streamed(
    kind: type, arguments: tuple[Any, ...], asked: Sequence[bytes], actors: int, num_cpus: int, num_gpus: float
) -> Iterator[bytes]:
    """What actors of a ``kind``, made with these arguments, make of what they are asked, in any order.

    A kind turns a table with a row of :data:`ASKED` into one with a row of :data:`CAME`. What an actor had that failed
    or died is missing; the actor returns where there is room.
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
    """What an actor returns."""
    return pa.table({CAME: [came]})
