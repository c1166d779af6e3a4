"""Each known fact at every temperature of a grid, in independent trials.

Fastowski, Prenkaj, Kasneci, "From Confidence to Collapse in LLM Factual Robustness", §3 (docs/methods.md, §1).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from robust_eval.model.base import Request
from robust_eval.prompt.prompt import prompt_for
from robust_eval.question import Question
from robust_eval.sampler.base import Conditions, Judge
from robust_eval.sampler.known_facts import KnownFacts


@dataclass
class TemperatureSweep(KnownFacts):
    """The sampling of the Factual Robustness Score."""

    trials: int = 10
    """Independent answers at each temperature."""
    whole_answers: bool = True
    """False: an answer ends as soon as it contains an accepted answer and the boundary of its last word, which saves
    time where nothing but correctness is asked for."""
    ask: str = "all"
    """all, as the paper does; undecided asks from below, and at each temperature only until it is settled whether the
    fact holds there: the same breaking temperatures and FRS for about a third of the answers, and no accuracies."""

    estimator = "trials"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ask not in ("all", "undecided"):
            raise ValueError(f"ask must be all or undecided, not {self.ask}")
        if self.trials < 1:
            raise ValueError(f"trials must be at least 1, not {self.trials}")

    @property
    def repetitions(self) -> float:
        """Answers at each temperature."""
        return self.trials

    def requests(self, questions: Sequence[Question], judge: Judge, seed: int) -> list[Request]:
        """Return ``trials`` answers to each question at every temperature."""
        return [
            Request(
                question_id=question.id,
                rewrite=0,
                prompt=prompt_for(question, prompts=self.prompts),
                temperatures=tuple(self.temperatures),
                trials=self.trials,
                max_new_tokens=self.max_new_tokens,
                seed=seed,
                first_line=judge.first_line,
                matcher=None if self.whole_answers else judge.matcher(question),
                whole=self.whole_answers,
            )
            for question in questions
        ]


def asks_undecided(sampler: Conditions) -> bool:
    """Return whether a sampler is set to ask no more than breaking temperatures need."""
    return isinstance(sampler, TemperatureSweep) and sampler.ask == "undecided"


def why_whole(sampler: Conditions) -> list[str]:
    """Return why a sampler has to ask all, by its own settings; nothing where it can ask less."""
    if not isinstance(sampler, TemperatureSweep):
        return ["it has no breaking temperatures"]
    return [] if sampler.whole_answers else ["sampler.whole_answers=false ends answers where they are right"]
