"""Steps of a sampler: the requests that it yields, and the answers that it is sent for them."""

from collections.abc import Callable, Generator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import pyarrow as pa

from robust_eval.answer import SCHEMA, Answers, rows
from robust_eval.model.base import Item, Request, TrialKey
from robust_eval.store.keys_and_rows import Tables
from robust_eval.store.stored_model import NotStoredError, StoredModel

VerdictsOf = Callable[[pa.Table], Sequence[bool | None]]
"""Returns the verdicts on a table of answers; None without a reply."""


class Step(NamedTuple):
    """Step of a sampler: requests that are sent together; the next step depends on their answers.

    If ``adaptive`` is set, ``requests`` holds one request, a part of the adaptive one. Such steps run concurrently:
    each resumes as soon as new answers to its adaptive request arrive.
    """

    requests: Sequence[Request]
    name: str = ""
    """Name of this part of the stage, in progress bars and logs."""
    may_follow: Callable[[list[Request]], list[Request]] = list
    """All requests that may follow, given the missing ones of this step."""
    adaptive: Request | None = None


class StepAnswers(NamedTuple):
    """Answers to a sampler's step; for an adaptive request, all earlier ones as well, with their verdicts."""

    answers: Answers
    verdicts: Mapping[TrialKey, bool | None] = MappingProxyType({})


Steps = Generator[Step, StepAnswers | None, Answers]
"""Running sampler: it is sent None for a step that is not stored and cannot be requested, and returns its answers."""
NOTHING = Answers(SCHEMA.empty_table())


def single_step(requests: Sequence[Request]) -> Steps:
    """Send all requests of a sampler in one step.

    >>> next(single_step([])).requests
    []
    """
    answers = yield Step(requests)
    return NOTHING if answers is None else answers.answers


def run_steps(model: StoredModel, steps: Sequence[Steps], stage: str, verdicts: VerdictsOf) -> Answers:
    """Run a sampler's steps: request the missing answers step by step, and return the result.

    Raises NotStoredError, with all requests that may follow, if the model is cache-only and an answer is missing.
    """
    first, answers = _first_steps(steps)
    if any(step.adaptive for _, step in first):
        return _concatenated([*answers, model.adaptive_answers(ConcurrentSteps(first, verdicts), stage)])
    for each, step in first:
        try:
            while True:
                name = f"{stage}, {step.name}" if step.name else stage
                step = each.send(StepAnswers(model.answers(step.requests, name)))
        except StopIteration as end:
            answers.append(end.value)
    return _concatenated(answers)


def plan_steps(
    model: StoredModel, steps: Sequence[Steps], verdicts: VerdictsOf
) -> tuple[list[Request], Answers | None]:
    """Return all requests that the steps may still send in :func:`run_steps`, or the answers; for cache-only models."""
    first, answers = _first_steps(steps)
    if any(step.adaptive for _, step in first):
        try:
            return [], _concatenated([*answers, model.adaptive_answers(ConcurrentSteps(first, verdicts), "")])
        except NotStoredError as lacking:
            return lacking.missing, None
    missing = list[Request]()
    for each, step in first:
        try:
            while True:
                pending = model.missing(step.requests)
                missing += step.may_follow(pending) if pending else []
                step = each.send(None if pending else StepAnswers(model.answers(step.requests, step.name)))
        except StopIteration as end:
            answers.append(end.value)
    return missing, None if missing else _concatenated(answers)


def _first_steps(steps: Sequence[Steps]) -> tuple[list[tuple[Steps, Step]], list[Answers]]:
    """Return the first step of each of a sampler's generators, and the answers of those that end without a step."""
    first, answers = list[tuple[Steps, Step]](), list[Answers]()
    for each in steps:
        try:
            first.append((each, next(each)))
        except StopIteration as end:
            answers.append(end.value)
    if len({step.adaptive is None for _, step in first}) > 1:
        raise ValueError("a sampler must yield either only adaptive steps or only steps that are not adaptive")
    return first, answers


def _concatenated(answers: Sequence[Answers]) -> Answers:
    return answers[0] if len(answers) == 1 else Answers(*map(pa.concat_tables, zip(*answers, strict=True)))


class ConcurrentSteps:
    """Steps of several adaptive requests: :class:`~robust_eval.store.stored_model.AdaptiveAnswers` of samplers."""

    def __init__(self, steps: Sequence[tuple[Steps, Step]], verdicts: VerdictsOf) -> None:
        self.requests: Sequence[Request] = [step.adaptive for _, step in steps if step.adaptive]
        self.tables: dict[Item, pa.Table] = {}
        self._steps = {step.requests[0].item: each for each, step in steps}
        self._due = {step.requests[0].item: step for _, step in steps}
        self._verdicts_of = verdicts
        self._verdicts: dict[Item, dict[TrialKey, bool | None]] = {item: {} for item in self._steps}
        self._awaited: dict[Item, set[TrialKey]] = {item: set() for item in self._steps}
        self._ready: dict[Item, None] = dict.fromkeys(self._steps)
        self._answers = Tables[Item](SCHEMA)
        self.finished = 0
        """Number of finished requests."""

    def take(self, answers: pa.Table) -> None:
        """Add the verdicts on new or stored answers, whose rows are already in ``tables``."""
        columns = rows(answers, "question_id", "rewrite", "temperature", "trial")
        for (question_id, rewrite, temperature, trial), right in zip(columns, self._verdicts_of(answers), strict=True):
            item = question_id, rewrite
            self._verdicts[item][temperature, trial] = right
            self._awaited[item].discard((temperature, trial))
            self._ready[item] = None

    def next(self) -> list[Request]:
        """Return the next part of each adaptive request whose previous part has been answered since the last call."""
        requests = []
        for item in [item for item in self._ready if not self._awaited[item]]:
            del self._ready[item]
            if self._verdicts[item]:
                try:
                    answers = Answers(self.tables[item])
                    self._due[item] = self._steps[item].send(StepAnswers(answers, self._verdicts[item]))
                except StopIteration as end:
                    self._answers[item] = end.value.table
                    del self._steps[item], self._due[item], self.tables[item]
                    del self._verdicts[item], self._awaited[item]
                    self.finished += 1
                    continue
            (request,) = self._due[item].requests
            self._awaited[item].update(request.pending)
            requests.append(request)
        return requests

    def may_follow(self) -> list[Request]:
        """Return all requests that the concurrent steps may still send."""
        return [each for step in self._due.values() for each in step.may_follow(list(step.requests))]

    def answers(self) -> Answers:
        """Return the answers of all concurrent steps, once their requests are finished."""
        return Answers(self._answers.together([request.item for request in self.requests]))
