"""Each known fact at every temperature of a grid, in independent trials.

Fastowski, Prenkaj, Kasneci, "From Confidence to Collapse in LLM Factual Robustness", §3 (docs/methods.md, §1).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from robust_eval.error import UserError
from robust_eval.model.base import COUPLINGS, INDEPENDENT, Request
from robust_eval.prompt.prompt import prompt_for
from robust_eval.question import Question
from robust_eval.sampler.base import Conditions, Judge, matching
from robust_eval.sampler.known_facts import KnownFacts

ESTIMATORS = ("trials", "combined")


@dataclass
class TemperatureSweep(KnownFacts):
    """The sampling of the Factual Robustness Score."""

    trials: int = 10
    """Independent answers at each temperature."""
    estimator: str = "trials"
    """What the headline is read off: trials, the share of right trials at each temperature (the paper's), or combined,
    which lets the draws at all temperatures speak for each and sums the next tokens; the other is logged beside it."""
    whole_answers: bool = True
    """False: an answer ends as soon as it contains an accepted answer and the boundary of its last word, which saves
    time where nothing but correctness is asked for."""
    ask: str = "all"
    """all, as the paper does; undecided asks from below, and at each temperature only until it is settled whether the
    fact holds there: the same breaking temperatures and FRS for about a third of the answers, and no accuracies."""
    coupling: str = INDEPENDENT
    """Of the answers of one trial at different temperatures, to a model that is loaded here: independent, as in the
    paper, or common, which draws them with the same random numbers, so that fewer prefixes are evaluated. Each
    temperature keeps its distribution."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ask not in ("all", "undecided"):
            raise ValueError(f"ask must be all or undecided, not {self.ask}")
        if self.coupling not in COUPLINGS:
            raise ValueError(f"coupling must be {' or '.join(COUPLINGS)}, not {self.coupling}")
        if self.trials < 1:
            raise ValueError(f"trials must be at least 1, not {self.trials}")
        if self.estimator not in ESTIMATORS:
            raise ValueError(f"estimator must be trials or combined, not {self.estimator}")

    @property
    def repetitions(self) -> float:
        """Answers at each temperature."""
        return self.trials

    def requests(self, questions: Sequence[Question], judge: Judge, seed: int) -> list[Request]:
        """Return ``trials`` answers to each question at every temperature."""
        if self.estimator == "combined":
            for question in questions:
                if judge.matcher(question) is None:
                    raise UserError(
                        f"sampler.estimator=combined cannot tell which answers to question {question.id} are right "
                        f"while they are written: it needs free text with accepted answers, and {matching(judge)}"
                    )
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
                matcher=judge.matcher(question),
                whole=self.whole_answers,
                coupling=self.coupling,
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
    reasons = []
    if sampler.estimator != "trials":
        reasons.append(f"sampler.estimator={sampler.estimator} reads all answers")
    if not sampler.whole_answers:
        reasons.append("sampler.whole_answers=false ends answers where they are right")
    return reasons
