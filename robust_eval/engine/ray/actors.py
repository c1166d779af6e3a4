"""Ray actors, and blocks of requests for them, retried by other actors or given up."""

import logging
import pickle
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol
from uuid import uuid4

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from robust_eval.answer import EXACT_CURVES, SCHEMA, rows
from robust_eval.engine.base import ATTEMPTS
from robust_eval.engine.ray.shared_rate_limiter import MAX_CALLS, RateLimiterActor
from robust_eval.engine.ray.worker import INPUT, OUTPUT, Block, Outcome, ReplyBytes, Worker
from robust_eval.error import UserError
from robust_eval.model.base import Call, Item, LanguageModel, Reply, Request, Temperatures
from robust_eval.model.model_config import ModelConfig, Shards
from robust_eval.model.reply_tables import ReplyTables, from_bytes, tables_of
from robust_eval.model.served.completions import unanswered

LOST = "its process or machine was lost"


class PendingBlocks:
    """Blocks of requests for Ray actors until all are answered, or given up after :data:`ATTEMPTS` attempts.

    ``wanted`` are the requests that are still missing, with their cached conditions.
    """

    def __init__(self, blocks: Sequence[Sequence[Request]], requests: Sequence[Request], missing: Set[Item]) -> None:
        self.wanted = {request.item: request for request in requests if request.item in missing}
        self._left = {n: block for n, block in enumerate(blocks) if any(each.item in missing for each in block)}
        self._failures: Counter[int] = Counter()
        self._problems: dict[int, str] = {}
        self._given_up: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._left)

    def grouped(self, size: int) -> list[list[Block]]:
        """Return the actors' remaining blocks in groups of at least ``size`` wanted requests, for a new attempt."""
        self._problems = dict.fromkeys(self._left, LOST)
        groups: list[list[Block]] = [[]]
        waiting = 0
        for number, block in self._left.items():
            if waiting >= size:
                groups.append([])
                waiting = 0
            missing = {request.item for request in block} & self.wanted.keys()
            groups[-1].append(Block(number, [self.wanted.get(each.item, each) for each in block], missing))
            waiting += len(missing)
        return groups

    def take(self, outcome: Outcome) -> list[ReplyTables]:
        """Return the answers in an actor's outcome; they are not requested again if their block fails later."""
        self._problems |= outcome.problems
        for number in outcome.done:
            del self._left[number]
        return [self._taken(answer) for answer in outcome.answers]

    def _taken(self, answer: ReplyBytes) -> ReplyTables:
        request = self.wanted[answer.item]
        curve = None if answer.curve is None else from_bytes(answer.curve, EXACT_CURVES)
        reply = ReplyTables(request, from_bytes(answer.answers, SCHEMA), curve, answer.share, answer.answers)
        cached = request.cached | set(rows(reply.answers, "temperature", "trial"))
        if request.enumeration is not None or cached.issuperset(request.conditions):
            del self.wanted[answer.item]
        else:
            self.wanted[answer.item] = replace(request, cached=cached)
        return reply

    def failed(self) -> str:
        """Count an actor's failure for each remaining block, give up those with too many, and return the reasons."""
        self._left = {n: block for n, block in self._left.items() if any(each.item in self.wanted for each in block)}
        reasons = dict.fromkeys(self._problems[number] for number in self._left)
        for number in list(self._left):
            self._failures[number] += 1
            if self._failures[number] == ATTEMPTS:
                self._given_up[number] = self._problems[number]
                del self._left[number]
        return "; ".join(reasons)

    def given_up(self) -> str:
        """Return the reasons of the last failures of the given-up blocks."""
        return "; ".join(dict.fromkeys(self._given_up.values()))

    def errors(self) -> list[Reply]:
        """Return errors for the answers that no actor gave; one per temperature in place of enumerated answers."""
        replies = []
        for request in self.wanted.values():
            drawn = replace(request, trials=1) if request.enumeration else request
            errors = [unanswered(Call(drawn, t, (trial,)), trial, "error") for t, trial in drawn.pending]
            replies.append(Reply(request, errors, share=len(errors) / len(drawn.conditions)))
        return replies


log = logging.getLogger(__name__)

_COLOURS = re.compile(r"\x1b\[\d*m")


class Room(Protocol):
    """Resources of a Ray cluster that actors may take; see :class:`robust_eval.engine.ray.engine.Ray`."""

    num_cpus: int
    num_gpus: float
    block_size: int

    def room(self) -> int:
        """Return the number of Ray actors that fit now."""
        ...


