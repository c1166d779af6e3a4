"""Blocks of requests that actors answer: retried by other actors, or given up."""

import logging
import pickle
import re
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from itertools import product
from typing import Any, Protocol

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from robust_eval.answer import CURVES, SCHEMA, rows
from robust_eval.engine.base import AdaptiveRequests, settling
from robust_eval.engine.ray.shared_rate_limiter import ROOM, RateLimiterActor
from robust_eval.engine.ray.worker import Block, Outcome, ReplyBytes, Worker, streamed
from robust_eval.error import UserError
from robust_eval.model.base import Call, Item, KeyValueStore, LanguageModel, Reply, Request, Temperatures
from robust_eval.model.model_config import ModelConfig, Shards
from robust_eval.model.reply_tables import Arrived, arrived, from_bytes
from robust_eval.model.served.completions import unanswered
from robust_eval.runtime.console import progress

LOST = "the process that had it, or its machine, was lost"


class Blocks:
    """The blocks of some requests until their missing ones are answered, or given up after so many ``attempts``.

    ``wanted`` are the requests that are still missing, with what is known of their answers.
    """

    def __init__(
        self, blocks: Sequence[Sequence[Request]], requests: Sequence[Request], missing: Set[Item], attempts: int
    ) -> None:
        self.wanted = {request.item: request for request in requests if request.item in missing}
        self._left = {n: block for n, block in enumerate(blocks) if any(each.item in missing for each in block)}
        self._attempts = attempts
        self._failures: Counter[int] = Counter()
        self._problems: dict[int, str] = {}
        self._given_up: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._left)

    def grouped(self, size: int) -> list[list[Block]]:
        """Return all that are left, in groups of at least so many wanted requests, for a new attempt."""
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

    def take(self, outcome: Outcome) -> list[Arrived]:
        """Return what came; of a block that fails later, this much is not asked again."""
        self._problems |= outcome.problems
        for number in outcome.done:
            del self._left[number]
        return [self._taken(answer) for answer in outcome.answers]

    def _taken(self, answer: ReplyBytes) -> Arrived:
        request = self.wanted[answer.item]
        curve = None if answer.curve is None else from_bytes(answer.curve, CURVES)
        came = Arrived(request, from_bytes(answer.answers, SCHEMA), curve, answer.share, answer.answers)
        known = request.cached | set(rows(came.answers, "temperature", "trial"))
        if request.enumeration is not None or known.issuperset(product(request.temperatures, range(request.trials))):
            del self.wanted[answer.item]
        else:
            self.wanted[answer.item] = replace(request, cached=known)
        return came

    def failed(self) -> str:
        """Count the failures of those that are left, give up what failed too often, and say why; nothing, of none."""
        self._left = {n: block for n, block in self._left.items() if any(each.item in self.wanted for each in block)}
        reasons = dict.fromkeys(self._problems[number] for number in self._left)
        for number in list(self._left):
            self._failures[number] += 1
            if self._failures[number] == self._attempts:
                self._given_up[number] = self._problems[number]
                del self._left[number]
        return "; ".join(reasons)

    def given_up(self) -> str:
        """Say why the last attempts at what was given up failed."""
        return "; ".join(dict.fromkeys(self._given_up.values()))

    def errors(self) -> list[Reply]:
        """Return errors for the answers that nobody could give."""
        return [_failed(request) for request in self.wanted.values()]


def _failed(request: Request) -> Reply:
    """Return errors for all that is missing; in place of enumerated answers there is one a temperature."""
    asked = replace(request, trials=1) if request.enumeration else request
    conditions = list(product(asked.temperatures, range(asked.trials)))
    missing = [condition for condition in conditions if condition not in request.cached]
    errors = [unanswered(Call(asked, t, (trial,)), trial, "error") for t, trial in missing]
    return Reply(request, errors, share=len(missing) / len(conditions))


log = logging.getLogger(__name__)

_COLOURS = re.compile(r"\x1b\[\d*m")


class Room(Protocol):
    """Resources of a cluster that actors may take; see :class:`robust_eval.engine.ray.engine.Ray`."""

    num_cpus: int
    num_gpus: float
    block_size: int
    attempts: int

    def room(self) -> int:
        """Return the number of actors for which the cluster has room now."""
        ...


