"""Blocks of requests that are to be answered elsewhere: which are left, and how often each has failed."""

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import replace
from itertools import product

from robust_eval.answer import CURVES, SCHEMA, rows
from robust_eval.engine.ray.worker import Answer, Block, Outcome
from robust_eval.model.base import Item, Reply, Request
from robust_eval.model.calls import Call
from robust_eval.model.reply_tables import Arrived, from_bytes
from robust_eval.model.served.completions import unanswered

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

    def _taken(self, answer: Answer) -> Arrived:
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
