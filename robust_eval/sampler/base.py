"""The protocols of samplers, and the requests for greedy answers that they share."""

import math
from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from robust_eval.error import UserError
from robust_eval.model.base import Choices, Matcher, Request
from robust_eval.prompt.prompt import prompt_for
from robust_eval.question import Question


class NothingKeptError(UserError):
    """No question can be asked, or none is selected. Another block of questions may have some; of all questions it is
    what is wrong with the run.
    """


ORDER = "order"
"""What varies where choices are put in another order or form."""
TURN = "turn"
"""What varies where a conversation goes on."""
THOUGHT = "thought"
"""What varies where a model thinks before it answers."""
TOP_LOGPROBS = 20
"""Log-probabilities kept for each greedy token at least, so that another k can be scored without asking again."""


def ascending(temperatures: Sequence[float]) -> list[float]:
    """Return the temperatures in ascending order; ValueError where none is given, or one is not above 0 or repeats."""
    if not temperatures:
        raise ValueError("temperatures must hold at least one temperature")
    if bad := [t for t in temperatures if not 0 < t < math.inf]:
        raise ValueError(f"temperatures must all be above 0 (the greedy answer is always asked), not {bad[0]:g}")
    if len(set(temperatures)) < len(temperatures):
        raise ValueError(f"temperatures must differ from one another: {list(temperatures)}")
    return sorted(temperatures)


def greedy_requests(
    questions: Sequence[Question],
    prompts: str,
    max_new_tokens: int,
    seed: int,
    top_logprobs: int,
    first_line: bool = True,
) -> list[Request]:
    """Return a request for the greedy answer to each question, with the largest log-probabilities of each token."""
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
            min_logprobs=top_logprobs,
            first_line=first_line,
        )
        for question in questions
    ]


class Judge(Protocol):
    """The part of a grader that a sampler needs: what to look for while the model writes an answer."""

    @property
    def first_line(self) -> bool:
        """Whether an answer ends with the first line of a reply."""

    def matcher(self, question: Question) -> Matcher | None:
        """Return the matcher of right answers; None where only whole replies can be graded."""

    def choices(self, question: Question) -> Choices | None:
        """Return the choices of a multiple-choice question; None for other questions."""


def matching(judge: Judge) -> str:
    """Return the settings with which answers are judged while they are written, for an error."""
    return "grader=matching with grader.contains=word" + ("" if judge.first_line else " and reader=first_line")


class Conditions(Protocol):
    """The conditions under which each question has answers, sampled here or recorded elsewhere."""

    @property
    def axis(self) -> str:
        """The condition that varies: temperature | rewrite | trial | order | turn | thought."""

    @property
    def temperatures(self) -> list[float]:
        """The sampling temperatures, ascending, all above 0."""

    @property
    def repetitions(self) -> float:
        """The number of answers to each question at each temperature."""

    @property
    def estimator(self) -> str:
        """How the accuracy is estimated: trials | exact."""

    @property
    def arranges(self) -> bool:
        """Whether choices are put in several orders or forms; by default not."""
        return False


class Sampler(Conditions, Protocol):
    """A way of asking; a dataclass whose fields are its configuration.

    Greedy answers decide which questions are selected. Where a run has several samplers, the first one's settings are
    used for them.
    """

    prompts: str
    """The file of prompt templates."""
    max_new_tokens: int
    """Length limit of an answer, in tokens."""

    def candidates(self, questions: Sequence[Question]) -> list[Question]:
        """Return the questions that may be selected, before any is answered; NothingKeptError where there are none."""

    def select(self, questions: Sequence[Question], baseline: pa.Table, seed: int) -> list[Question]:
        """Select questions by their graded greedy answers (``baseline``); NothingKeptError where none is left."""

    @property
    def selects(self) -> bool:
        """Whether :meth:`select` depends on the greedy answers."""

    def at_most(self, questions: Sequence[Question]) -> list[Question]:
        """Return as many of the candidates as are selected at most, to plan with before there are greedy answers."""

    def requests(self, questions: Sequence[Question], judge: Judge, seed: int) -> list[Request]:
        """Return the requests for the answers to the selected questions."""
