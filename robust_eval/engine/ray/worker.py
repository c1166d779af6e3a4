"""Worker of an actor, which holds a model and answers blocks of requests."""

import logging
import os
import pickle
import platform
from collections.abc import Iterator, Set
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa

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
        if self._config.uses_torch:
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
