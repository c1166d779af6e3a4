"""Where the answers of a run come from: a model is asked for them by samplers, or they are read from a file."""

import logging
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

from robust_eval.answer import CURVES, NO_ANSWER, NO_REPLY, SCHEMA, Answers, Undecided, rows
from robust_eval.config.config import Config
from robust_eval.experiment.conversing import Conversing
from robust_eval.experiment.thinking_first import ThinkingFirst
from robust_eval.experiment.undecided import refuse_undecided, remember_share, undecided, why_all
from robust_eval.grader.judge import Judge
from robust_eval.model.base import ALL, Request, Temperatures
from robust_eval.model.config import ModelConfig
from robust_eval.prompt.prompt import refuse_exemplars
from robust_eval.question import Question
from robust_eval.sampler.base import ORDER, Conditions, Sampler, greedy_requests
from robust_eval.sampler.challenge import conversing
from robust_eval.sampler.possible import highest, possible
from robust_eval.sampler.recorded_answers import RecordedAnswers
from robust_eval.sampler.thinking import thinking, thinking_of
from robust_eval.stats.frs import settled
from robust_eval.store.stored_model import StoredModel
from robust_eval.store.waves import Settled

log = logging.getLogger(__name__)

MAJORITY_OF = 5
"""Answers of which the most frequent stands for the greedy one, of a model that takes no temperature 0."""


class Collection(Protocol):
    """The answers of a run, by the name of the sampler that asks for them."""

    @property
    def greedy(self) -> str:
        """The name of the answers at temperature 0, for the log."""

    @property
    def undecided(self) -> Mapping[str, Undecided]:
        """How far each sampler asks that asks no more than breaking temperatures need."""

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

    def at_most(self, questions: Sequence[Question]) -> list[Question]:
        """Return as many of the questions, the first ones, as are selected at most."""

    def answers(self, questions: Sequence[Question], baseline: pa.Table) -> dict[str, Answers]:
        """Return the answers of each sampler to the selected questions, not graded, given their graded baseline."""

    def identity(self) -> dict[str, Any]:
        """Return what identifies the answers beside model and settings, for the record."""


