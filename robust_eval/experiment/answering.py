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
    """The answers of a run, by the name of the sampler that asks for them."""

    greedy: str
    """The name of the answers at temperature 0, for the log."""

    def conditions(self) -> Mapping[str, Conditions]:
        """Return the conditions under which each sampler has answers."""

    def asked(self, questions: Sequence[Question]) -> list[Question]:
        """Return the questions that the run is about. Raises UserError where there is none."""

    def candidates(self, questions: Sequence[Question]) -> list[Question]:
        """Return the questions that can be asked. Raises UserError where there is none."""

    def baseline(self, questions: Sequence[Question]) -> pa.Table:
        """Return the answers at temperature 0, not graded. Recorded answers need not have any."""

    def select(self, questions: Sequence[Question], baseline: pa.Table) -> list[Question]:
        """Select the candidates to go on with, given their graded baseline. Raises UserError where there is none."""

    def answers(self, questions: Sequence[Question]) -> dict[str, Answers]:
        """Return the answers of each sampler to the selected questions, not graded."""

    def identity(self) -> dict[str, Any]:
        """Return what identifies the answers beside model and settings, for the record."""


@dataclass(frozen=True)
class Asked:
    """Answers of a model. All samplers ask the same questions, so that their figures can be joined by question.

    The first sampler says how the greedy answers are asked for, which all samplers share.
    """

    samplers: Mapping[str, Sampler]
    model: StoredModel
    judge: Judge
    seed: int
    top_logprobs: int
    """How many of the largest log-probabilities of each greedy token are wanted at least."""

    greedy = "greedy"

    def conditions(self) -> Mapping[str, Conditions]:
        """Return the samplers, which are conditions."""
        return self.samplers

    def asked(self, questions: Sequence[Question]) -> list[Question]:
        """Return all questions. Raises UserError for a question that the prompt answers."""
        refuse_exemplars(questions, self._first.prompts)
        return list(questions)

    def candidates(self, questions: Sequence[Question]) -> list[Question]:
        """Return the questions that every sampler can ask."""
        chosen = list(questions)
        for sampler in self.samplers.values():
            chosen = sampler.candidates(chosen)
        return chosen

    def baseline(self, questions: Sequence[Question]) -> pa.Table:
        """Ask for the greedy answers, once each sampler could make its requests: its mistakes are found before."""
        for name in self.samplers:
            self.requests(name, questions)
        return self.model.answers(self.greedy_requests(questions), "greedy answers", needs_curves=False).table

    def greedy_requests(self, questions: Sequence[Question]) -> list[Request]:
        """Return the requests at temperature 0."""
        sampler = self._first
        return greedy_requests(questions, sampler.prompts, sampler.max_new_tokens, self.seed, self.top_logprobs)

    def requests(self, sampler: str, questions: Sequence[Question]) -> list[Request]:
        """Return the requests of a sampler for the selected questions."""
        return self.samplers[sampler].requests(questions, self.judge, self.seed)

    def needs_curves(self, sampler: str) -> bool:
        """Return whether a sampler needs accuracy curves beside answers."""
        return self.samplers[sampler].estimator != "trials"

    def select(self, questions: Sequence[Question], baseline: pa.Table) -> list[Question]:
        """Select the questions that every sampler keeps."""
        chosen = list(questions)
        for sampler in self.samplers.values():
            chosen = sampler.select(chosen, baseline, self.seed)
        return chosen

    def answers(self, questions: Sequence[Question]) -> dict[str, Answers]:
        """Ask for the answers of one sampler after the other."""
        found = {}
        for name in self.samplers:
            requests = self.requests(name, questions)
            found[name] = self.model.answers(requests, self.stage(name), self.needs_curves(name))
        return found

    def stage(self, sampler: str) -> str:
        """Return the name of a sampler's answers in progress bars and logs."""
        return "sampled answers" if len(self.samplers) == 1 else f"answers of {sampler}"

    def identity(self) -> dict[str, Any]:
        """Return nothing: model and settings identify the answers."""
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
        """Return the conditions of each sampler that the file names."""
        return self.file.conditions()

    def asked(self, questions: Sequence[Question]) -> list[Question]:
        """Return the questions that have an answer. Raises UserError for the first answer to an unknown question."""
        return self.file.answered(questions)

    def candidates(self, questions: Sequence[Question]) -> list[Question]:
        """Return all questions."""
        return list(questions)

    def baseline(self, questions: Sequence[Question]) -> pa.Table:
        """Return the answers at temperature 0, if there are any."""
        return self.file.baseline(questions)

    def select(self, questions: Sequence[Question], baseline: pa.Table) -> list[Question]:
        """Select by the rule in ``sampler.selection``."""
        return self.file.select(questions, baseline)

    def answers(self, questions: Sequence[Question]) -> dict[str, Answers]:
        """Return the answers above temperature 0."""
        return {name: Answers(table, CURVES.empty_table()) for name, table in self.file.answers(questions).items()}

    def identity(self) -> dict[str, Any]:
        """Return the hash of the file."""
        return {f"identity.answers.{name}": value for name, value in self.file.identity().items()}


def answering(config: Config, model: StoredModel) -> Asked | Recorded:
    """Return where the answers of a run come from: its model, or the file of recorded answers."""
    if config.recorded is not None:
        return Recorded(config.recorded)
    wanted = max(metric.top_logprobs for metric in config.metric.values())
    return Asked(config.sampler, model, config.grader, config.seed, wanted)
