"""Work of an actor: it holds a model, and answers blocks of requests."""

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
from robust_eval.model.reply_tables import arrived, to_bytes
from robust_eval.runtime.console import silence_tqdm


class Block(NamedTuple):
    """Requests that are answered together, those of them that are ``missing``, and the number by which it is known."""

    number: int
    requests: list[Request]
    missing: Set[Item]


class ReplyBytes(NamedTuple):
    """Answers to a request: tables as bytes, and the share of it; see
    :class:`robust_eval.model.reply_tables.Arrived`.
    """

    item: Item
    answers: bytes
    curve: bytes | None
    share: float


class Outcome(NamedTuple):
    """Outcome of some blocks: answers, reasons why others have none, and messages.

    ``problems`` has the reason for each block that failed; ``fatal`` is one that a person has to mend.
    """

    answers: list[ReplyBytes]
    done: list[int]
    problems: dict[int, str]
    fatal: str | None
    description: dict[str, Any]
    messages: list[tuple[int, str]]


class Worker:
    """Loads the model with the first block. What goes wrong is part of an outcome: an exception would end it all.

    ``keeper`` has the rate limiter of a server that all actors ask; None where each has the model itself.
    """

    def __init__(self, config: ModelConfig, batch_context: Any, threads: int, keeper: Any) -> None:
        self._config = config
        self._keeper = keeper
        self._batch_context = batch_context
        self._threads = threads
        self._model: LanguageModel | None = None
        silence_tqdm()

    def __call__(self, batch: pa.Table) -> pa.Table:
        return pa.table({CAME: [pickle.dumps(self.outcome(pickle.loads(batch[ASKED][0].as_py())))]})

    def outcome(self, blocks: list[Block]) -> Outcome:
        """Return what comes of these blocks."""
        answers: list[ReplyBytes] = []
        done: list[int] = []
        problems: dict[int, str] = {}
        fatal = None
        with _messages() as messages:
            for block in blocks:
                try:
                    answers.extend(self._answers(block))  # one by one: what comes before a problem counts
                    done.append(block.number)
                except UserError as problem:
                    fatal = str(problem)
                    break
                except Exception as problem:  # whatever it is, other blocks may be answered
                    problems[block.number] = f"{type(problem).__name__}: {first_line(problem)}"
                    logging.getLogger(__name__).debug("block %d", block.number, exc_info=True)
        description = {} if self._model is None else self._model.description()
        return Outcome(answers, done, problems, fatal, description, messages)

    def _answers(self, block: Block) -> Iterator[ReplyBytes]:
        if self._model is None:
            self._model = self._load()
        if self._keeper is None:
            self._model.check(block.requests)
        for replies in self._model.complete(block.requests, block.missing, self._batch_context):
            for came in arrived(replies):
                curve = None if came.curve is None else to_bytes(came.curve)
                yield ReplyBytes(came.request.item, to_bytes(came.answers), curve, came.share)

    def _load(self) -> LanguageModel:
        if not self._config.remote:
            import torch

            torch.set_num_threads(self._threads)
        model = self._config.load()
        if self._keeper is not None:
            from robust_eval.engine.ray.shared_rate_limiter import SharedRateLimiter

            model.use_rate_limiter(SharedRateLimiter(self._keeper, f"{platform.node()} {os.getpid()}"))
        return model


@contextmanager
def _messages() -> Iterator[list[tuple[int, str]]]:
    """Collect level and text of what this project's loggers say while the context is held."""
    said: list[tuple[int, str]] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append((record.levelno, record.getMessage()))  # type: ignore[method-assign]
    logger = logging.getLogger("robust_eval")
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield said
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


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
