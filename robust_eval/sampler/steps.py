"""Steps of a sampler: the requests that it yields, and the answers that it is sent for them."""

from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple

import pyarrow as pa

from robust_eval.answer import SCHEMA, Answers
from robust_eval.model.base import Request
from robust_eval.store.stored_model import AdaptiveAnswers, NotStoredError, StoredModel

VerdictsOf = Callable[[pa.Table], Sequence[bool | None]]
"""Returns the verdicts on a table of answers; None without a reply."""


class Step(NamedTuple):
    """Step of a sampler: requests that are sent together; the next step depends on their answers."""

    requests: Sequence[Request]
    name: str = ""
    """Name of this part of the stage, in progress bars and logs."""
    may_follow: Callable[[list[Request]], list[Request]] = list
    """All requests that may follow, given the missing ones of this step."""


Steps = Generator[Step, Answers | None, Answers]
"""Running sampler: it is sent None for a step that is not stored and cannot be requested, and returns its answers."""
NOTHING = Answers(SCHEMA.empty_table())


def single_step(requests: Sequence[Request]) -> Steps:
    """Send all requests of a sampler in one step.

    >>> next(single_step([])).requests
    []
    """
    answers = yield Step(requests)
    return NOTHING if answers is None else answers


def run_steps(model: StoredModel, steps: Steps | AdaptiveAnswers, stage: str) -> Answers:
    """Run a sampler's steps: request the missing answers step by step, and return the result.

    Raises NotStoredError, with all requests that may follow, if the model is cache-only and an answer is missing.
    """
    if not isinstance(steps, Generator):
        return model.adaptive_answers(steps, stage)
    try:
        step = next(steps)
        while True:
            step = steps.send(model.answers(step.requests, f"{stage}, {step.name}" if step.name else stage))
    except StopIteration as end:
        answers: Answers = end.value
        return answers


def plan_steps(model: StoredModel, steps: Steps | AdaptiveAnswers) -> tuple[list[Request], Answers | None]:
    """Return all requests that the steps may still send in :func:`run_steps`, or the answers; for cache-only models."""
    if not isinstance(steps, Generator):
        try:
            return [], model.adaptive_answers(steps, "")
        except NotStoredError as lacking:
            return lacking.missing, None
    missing: list[Request] = []
    try:
        step = next(steps)
        while True:
            pending = model.missing(step.requests)
            missing += step.may_follow(pending) if pending else []
            step = steps.send(None if pending else model.answers(step.requests, step.name))
    except StopIteration as end:
        return missing, None if missing else end.value