@dataclass(frozen=True)
class Asked:
    """Answers of a model. All samplers ask the same questions, so that their figures can be joined by question.

    The first sampler says how the greedy answers are asked for, which all samplers share. Of a model that takes no
    temperature 0 the most frequent of several answers stands for the greedy one, where questions are selected by it;
    elsewhere there is none.
    """

    samplers: Mapping[str, Sampler]
    model: StoredModel
    judge: Judge
    seed: int
    top_logprobs: int
    """How many of the largest log-probabilities of each greedy token are wanted at least."""
    takes: Temperatures = ALL
    """The temperatures that the model takes."""
    undecided: Mapping[str, Undecided] = field(default_factory=dict)
    """How far each sampler asks that asks no more than breaking temperatures need."""
    could_ask_less: Sequence[str] = ()
    """The samplers that ask all, and could ask no more than breaking temperatures need."""

    @property
    def greedy(self) -> str:
        """What the answers are called by which questions are selected."""
        return "greedy" if self.takes.greedy else "most frequent"

    def conditions(self) -> Mapping[str, Conditions]:
        """Return the samplers, which are conditions."""
        return self.samplers

    def asked(self, questions: Sequence[Question]) -> list[Question]:
        """Return all questions. Raises UserError for a question that the prompt answers."""
        refuse_exemplars(questions, self._first.prompts)
        return list(questions)

    def candidates(self, questions: Sequence[Question]) -> list[Question]:
        """Return the questions that every sampler can ask, but for one that asks in other orders alone: beside others
        it asks those that have choices.
        """
        chosen = list(questions)
        deciding = [sampler for sampler in self.samplers.values() if sampler.axis != ORDER]
        for sampler in deciding or self.samplers.values():
            chosen = sampler.candidates(chosen)
        return chosen

    def baseline(self, questions: Sequence[Question]) -> pa.Table:
        """Ask for the greedy answers, once each sampler could make its requests: its mistakes are found before."""
        for name in self.samplers:
            self.requests(name, questions)
        requests = self.greedy_requests(questions)
        if not requests:
            return SCHEMA.empty_table()
        table = self.model.answers(requests, f"{self.greedy} answers").table
        return table if self.takes.greedy else most_frequent(table, self.judge.grade(questions, table))

    def greedy_requests(self, questions: Sequence[Question]) -> list[Request]:
        """Return the requests at temperature 0, or for those answers of which the most frequent stands for it."""
        sampler = self._first
        requests = greedy_requests(
            questions, sampler.prompts, sampler.max_new_tokens, self.seed, self.top_logprobs, self.judge.first_line
        )
        if (thoughtful := thinking(sampler)) is not None:
            requests = [thoughtful.greedy(request) for request in requests]
        if self.takes.greedy:
            return requests
        if not any(each.selects for each in self.samplers.values()):
            return []
        lowest = sampler.temperatures[0]
        return [replace(request, temperatures=(lowest,), trials=MAJORITY_OF) for request in requests]

    def requests(self, sampler: str, questions: Sequence[Question]) -> list[Request]:
        """Return the requests of a sampler for the selected questions."""
        return self.samplers[sampler].requests(questions, self.judge, self.seed)

    def select(self, questions: Sequence[Question], baseline: pa.Table) -> list[Question]:
        """Select the questions that every sampler keeps."""
        chosen = list(questions)
        for sampler in self.samplers.values():
            chosen = sampler.select(chosen, baseline, self.seed)
        return chosen

    def at_most(self, questions: Sequence[Question]) -> list[Question]:
        """Return as many of them as the sampler takes that takes fewest."""
        chosen = list(questions)
        for sampler in self.samplers.values():
            chosen = sampler.at_most(chosen)
        return chosen

    def answers(self, questions: Sequence[Question], baseline: pa.Table) -> dict[str, Answers]:
        """Ask for the answers of one sampler after the other; one that has nothing to ask has none."""
        found = {}
        for name in self.samplers:
            requests, stage = self.requests(name, questions), self.stage(name)
            if not requests:
                continue
            if name in self.undecided:
                found[name] = self.model.settled(requests, stage, self._verdicts(questions), self._settled(name))
                asked, planned = found[name].table.num_rows, sum(request.answers for request in requests)
                log.info("%s: %d of %d answers settle every breaking temperature", stage, asked, planned)
                remember_share(self.model.identity, asked, planned)
            else:
                found[name] = self.all_answers(name, requests, questions, baseline)
        return found

    def all_answers(
        self, sampler: str, requests: Sequence[Request], questions: Sequence[Question], baseline: pa.Table
    ) -> Answers:
        """Ask for all answers of a sampler, whose ``requests`` about the questions these are."""
        stage, following = self.stage(sampler), self._following(sampler, questions, baseline)
        if following is not None:
            return following.answers(stage)
        return self.model.answers(requests, stage)

    def _following(
        self, sampler: str, questions: Sequence[Question], baseline: pa.Table | None
    ) -> Conversing | ThinkingFirst | None:
        """Return how a sampler is asked for whose requests follow from answers; None for any other.

        A conversation without a ``baseline`` has nothing to begin with.
        """
        found = self.samplers[sampler]
        challenge, thoughtful = conversing(found), thinking(found)
        if challenge is not None and baseline is not None:
            return Conversing(challenge, self.model, self.judge, self.seed, questions, baseline)
        if thoughtful is not None and thoughtful.here:
            return ThinkingFirst(thoughtful, self.model, self.judge, self.seed, questions)
        return None

    def missing(
        self, sampler: str, questions: Sequence[Question], baseline: pa.Table | None
    ) -> tuple[int, list[Request]]:
        """Return the number of a sampler's requests, and those whose answers are not there, as far as they are not;
        all, where they follow from a graded ``baseline`` that is not there.
        """
        requests = self.requests(sampler, questions)
        following = self._following(sampler, questions, baseline)
        if following is not None:
            missing = following.missing()
        elif baseline is None and conversing(self.samplers[sampler]) is not None:
            missing = requests
        elif sampler in self.undecided:
            missing = self.model.unsettled(requests, self._verdicts(questions), self._settled(sampler))
        else:
            missing = self.model.missing(requests)
        return len(requests), missing

    def _settled(self, sampler: str) -> Settled:
        return partial(settled, threshold=self.undecided[sampler].threshold)

    def _verdicts(self, questions: Sequence[Question]) -> Callable[[pa.Table], list[bool | None]]:
        """Return what says which answers are right; None where there was no reply, or nothing is right or wrong."""

        def verdicts(table: pa.Table) -> list[bool | None]:
            graded = self.judge.grade(questions, table)
            return [
                None if outcome in NO_REPLY else False if outcome in NO_ANSWER else correct
                for correct, outcome in rows(graded, "correct", "outcome")
            ]

        return verdicts

    def stage(self, sampler: str) -> str:
        """Return the name of a sampler's answers in progress bars and logs."""
        return "sampled answers" if len(self.samplers) == 1 else f"answers of {sampler}"

    def identity(self) -> dict[str, Any]:
        """Return which temperatures the model takes, where it does not take all that were set."""
        if self.takes.default_only:
            return {"loaded.temperatures": "the model's own"}
        found = {} if math.isinf(self.takes.highest) else {"loaded.temperatures": f"up to {self.takes.highest:g}"}
        if not self.takes.greedy:
            found["loaded.greedy"] = f"the most frequent of {MAJORITY_OF} answers at {self._first.temperatures[0]:g}"
        return found

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

    def at_most(self, questions: Sequence[Question]) -> list[Question]:
        """Return all of them."""
        return list(questions)

    def answers(self, questions: Sequence[Question], baseline: pa.Table) -> dict[str, Answers]:
        """Return the answers above temperature 0."""
        return {name: Answers(table, CURVES.empty_table()) for name, table in self.file.answers(questions).items()}

    @property
    def undecided(self) -> Mapping[str, Undecided]:
        """How far each sampler asked that asked no more than breaking temperatures need, as the file says."""
        return {} if self.file.asked is None else self.file.asked.undecided

    def identity(self) -> dict[str, Any]:
        """Return the hash of the file."""
        return {f"identity.answers.{name}": value for name, value in self.file.identity().items()}