class Actors(LanguageModel):
    """Model in Ray actors, each of which loads it and answers blocks of requests."""

    def __init__(self, engine: Room, config: ModelConfig) -> None:
        self._engine = engine
        self._config = config
        self._server: LanguageModel | None = config.load() if config.remote else None
        if config.service_limits().batch:
            raise UserError("model.batch=true works only with engine=local, which sends all files from one process")
        self._limiter: Any = None
        self._actors = 0
        self._description: dict[str, Any] = {"name": config.name}
        self._logged: set[str] = set()

    def check(self, requests: Sequence[Request]) -> None:
        """Check a server now; the actors check a local model with their first block."""
        if self._server is not None:
            self._server.check(requests)

    def temperatures(self, highest: float) -> Temperatures:
        """Return the temperatures that the actors' model supports; a local model supports all."""
        return Temperatures() if self._server is None else self._server.temperatures(highest)

    def complete(
        self, requests: Sequence[Request], missing: Set[Item], batch_context: Any = None
    ) -> Iterator[list[Any]]:
        """Yield the actors' answers to requests, as :class:`~robust_eval.model.reply_tables.ReplyTables`.

        Other actors retry failed blocks, one by one; requests of blocks that always fail get errors for answers.
        UserError if all do.
        """
        division = self._divided(requests)
        size, idle = self._engine.block_size, 0
        blocks = PendingBlocks(division.blocks, requests, missing)
        while blocks:
            before = len(blocks)
            try:
                yield from self._attempt(blocks, size, division.batch_context)
            except RayError as problem:  # of the cluster, not of a block
                idle = 0 if len(blocks) < before else idle + 1
                reason = _COLOURS.sub("", str(problem).strip().splitlines()[-1])
                if idle == ATTEMPTS:
                    raise UserError(f"Ray: {reason}; repeat the command to resume from the store") from problem
                log.warning("Ray: %s; the remaining blocks are sent again", reason)
            else:
                left = len(blocks)
                if reasons := blocks.failed():
                    log.warning("Ray: %d of %d blocks failed: %s", left, before, reasons)
                    size = 1
        if lost := blocks.errors():
            reason = f"failed {ATTEMPTS} times: {blocks.given_up()}"
            if len(lost) == len(requests):
                raise UserError(f"Ray: every prompt {reason}")
            log.warning("Ray: %d of %d prompts %s", len(lost), len(requests), reason)
            yield tables_of(lost)

    def _attempt(self, blocks: PendingBlocks, size: int, batch_context: Any) -> Iterator[list[ReplyTables]]:
        """Yield the actors' answers of one attempt at each remaining block; UserError for a mistake of the user."""
        fatal: str | None = None
        for outcome in self._outcomes(blocks.grouped(size), batch_context):
            yield blocks.take(outcome)
            fatal = fatal or outcome.fatal
            if fatal is not None and self._server is None:
                break
        if fatal is not None:  # after the answers to requests that other actors had sent
            raise UserError(fatal)

    def description(self) -> dict[str, Any]:
        """Return the last description from an actor, and the maximum number of actors."""
        limits = {} if self._limiter is None else ray.get(self._limiter.description.remote())
        return {**self._description, **limits, "actors": self._actors}

    def status(self) -> str:
        status: str = "" if self._limiter is None else ray.get(self._limiter.status.remote())
        return status

    def _divided(self, requests: Sequence[Request]) -> Shards:
        """Divide requests into blocks for actors: those of a local model by its shards, those to a server by number."""
        if self._server is None:
            return self._config.shard(requests)
        if self._limiter is None:  # on this machine: the loss of another one loses no cost
            here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
            actor: Any = ray.remote(RateLimiterActor)
            options = actor.options(num_cpus=0, max_concurrency=MAX_CALLS, scheduling_strategy=here)
            self._limiter = options.remote(self._config)
        size = self._engine.block_size
        blocks = [list(requests[start : start + size]) for start in range(0, len(requests), size)]
        return Shards(blocks, self._server.batch_context())

    def _outcomes(self, groups: list[list[Block]], batch_context: Any) -> Iterator[Outcome]:
        """Yield the outcomes of groups of blocks, each from one actor; those of a lost actor are missing."""
        engine = self._engine
        actors = min(engine.room(), len(groups))
        self._actors = max(self._actors, actors)
        arguments = (self._config, batch_context, engine.num_cpus, self._limiter)
        inputs = [pickle.dumps(group) for group in groups]
        for output in streamed(Worker, arguments, inputs, actors, engine.num_cpus, engine.num_gpus):
            outcome: Outcome = pickle.loads(output)
            for level, message in outcome.messages:
                if message not in self._logged:  # actors log the same
                    self._logged.add(message)
                    log.log(level, "%s", message)
            self._description |= outcome.description
            yield outcome


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
