"""The same question again and again, every time in a conversation of its own.

Reganova & Steinbach, "Testing Uncertainty of Large Language Models for Physics Knowledge and Reasoning"
(docs/methods.md, §3).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from robust_eval.model.base import Request
from robust_eval.prompt.prompt import prompt_for
from robust_eval.prompt.templates import FEW_SHOT
from robust_eval.question import Question
from robust_eval.sampler.base import AllAtOnce, Judge, ascending


@dataclass
class Repetition(AllAtOnce):
    """All questions, whatever the model answers when it decodes greedily."""

    temperatures: list[float] = field(default_factory=lambda: [0.7])
    """All above 0."""
    trials: int = 20
    """Independent answers to each question (and each rewrite of it) at each temperature."""
    max_new_tokens: int = 16
    """Length limit of an answer, in tokens."""
    prompts: str = FEW_SHOT
    """Templates and exemplars: builtin:few_shot.yaml, builtin:zero_shot.yaml, builtin:physics.yaml, or a file of one's
    own."""

    axis = "trial"
    arranges = False
    estimator = "trials"
    selects = False

    def __post_init__(self) -> None:
        for name in ("trials", "max_new_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        self.temperatures = ascending(self.temperatures)

    @property
    def repetitions(self) -> float:
        """Answers to each question at each temperature."""
        return self.trials

    def candidates(self, questions: Sequence[Question]) -> list[Question]:
        """Return all of them."""
        return list(questions)

    def select(self, questions: Sequence[Question], baseline: pa.Table, seed: int) -> list[Question]:
        """Return all candidates, whatever was answered."""
        return list(questions)

    def at_most(self, questions: Sequence[Question]) -> list[Question]:
        """Return all candidates."""
        return list(questions)

    def requests(self, questions: Sequence[Question], judge: Judge, seed: int) -> list[Request]:
        """Return ``trials`` answers to each question, in each of the wordings in which it is asked, at every
        temperature.
        """
        return [
            Request(
                question_id=question.id,
                rewrite=rewrite,
                prompt=prompt_for(question, rewrite, self.prompts),
                temperatures=tuple(self.temperatures),
                trials=self.trials,
                max_new_tokens=self.max_new_tokens,
                seed=seed,
                first_line=judge.first_line,
            )
            for question in questions
            for rewrite in range(self.wordings(question))
        ]

    def wordings(self, question: Question) -> int:
        """Return in how many wordings a question is asked: its own alone."""
        return 1