def answering(config: Config, model: StoredModel) -> Asked | Recorded:
    """Return where the answers of a run come from: its model, or the file of recorded answers."""
    if config.recorded is not None:
        refuse_undecided(config, config.recorded)
        return Recorded(config.recorded)
    wanted = max(metric.top_logprobs for metric in config.metric.values())
    samplers = {name: _for_model(name, sampler, config.model) for name, sampler in config.sampler.items()}
    takes = model.temperatures(highest(list(samplers.values())))
    samplers = {name: possible(name, sampler, takes, config.model.name) for name, sampler in samplers.items()}
    asking = undecided(config, samplers)
    could = [name for name in samplers if name not in asking and not why_all(config, samplers, name)]
    collection = Asked(samplers, model, config.judge, config.seed, wanted, takes, asking, could)
    if not takes.greedy and any(sampler.selects for sampler in samplers.values()):
        log.warning(
            "%s takes no temperature 0: the most frequent of %d answers stands for the greedy one",
            *(config.model.name, MAJORITY_OF),
        )
    return collection


def _for_model(name: str, sampler: Sampler, model: ModelConfig) -> Sampler:
    thoughtful = thinking(sampler)
    return sampler if thoughtful is None else thinking_of(name, thoughtful, model.remote, model.name)


def most_frequent(replies: pa.Table, graded: pa.Table) -> pa.Table:
    """Return of each question the first reply that has its most frequent label; of labels as frequent, the first.

    ``graded`` are the same replies with their labels. A reply without a label has no vote.
    """
    by_question: dict[str, list[tuple[int, str | None]]] = {}
    for row, (question_id, label) in enumerate(rows(graded, "question_id", "label")):
        by_question.setdefault(question_id, []).append((row, label))
    chosen = []
    for answers in by_question.values():
        votes = Counter(label for _, label in answers if label is not None)
        winner = votes.most_common(1)[0][0] if votes else None
        chosen.append(next(row for row, label in answers if label == winner))
    return replies.take(pa.array(chosen, pa.int64()))
