"""Raters of each question: its choices in several orders and forms (docs/multiqa.md), and its rewrites. Each rater
answers in its own conversation.

Cho & Watson, "Measuring Robustness via Automated Crowdsourcing of Question Perturbations and Answers", §3
(docs/methods.md, §2).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from robust_eval.model.base import Request
from robust_eval.prompt.arrangement import FORMS, GIVEN, Arrangement, permutations, rotations
from robust_eval.prompt.prompt import prompt_for
from robust_eval.question import Question
from robust_eval.runtime.text import enumerated
from robust_eval.sampler.base import FORMED, ORDER, PERMUTED, ROTATED, NothingKeptError, PrefixGrader
from robust_eval.sampler.repetition import Repetition

ORDERS = (GIVEN, "rotations", "permutations")
MAX_PERMUTATIONS, MAX_REWRITES = FORMED - PERMUTED, ROTATED


@dataclass
class ChoiceOrders(Repetition):
    """Perturbation by order and form of choices: rewrite 0 is the question itself, each other rater changes one thing.

    Questions without choices are left out. With ``trials`` above 1 each rater answers several times.
    """

    temperatures: list[float] = field(default_factory=lambda: [1.0])
    trials: int = 1
    """Number of independent answers in each order and form at each temperature."""
    orders: str = "rotations"
    """Orders of the choices: given (as in the data); rotations (each choice at each position once); permutations
    (random)."""
    permutations: int = 5
    """Number of random orders of each question, with orders=permutations."""
    forms: list[str] = field(default_factory=lambda: list(FORMS))
    """Additional forms of the choices, in the given order: brackets, dots, numbers, commas, bars."""

    axis = ORDER

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.orders not in ORDERS:
            raise ValueError(f"orders must be {enumerated(ORDERS)}, not {self.orders}")
        if not 1 <= self.permutations <= MAX_PERMUTATIONS:
            raise ValueError(f"permutations must be between 1 and {MAX_PERMUTATIONS}, not {self.permutations}")
        if unknown := [form for form in self.forms if form not in FORMS]:
            raise ValueError(f"forms must be among {', '.join(FORMS)}, not {unknown[0]}")
        self.forms = [form for form in FORMS if form in self.forms]
        if self.axis == ORDER and not self.arranges_choices:
            raise ValueError("orders=given without forms changes nothing: choose other orders, or forms")

    @property
    def arranges_choices(self) -> bool:
        return self.orders != GIVEN or bool(self.forms)

    @property
    def repetitions(self) -> float:
        """Minimum number of answers to each question at each temperature: those with more choices have more orders."""
        return (1 + (self.orders != GIVEN) + len(self.forms)) * self.trials

    def candidates(self, questions: Sequence[Question]) -> list[Question]:
        """Return the questions with choices, whose order and form can vary; NothingKeptError where none has."""
        chosen = [question for question in questions if len(question.choices) > 1]
        if not chosen:
            raise NothingKeptError(
                "sampler=order varies the order and form of choices, but none of the questions has choices: "
                "choose a data set with choices, such as dataset=physics"
            )
        return chosen

    def requests(self, questions: Sequence[Question], grader: PrefixGrader, seed: int) -> list[Request]:
        """Return requests for ``trials`` answers to each question at every temperature, in each wording, order and
        form; none for a question without choices unless rewrites vary.
        """
        requests = []
        for question in questions:
            worded = super().requests([question], grader, seed)
            arranged = [
                replace(
                    worded[0],
                    variant=rater,
                    prompt=prompt_for(question, prompts=self.prompts, arrangement=arrangement),
                    form=arrangement.tag,
                    signs=self.signs(question, arrangement),
                )
                for rater, arrangement in self._arrangements(question, seed).items()
            ]
            if arranged or self.axis != ORDER:
                requests += [*worded, *arranged]
        return requests

    def _arrangements(self, question: Question, seed: int) -> dict[int, Arrangement]:
        """Return the arrangements of a question's choices, by the number of the rater."""
        choices = len(question.choices)
        arrangements: dict[int, Arrangement] = {}
        if choices < 2:
            return arrangements
        if self.orders == "rotations":
            arrangements |= dict(enumerate(rotations(choices), ROTATED + 1))
        elif self.orders == "permutations":
            arrangements |= dict(enumerate(permutations(question, self.permutations, seed), PERMUTED + 1))
        numbers = {form: FORMED + place for place, form in enumerate(FORMS, 1)}
        return arrangements | {numbers[form]: Arrangement(tuple(range(choices)), form) for form in self.forms}


@dataclass
class Perturbation(ChoiceOrders):
    """Perturbation of MultiQ&A: raters are the question (rewrite 0), its rewrites and, if set, orders and forms of
    choices.
    """

    trials: int = 1
    """Number of independent answers of each rater at each temperature."""
    rewrites: int = 5
    """Maximum number of rewrites of each question: v in the paper."""
    orders: str = GIVEN
    forms: list[str] = field(default_factory=list)

    axis = "rewrite"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.rewrites <= MAX_REWRITES:
            raise ValueError(f"rewrites must be between 1 and {MAX_REWRITES}, not {self.rewrites}")

    @property
    def repetitions(self) -> float:
        return super().repetitions + self.rewrites * self.trials

    def candidates(self, questions: Sequence[Question]) -> list[Question]:
        """Return the questions that have rewrites; NothingKeptError where none has."""
        chosen = [question for question in questions if question.rewrites]
        if not chosen:
            raise NothingKeptError(
                "none of the questions has rewrites, which sampler=perturbation needs: add them "
                "under 'rewrites' to the data set or in a file (rewriter.file), or let a capable model write them "
                "(rewriter=llm rewriter.model=…)"
            )
        return chosen

    def wordings(self, question: Question) -> int:
        """Return the number of wordings of a question: itself, and its rewrites up to ``rewrites``."""
        return 1 + min(self.rewrites, len(question.rewrites))
