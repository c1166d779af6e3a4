"""Each question and its rewrites, every one answered in a conversation of its own.

Cho & Watson, "Measuring Robustness via Automated Crowdsourcing of Question Perturbations and Answers", §3
(docs/methods.md, §2).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from robust_eval.prompt.arrangement import GIVEN
from robust_eval.question import Question
from robust_eval.sampler.base import NothingKeptError
from robust_eval.sampler.choice_orders import ChoiceOrders


@dataclass
class Perturbation(ChoiceOrders):
    """The raters of MultiQ&A: rewrite 0 is the question itself. With ``trials`` above 1 each is asked several times.

    Orders and forms of the choices are raters beside the rewrites, where they are asked for.
    """

    trials: int = 1
    """Independent answers to each rewrite at each temperature."""
    rewrites: int = 5
    """Rewrites of each question that are asked, at most: v of the paper."""
    orders: str = GIVEN
    """Orders of the choices: given, as they are; rotations, so that each stands at each place once; permutations,
    random ones."""
    forms: list[str] = field(default_factory=list)
    """Forms of the choices beside that of the prompts, in the order as it is: brackets, dots, numbers, commas, bars."""

    axis = "rewrite"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rewrites < 1:
            raise ValueError(f"rewrites must be at least 1, not {self.rewrites}")

    @property
    def repetitions(self) -> float:
        """Answers to each question at each temperature: raters."""
        return super().repetitions + self.rewrites * self.trials

    def candidates(self, questions: Sequence[Question]) -> list[Question]:
        """Return the questions that have rewrites; NothingKeptError where none has."""
        chosen = [question for question in questions if question.rewrites]
        if not chosen:
            raise NothingKeptError(
                f"none of the {len(questions)} questions has rewrites, which sampler=perturbation asks: give them "
                "under 'rewrites' in the data set or in a file (rewriter.file), or have a capable model write them "
                "(rewriter=llm rewriter.model=…)"
            )
        return chosen

    def wordings(self, question: Question) -> int:
        """Return the question itself, and its rewrites up to ``rewrites``."""
        return 1 + min(self.rewrites, len(question.rewrites))
