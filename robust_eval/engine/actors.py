"""Blocks of requests on their way to actors, and what comes back: tried again elsewhere, or given up."""

import logging
import pickle
import re
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from robust_eval.answer import CURVES, SCHEMA, rows
from robust_eval.engine.pool import streamed
from robust_eval.engine.shared_gate import ROOM, GateKeeper
from robust_eval.engine.worker import Answer, Block, Outcome, Worker
from robust_eval.error import UserError
from robust_eval.model.arrived import Arrived, arrived, from_bytes
from robust_eval.model.base import Division, Item, ModelConfig, Reply, Request
from robust_eval.model.calls import Call, unanswered
from robust_eval.model.openai import OpenAI
from robust_eval.progress import progress

if TYPE_CHECKING:
    from robust_eval.engine.ray import Ray

log = logging.getLogger(__name__)

_COLOURS = re.compile(r"\x1b\[\d*m")
LOST = "the process that had it, or its machine, was lost"


class Actors:
    """Actors that load a model and answer; see :class:`robust_eval.engine.base.Workplace`."""

    def __init__(self, engine: "Ray", config: ModelConfig) -> None:
        self._engine = engine
        self._config = config
        self._server = config.load() if isinstance(config, OpenAI) else None
        self._keeper: Any = None
        self._actors = 0
        self._curves = False
        self._description: dict[str, Any] = {"name": config.name}
        self._said: set[str] = set()

    def check(self, requests: Sequence[Request], curves: bool) -> None:
        """Of a server it is done here; of a model left to the actors, which have it."""
        self._curves = curves
        if self._server is not None:
            self._server.check(requests, curves)

    def answers(self, requests: Sequence[Request], missing: Set[Item], stage: str) -> Iterator[list[Arrived]]:
        """What comes of the requests. Blocks that fail are tried again by other actors, one by one; the requests of
        those that always do get errors for answers. UserError where that is all of them.
        """
        division = self._divided(requests)
        left = dict(enumerate(division.blocks))
        wanted = {request.item: request for request in requests if request.item in missing}
        failures: Counter[int] = Counter()
        failed: dict[int, str] = {}
        fatal: UserError | None = None
        size, attempts, idle = self._engine.block_size, self._engine.attempts, 0
        with progress(stage, total=len(missing), unit="questions") as advance:
            while left := {n: block for n, block in left.items() if any(each.item in wanted for each in block)}:
                before, problems = len(left), dict.fromkeys(left, LOST)
                try:
                    for outcome in self._outcomes(_grouped(left, wanted, size), division.beside):
                        problems |= outcome.problems
                        for number in outcome.done:
                            del left[number]
                        came = [_arrived(wanted[answer.item], answer) for answer in outcome.answers]
                        yield came
                        advance(sum(each.share for each in came), self._status())
                        for each in came:  # of a block that fails later, this much is not asked again
                            _take(wanted, each)
                        if outcome.fatal is not None:
                            fatal = UserError(outcome.fatal)
                            if self._server is None:
                                raise fatal
                    if fatal is not None:  # what others had asked by then has come
                        raise fatal
                    failures.update(left.keys())
                    if left:
                        size = 1
                        reasons = "; ".join(dict.fromkeys(problems[number] for number in left))
                        log.warning("%s: %d of %d blocks failed: %s", stage, len(left), before, reasons)
                except RayError as problem:  # of no block in particular
                    idle = 0 if len(left) < before else idle + 1
                    reason = _COLOURS.sub("", str(problem).strip().splitlines()[-1])
                    if idle == attempts:
                        raise UserError(f"Ray: {reason}; what was answered is in the store") from problem
                    log.warning("%s: Ray: %s; going on with what is left", stage, reason)
                for number in [number for number in left if failures[number] == attempts]:
                    failed[number] = problems[number]
                    del left[number]
            if lost := list(wanted.values()):
                reason = f"failed {attempts} times: {'; '.join(dict.fromkeys(failed.values()))}"
                if len(lost) == len(requests):
                    raise UserError(f"{stage}: every question {reason}")
                log.warning("%s: %d of %d questions %s", stage, len(lost), len(requests), reason)
                replies = [_failed(request) for request in lost]
                yield arrived(replies)
                advance(sum(reply.share for reply in replies), "")

    def description(self) -> dict[str, Any]:
        """What an actor said last, and how many there were at most."""
        kept_up = {} if self._keeper is None else ray.get(self._keeper.description.remote())
        return {**self._description, **kept_up, "actors": self._actors}

    def _status(self) -> str:
        status: str = "" if self._keeper is None else ray.get(self._keeper.status.remote())
        return status

    def _divided(self, requests: Sequence[Request]) -> Division:
        """What is asked of a server may be divided anyhow; each block comes with what it can do."""
        if self._server is None:
            return self._config.divide(requests)
        if self._keeper is None:
            here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
            keeper: Any = ray.remote(GateKeeper)  # on this machine: no other that is lost takes what was spent with it
            started = keeper.options(num_cpus=0, max_concurrency=ROOM, scheduling_strategy=here)
            self._keeper = started.remote(self._config)
        size = self._engine.block_size
        blocks = [list(requests[start : start + size]) for start in range(0, len(requests), size)]
        return Division(blocks, self._server.capabilities(1.0))

    def _outcomes(self, groups: list[list[Block]], beside: Any) -> Iterator[Outcome]:
        """What comes of groups of blocks, each given to an actor; those of an actor that dies are missing."""
        engine = self._engine
        actors = min(engine.room(), len(groups))
        self._actors = max(self._actors, actors)
        arguments = (self._config, beside, self._curves, engine.num_cpus, self._keeper)
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


def _grouped(blocks: dict[int, list[Request]], wanted: dict[Item, Request], size: int) -> list[list[Block]]:
    """Blocks in groups of at least so many wanted requests, which know what is known of their answers."""
    groups: list[list[Block]] = [[]]
    waiting = 0
    for number, block in blocks.items():
        if waiting >= size:
            groups.append([])
            waiting = 0
        missing = {request.item for request in block} & wanted.keys()
        groups[-1].append(Block(number, [wanted.get(request.item, request) for request in block], missing))
        waiting += len(missing)
    return groups


def _take(wanted: dict[Item, Request], came: Arrived) -> None:
    """Want what came no more."""
    request = wanted[came.request.item]
    known = request.known | set(rows(came.answers, "temperature", "trial"))
    if request.enumeration is not None or known.issuperset(product(request.temperatures, range(request.trials))):
        del wanted[request.item]
    else:
        wanted[request.item] = replace(request, known=known)


def _arrived(request: Request, answer: Answer) -> Arrived:
    curve = None if answer.curve is None else from_bytes(answer.curve, CURVES)
    return Arrived(request, from_bytes(answer.answers, SCHEMA), curve, answer.share, answer.answers)


def _failed(request: Request) -> Reply:
    """Errors for the answers that nobody could give; in place of enumerated ones there is one a temperature."""
    asked = replace(request, trials=1) if request.enumeration else request
    conditions = list(product(asked.temperatures, range(asked.trials)))
    missing = [condition for condition in conditions if condition not in request.known]
    errors = [unanswered(Call(asked, t, (trial,)), trial, "error") for t, trial in missing]
    return Reply(request, errors, share=len(missing) / len(conditions))
