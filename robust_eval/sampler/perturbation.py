"""Each question put in several ways, every one answered in a conversation of its own: in other words, or with its
choices in another order or form.

Cho & Watson, "Measuring Robustness via Automated Crowdsourcing of Question Perturbations and Answers", §3
(docs/methods.md, §2 and §7).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from robust_eval.model.base import Request
from robust_eval.prompt.arrangement import FORMS, GIVEN, Arrangement, permutations, rotations
from robust_eval.prompt.prompt import prompt_for
from robust_eval.question import Question
from robust_eval.sampler.base import ORDER, Judge, NothingKeptError
from robust_eval.sampler.repetition import Repetition

ORDERS = (GIVEN, "rotations", "permutations")
_ROTATED, _PERMUTED, _FORMED = 1000, 2000, 3000
"""Where the numbers of raters begin whose choices stand in another order or form. They do not depend on what else is
asked, so that answers stay in the store when that changes."""


@dataclass
class Perturbation(Repetition):
    """The raters of MultiQ&A: rewrite 0 is the question itself. With ``trials`` above 1 each is asked several times.

    Each other rater differs from the question in one thing: its words, the order of its choices, or their form.
    """

    temperatures: list[float] = field(default_factory=lambda: [1.0])
    """All above 0."""
    trials: int = 1
    """Independent answers to each rewrite at each temperature."""
    rewrites: int = 5
    """Rewrites of each question that are asked, at most: v of the paper."""
    orders: str = GIVEN
    """Orders of the choices: given, as they are; rotations, so that each stands at each place once; permutations,
    random ones."""
    permutations: int = 5
    """Random orders of each question, with orders=permutations."""
    forms: list[str] = field(default_factory=list)
    """Forms of the choices beside that of the prompts: brackets, dots, numbers, commas, bars."""

    axis = "rewrite"
    """order, where no rewrites are asked."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.orders not in ORDERS:
            raise ValueError(f"orders must be one of {', '.join(ORDERS)}, not {self.orders}")
        if self.permutations < 1:
            raise ValueError(f"permutations must be at least 1, not {self.permutations}")
        if unknown := [form for form in self.forms if form not in FORMS]:
            raise ValueError(f"forms must be of {', '.join(FORMS)}, not {unknown[0]}")
        self.forms = [form for form in FORMS if form in self.forms]
        self.arranges = self.orders != GIVEN or bool(self.forms)
        if self.rewrites < (least := 0 if self.arranges else 1):
            raise ValueError(f"rewrites must be at least {least}, not {self.rewrites}")
        self.axis = "rewrite" if self.rewrites else ORDER

    @property
    def repetitions(self) -> float:
        """Answers to each question at each temperature: raters, at least; how many orders depends on the choices."""
        orders = {GIVEN: 0, "rotations": 1, "permutations": 1}[self.orders]
        return (1 + self.rewrites + orders + len(self.forms)) * self.trials

    def candidates(self, questions: Sequence[Question]) -> list[Question]:
        """Return the questions that have rewrites, or if none are asked choices; NothingKeptError where none has."""
        if self.rewrites:
            chosen = [question for question in questions if question.rewrites]
            if not chosen:
                raise NothingKeptError(
                    f"none of the {len(questions)} questions has rewrites, which sampler=perturbation asks: give them "
                    "under 'rewrites' in the data set or in a file (rewriter.file), or have a capable model write them "
                    "(rewriter=llm rewriter.model=…)"
                )
            return chosen
        chosen = [question for question in questions if len(question.choices) > 1]
        if not chosen:
            raise NothingKeptError(
                f"none of the {len(questions)} questions has choices, whose order and form are to vary: take a data "
                "set with choices, such as dataset=physics"
            )
        return chosen

    def requests(self, questions: Sequence[Question], judge: Judge, seed: int) -> list[Request]:
        """Return ``trials`` answers to each question at every temperature, put in each of the ways.

        Without rewrites a question is asked only if it has choices: there is no other way to put it.
        """
        put = [question for question in questions if self.rewrites or len(question.choices) > 1]
        worded = super().requests(put, judge, seed)
        by_id = {question.id: question for question in put}
        arranged = [
            replace(
                request,
                rewrite=rater,
                prompt=prompt_for(by_id[request.question_id], prompts=self.prompts, arrangement=arrangement),
                form=arrangement.told,
            )
            for request in worded
            if request.rewrite == 0
            for rater, arrangement in self._arrangements(by_id[request.question_id], seed).items()
        ]
        return [*worded, *arranged]

    def wordings(self, question: Question) -> int:
        """Return the question itself, and its rewrites up to ``rewrites``."""
        return 1 + min(self.rewrites, len(question.rewrites))

    def _arrangements(self, question: Question, seed: int) -> dict[int, Arrangement]:
        """Return the arrangements of the choices of a question, by the number of the rater."""
        choices = len(question.choices)
        found: dict[int, Arrangement] = {}
        if self.orders == "rotations":
            found |= dict(enumerate(rotations(choices), _ROTATED + 1))
        elif self.orders == "permutations":
            found |= dict(enumerate(permutations(question, self.permutations, seed), _PERMUTED + 1))
        if choices > 1:
            numbers = {form: _FORMED + place for place, form in enumerate(FORMS, 1)}
            found |= {numbers[form]: Arrangement(tuple(range(choices)), form) for form in self.forms}
        return found