class Actors:
    """Actors that load a model and answer; see :class:`robust_eval.engine.base.ModelRunner`."""

    def __init__(self, engine: Room, config: ModelConfig) -> None:
        self._engine = engine
        self._config = config
        self._server: LanguageModel | None = config.load() if config.remote else None
        if config.service_limits().batch:
            raise UserError("model.batch=true is for engine=local: one process sends all files")
        self._keeper: Any = None
        self._actors = 0
        self._description: dict[str, Any] = {"name": config.name}
        self._said: set[str] = set()

    def check(self, requests: Sequence[Request]) -> None:
        """Check a server here; leave the check of a local model to the actors, which have it."""
        if self._server is not None:
            self._server.check(requests)

    def temperatures(self, wanted: float) -> Temperatures:
        """See LanguageModel; all, of a model that the actors load."""
        return Temperatures() if self._server is None else self._server.temperatures(wanted)

    def answers(self, requests: Sequence[Request], missing: Set[Item], stage: str) -> Iterator[list[Arrived]]:
        """Yield what comes of the requests. Blocks that fail are tried again by other actors, one by one; the requests
        of those that always do get errors for answers. UserError where that is all of them.
        """
        with progress(stage, total=len(missing), unit="prompts") as advance:
            for came in self._answers(requests, missing, stage):
                yield came
                advance(sum(each.share for each in came), self._status())

    def complete_adaptively(
        self, requests: Sequence[Request], adaptive: AdaptiveRequests, stage: str, items: int
    ) -> Iterator[list[Arrived]]:
        """See ModelRunner; in rounds."""
        with settling(stage, adaptive, items) as advance:
            while requests:
                yield from self._answers(requests, {request.item for request in requests}, stage)
                requests = adaptive.next()
                advance(self._status())

    def _answers(self, requests: Sequence[Request], missing: Set[Item], stage: str) -> Iterator[list[Arrived]]:
        division = self._divided(requests)
        size, attempts, idle = self._engine.block_size, self._engine.attempts, 0
        blocks = Blocks(division.blocks, requests, missing, attempts)
        while blocks:
            before = len(blocks)
            try:
                yield from self._attempt(blocks, size, division.batch_context)
            except RayError as problem:  # of no block in particular
                idle = 0 if len(blocks) < before else idle + 1
                reason = _COLOURS.sub("", str(problem).strip().splitlines()[-1])
                if idle == attempts:
                    raise UserError(f"Ray: {reason}; what was answered is in the store") from problem
                log.warning("%s: Ray: %s; going on with what is left", stage, reason)
            else:
                left = len(blocks)
                if reasons := blocks.failed():
                    log.warning("%s: %d of %d blocks failed: %s", stage, left, before, reasons)
                    size = 1
        if lost := blocks.errors():
            reason = f"failed {attempts} times: {blocks.given_up()}"
            if len(lost) == len(requests):
                raise UserError(f"{stage}: every prompt {reason}")
            log.warning("%s: %d of %d prompts %s", stage, len(lost), len(requests), reason)
            yield arrived(lost)

    def _attempt(self, blocks: Blocks, size: int, batch_context: Any) -> Iterator[list[Arrived]]:
        """Yield what comes of all blocks that are left, each of which is tried once. UserError for what a person can
        mend.
        """
        fatal: str | None = None
        for outcome in self._outcomes(blocks.grouped(size), batch_context):
            yield blocks.take(outcome)
            fatal = fatal or outcome.fatal
            if fatal is not None and self._server is None:
                break
        if fatal is not None:  # what others had asked of a server by then has come
            raise UserError(fatal)

    def attach_store(self, store: KeyValueStore) -> None:
        """Keep nothing: what an actor was asked is lost with it, and asked again."""

    def cancel(self, requests: Sequence[Request]) -> list[str]:
        """See LanguageModel; nothing is under way."""
        return []

    def description(self) -> dict[str, Any]:
        """Return what an actor said last, and how many there were at most."""
        limits = {} if self._keeper is None else ray.get(self._keeper.description.remote())
        return {**self._description, **limits, "actors": self._actors}

    def _status(self) -> str:
        status: str = "" if self._keeper is None else ray.get(self._keeper.status.remote())
        return status

    def _divided(self, requests: Sequence[Request]) -> Shards:
        """Divide requests into blocks: those to a server anyhow, each block with what the server can do."""
        if self._server is None:
            return self._config.shard(requests)
        if self._keeper is None:
            here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
            keeper: Any = ray.remote(RateLimiterActor)  # here: the loss of another machine loses no cost
            started = keeper.options(num_cpus=0, max_concurrency=ROOM, scheduling_strategy=here)
            self._keeper = started.remote(self._config)
        size = self._engine.block_size
        blocks = [list(requests[start : start + size]) for start in range(0, len(requests), size)]
        return Shards(blocks, self._server.batch_context())

    def _outcomes(self, groups: list[list[Block]], batch_context: Any) -> Iterator[Outcome]:
        """Yield what comes of groups of blocks, each given to an actor; those of an actor that dies are missing."""
        engine = self._engine
        actors = min(engine.room(), len(groups))
        self._actors = max(self._actors, actors)
        arguments = (self._config, batch_context, engine.num_cpus, self._keeper)
        asked = [pickle.dumps(group) for group in groups]
        for came in streamed(Worker, arguments, asked, actors, engine.num_cpus, engine.num_gpus):
            outcome: Outcome = pickle.loads(came)
            self._tell(outcome)
            yield outcome

    def _tell(self, outcome: Outcome) -> None:
        """Say what an actor had to say, once."""
        for level, message in outcome.messages:
            if message not in self._said:
                self._said.add(message)
                log.log(level, "%s", message)
        self._description |= outcome.description
