"""Where the answers of a run come from: a model is asked for them by samplers, or they are read from a file."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from robust_eval.answer import CURVES, Answers
from robust_eval.config.config import Config
from robust_eval.model.base import Request
from robust_eval.prompt.prompt import refuse_exemplars
from robust_eval.question import Question
from robust_eval.sampler.base import Conditions, Judge, Sampler, greedy_requests
from robust_eval.sampler.recorded_answers import RecordedAnswers
from robust_eval.store.stored_model import StoredModel

log = logging.getLogger(__name__)


class Collection(Protocol):
    """The answers of a run, each part under the name of the sampler that asks for it."""

    greedy: str
    """What the answers at temperature 0 are called."""

    def conditions(self) -> Mapping[str, Conditions]:
        """Under which conditions each sampler has answers."""

    def asked(self, questions: Sequence[Question]) -> list[Question]:
        """Those of the questions that the run is about; UserError where that is none."""

    def candidates(self, questions: Sequence[Question]) -> list[Question]:
        """Those that may be selected, whatever is answered; UserError where that is none, or one cannot be asked so."""

    def baseline(self, questions: Sequence[Question]) -> pa.Table:
        """The answers at temperature 0, not graded; recorded ones need not have any."""

    def select(self, questions: Sequence[Question], baseline: pa.Table) -> list[Question]:
        """The candidates to go on with, given their graded baseline; UserError where there are none."""

    def answers(self, questions: Sequence[Question]) -> dict[str, Answers]:
        """The answers of each sampler to the questions that were selected, not graded."""

    def identity(self) -> dict[str, Any]:
        """What tells the answers from others, beside model and settings, for the record."""


@dataclass(frozen=True)
class Asked:
    """Answers of a model to the questions that all samplers take: what they find can be joined by question.

    The greedy answers, which serve all samplers, are asked for in the way of the first.
    """

    samplers: Mapping[str, Sampler]
    model: StoredModel
    judge: Judge
    seed: int
    top_logprobs: int
    """How many of the largest log-probabilities of each greedy token are wanted at least."""

    greedy = "greedy"

    def conditions(self) -> Mapping[str, Conditions]:
        """Those of the samplers."""
        return self.samplers

    def asked(self, questions: Sequence[Question]) -> list[Question]:
        """All; UserError for one that the prompt answers."""
        refuse_exemplars(questions, self._first.prompts)
        return list(questions)

    def candidates(self, questions: Sequence[Question]) -> list[Question]:
        """Those that each sampler may take."""
        chosen = list(questions)
        for sampler in self.samplers.values():
            chosen = sampler.candidates(chosen)
        return chosen

    def baseline(self, questions: Sequence[Question]) -> pa.Table:
        """Greedy answers. What a sampler could not ask for is said before they are asked."""
        for name in self.samplers:
            self.requests(name, questions)
        return self.model.answers(self.greedy_requests(questions), "greedy answers", needs_curves=False).table

    def greedy_requests(self, questions: Sequence[Question]) -> list[Request]:
        """What is asked at temperature 0."""
        sampler = self._first
        return greedy_requests(questions, sampler.prompts, sampler.max_new_tokens, self.seed, self.top_logprobs)

    def requests(self, sampler: str, questions: Sequence[Question]) -> list[Request]:
        """What a sampler asks of the questions that were selected."""
        return self.samplers[sampler].requests(questions, self.judge, self.seed)

    def needs_curves(self, sampler: str) -> bool:
        """Whether the accuracy curves of the model are wanted, and not only its answers."""
        return self.samplers[sampler].estimator != "trials"

    def select(self, questions: Sequence[Question], baseline: pa.Table) -> list[Question]:
        """Those that each sampler takes of the ones that are left."""
        chosen = list(questions)
        for sampler in self.samplers.values():
            chosen = sampler.select(chosen, baseline, self.seed)
        return chosen

    def answers(self, questions: Sequence[Question]) -> dict[str, Answers]:
        """The samplers ask in turn."""
        found = {}
        for name in self.samplers:
            requests = self.requests(name, questions)
            found[name] = self.model.answers(requests, self.stage(name), self.needs_curves(name))
        return found

    def stage(self, sampler: str) -> str:
        """What the answers of a sampler are called while they are asked for."""
        return "sampled answers" if len(self.samplers) == 1 else f"answers of {sampler}"

    def identity(self) -> dict[str, Any]:
        """The model and the settings say it all."""
        return {}

    @property
    def _first(self) -> Sampler:
        return next(iter(self.samplers.values()))


@dataclass(frozen=True)
class Recorded:
    """Answers that somebody else collected."""

    file: RecordedAnswers

    greedy = "recorded"

    def conditions(self) -> Mapping[str, Conditions]:
        """Those of each sampler that the file names."""
        return self.file.conditions()

    def asked(self, questions: Sequence[Question]) -> list[Question]:
        """Those that have an answer; UserError names the first answer to a question that is none of them."""
        return self.file.answered(questions)

    def candidates(self, questions: Sequence[Question]) -> list[Question]:
        """All of them."""
        return list(questions)

    def baseline(self, questions: Sequence[Question]) -> pa.Table:
        """Those of temperature 0, where there are any."""
        return self.file.baseline(questions)

    def select(self, questions: Sequence[Question], baseline: pa.Table) -> list[Question]:
        """By the selection asked for."""
        return self.file.select(questions, baseline)

    def answers(self, questions: Sequence[Question]) -> dict[str, Answers]:
        """Those above temperature 0."""
        return {name: Answers(table, CURVES.empty_table()) for name, table in self.file.answers(questions).items()}

    def identity(self) -> dict[str, Any]:
        """The hash of the file."""
        return {f"identity.answers.{name}": value for name, value in self.file.identity().items()}


def answering(config: Config, model: StoredModel) -> Asked | Recorded:
    """Return where the answers of a run come from: its model, or the file of recorded answers."""
    if config.recorded is not None:
        return Recorded(config.recorded)
    wanted = max(metric.top_logprobs for metric in config.metric.values())
    return Asked(config.sampler, model, config.grader, config.seed, wanted)
