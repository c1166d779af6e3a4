"""What every sampler can be asked, and under which conditions it has answers."""

import math
from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from robust_eval.model.base import Choices, Matcher, Request
from robust_eval.prompt.prompt import prompt_for
from robust_eval.question import Question

TOP_LOGPROBS = 20
"""Log-probabilities kept for each greedy token at least, so that another k can be scored without asking again."""


def ascending(temperatures: Sequence[float]) -> list[float]:
    """The temperatures of a sampler in ascending order; ValueError where there is none, or one makes no sense."""
    if not temperatures:
        raise ValueError("temperatures must hold at least one temperature")
    if bad := [t for t in temperatures if not 0 < t < math.inf]:
        raise ValueError(f"temperatures must all be above 0 (the greedy answer is always asked), not {bad[0]:g}")
    if len(set(temperatures)) < len(temperatures):
        raise ValueError(f"temperatures must differ from one another: {list(temperatures)}")
    return sorted(temperatures)


def greedy_requests(
    questions: Sequence[Question], prompts: str, max_new_tokens: int, seed: int, top_logprobs: int
) -> list[Request]:
    """One greedy answer to each question, with the largest log-probabilities of each token."""
    return [
        Request(
            question_id=question.id,
            rewrite=0,
            prompt=prompt_for(question, prompts=prompts),
            temperatures=(0.0,),
            trials=1,
            max_new_tokens=max_new_tokens,
            seed=seed,
            top_logprobs=max(top_logprobs, TOP_LOGPROBS),
            least_logprobs=top_logprobs,
        )
        for question in questions
    ]


class Judge(Protocol):
    """What a sampler may ask of a grader: what to look for while an answer is being written."""

    def matcher(self, question: Question) -> Matcher | None:
        """What tells right from wrong; None where only whole replies can be graded."""

    def choices(self, question: Question) -> Choices | None:
        """The choices of a multiple-choice question; None for other questions."""


class Conditions(Protocol):
    """Under which conditions there are answers to a question, whoever asked for them."""

    @property
    def axis(self) -> str:
        """What varies between them above all: temperature | rewrite | trial."""

    @property
    def temperatures(self) -> list[float]:
        """In ascending order, all above 0."""

    @property
    def repetitions(self) -> float:
        """Answers to each question at each temperature."""

    @property
    def estimator(self) -> str:
        """How the accuracy is read off: trials | combined | exact."""


class Sampler(Conditions, Protocol):
    """A way of asking; a dataclass whose fields are its configuration.

    Where a run has several samplers, the greedy answers, which decide what is asked again, are asked for in the way of
    the first.
    """

    prompts: str
    """The file of templates with which it asks."""
    max_new_tokens: int
    """Length limit of an answer, in tokens."""

    def candidates(self, questions: Sequence[Question]) -> list[Question]:
        """Those of the questions that may be selected, whatever is answered; UserError where there are none."""

    def select(self, questions: Sequence[Question], baseline: pa.Table, seed: int) -> list[Question]:
        """The candidates to go on with, given their graded greedy answers; UserError where there are none."""

    @property
    def selects(self) -> bool:
        """Whether :meth:`select` depends on the greedy answers."""

    def at_most(self, questions: Sequence[Question]) -> list[Question]:
        """As many of the candidates as are selected at most, to plan with before there are greedy answers."""

    def requests(self, questions: Sequence[Question], judge: Judge, seed: int) -> list[Request]:
        """The answers wanted to each of the questions that were selected."""
