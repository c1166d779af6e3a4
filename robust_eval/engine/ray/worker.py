"""Worker of an actor, which holds a model and answers blocks of requests."""

import logging
import os
import pickle
import platform
import warnings
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow as pa
import ray
import ray.data

from robust_eval.error import UserError, first_line
from robust_eval.model.base import Item, LanguageModel, Request
from robust_eval.model.model_config import ModelConfig
from robust_eval.model.reply_tables import tables_of, to_bytes
from robust_eval.runtime.console import silence_tqdm


class Block(NamedTuple):
    """Block of requests for a worker: one batch, the ``missing`` ones among them, and the number of the block."""

    number: int
    requests: list[Request]
    missing: Set[Item]


class ReplyBytes(NamedTuple):
    """Answers of a worker to a request as tables in bytes, and its share; see ReplyTables."""

    item: Item
    answers: bytes
    curve: bytes | None
    share: float


class Outcome(NamedTuple):
    """Outcome of a worker's blocks: answers, numbers of finished blocks, reasons of failures by block, log messages.

    ``fatal`` is a mistake that the user has to correct.
    """

    answers: list[ReplyBytes]
    done: list[int]
    problems: dict[int, str]
    fatal: str | None
    description: dict[str, Any]
    messages: list[tuple[int, str]]


class Worker:
    """Worker in a Ray actor, whose model loads with the first block. Failures are part of an outcome, not exceptions.

    ``limiter`` is the actor with the rate limiter of a server; None for a local model.
    """

    def __init__(self, config: ModelConfig, batch_context: Any, threads: int, limiter: Any) -> None:
        self._config = config
        self._limiter = limiter
        self._batch_context = batch_context
        self._threads = threads
        self._model: LanguageModel | None = None
        silence_tqdm()

    def __call__(self, batch: pa.Table) -> pa.Table:
        return pa.table({OUTPUT: [pickle.dumps(self.outcome(pickle.loads(batch[INPUT][0].as_py())))]})

    def outcome(self, blocks: list[Block]) -> Outcome:
        """Return the worker's outcome of these blocks."""
        answers: list[ReplyBytes] = []
        done: list[int] = []
        problems: dict[int, str] = {}
        fatal = None
        with _messages() as messages:
            for block in blocks:
                try:
                    answers.extend(self._answers(block))  # one by one, to keep those before a failure
                    done.append(block.number)
                except UserError as problem:
                    fatal = str(problem)
                    break
                except Exception as problem:  # other blocks may succeed
                    problems[block.number] = f"{type(problem).__name__}: {first_line(problem)}"
                    logging.getLogger(__name__).debug("block %d", block.number, exc_info=True)
        description = {} if self._model is None else self._model.description()
        return Outcome(answers, done, problems, fatal, description, messages)

    def _answers(self, block: Block) -> Iterator[ReplyBytes]:
        if self._model is None:
            self._model = self._load()
        if self._limiter is None:
            self._model.check(block.requests)
        for replies in self._model.complete(block.requests, block.missing, self._batch_context):
            for reply in tables_of(replies):
                curve = None if reply.curve is None else to_bytes(reply.curve)
                yield ReplyBytes(reply.request.item, to_bytes(reply.answers), curve, reply.share)

    def _load(self) -> LanguageModel:
        if not self._config.remote:
            import torch

            torch.set_num_threads(self._threads)
        model = self._config.load()
        if self._limiter is not None:
            from robust_eval.engine.ray.shared_rate_limiter import SharedRateLimiter

            model.use_rate_limiter(SharedRateLimiter(self._limiter, f"{platform.node()} {os.getpid()}"))
        return model


@contextmanager
def _messages() -> Iterator[list[tuple[int, str]]]:
    """Collect level and text of this package's log messages in the worker."""
    messages: list[tuple[int, str]] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append((record.levelno, record.getMessage()))  # type: ignore[method-assign]
    logger = logging.getLogger("robust_eval")
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


INPUT, OUTPUT = "input", "output"
"""Columns of an actor's input and output; both tables have one row of bytes."""


def streamed(
    worker: type, arguments: tuple[Any, ...], inputs: Sequence[bytes], actors: int, num_cpus: int, num_gpus: float
) -> Iterator[bytes]:
    """Yield the outputs of actors of the class ``worker``, made with these arguments, for ``inputs``, in any order.

    A worker maps a table with one row of :data:`INPUT` to one with one row of :data:`OUTPUT`. The output of an actor
    that failed or died is missing; Ray restarts the actor where there is room.
    """
    names: list[str] = []

    def named() -> dict[str, str]:
        names.append(str(uuid4()))
        return {"name": names[-1]}

    ray.data.DataContext.get_current().max_errored_blocks = -1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # restarts and names of actors have no other parameter yet
        stream = ray.data.from_items([{INPUT: each} for each in inputs], override_num_blocks=len(inputs)).map_batches(
            worker,
            fn_constructor_args=arguments,
            batch_size=1,
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(
                size=actors,
                max_tasks_in_flight_per_actor=1,  # else the first ready actor takes the blocks of the others
            ),
            num_cpus=num_cpus,
            num_gpus=num_gpus or None,
            max_restarts=-1,
            max_task_retries=0,  # a task would wait for ever for an actor on a lost machine
            ray_remote_args_fn=named,
        )
    batch: Any
    try:
        for batch in stream.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
            yield from batch[OUTPUT].to_pylist()
    finally:
        for name in names:  # an actor that waits for a restart would take the room of the next ones
            with suppress(ValueError):
                ray.kill(ray.get_actor(name))
