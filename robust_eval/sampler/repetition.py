"""Repetition of one question, each time in a new conversation.

Reganova & Steinbach, "Testing Uncertainty of Large Language Models for Physics Knowledge and Reasoning"
(docs/methods.md, §3).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from robust_eval.model.base import Request
from robust_eval.prompt.templates import FEW_SHOT
from robust_eval.question import Question
from robust_eval.sampler.base import PrefixGrader, Sampler, checked_temperatures


@dataclass
class Repetition(Sampler):
    """Repetition sampler: independent answers to all questions, whatever the greedy answer. ValueError for a setting
    below its minimum.

    >>> from robust_eval.grader.matching import Matching
    >>> question = Question("1", "What is the capital of Italy?", ("Rome",))
    >>> [request.max_answers for request in Repetition(trials=5).requests([question], Matching(), seed=0)]
    [5]
    """

    temperatures: list[float] = field(default_factory=lambda: [0.7])
    """Sampling temperatures, all above 0."""
    trials: int = 20
    """Number of independent answers to each question (and each rewrite of it) at each temperature."""
    max_new_tokens: int = 16
    """Length limit of an answer, in tokens."""
    prompts: str = FEW_SHOT
    """Templates and exemplars: builtin:few_shot.yaml, builtin:zero_shot.yaml, builtin:physics.yaml, or your file."""
    structured: bool = False
    """Restrict the replies of a server to the letters of the choices, unlike the papers."""

    axis = "trial"

    def __post_init__(self) -> None:
        for name in ("trials", "max_new_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        self.temperatures = checked_temperatures(self.temperatures)

    @property
    def repetitions(self) -> float:
        return self.trials

    def requests(self, questions: Sequence[Question], grader: PrefixGrader, seed: int) -> list[Request]:
        """Return requests for ``trials`` answers to each wording of each question at every temperature."""
        return [
            self.request(question, grader, seed, self.trials, rewrite)
            for question in questions
            for rewrite in range(self.wordings(question))
        ]

    def wordings(self, question: Question) -> int:
        """Return the number of wordings of a question to repeat: its own alone."""
        return 1
