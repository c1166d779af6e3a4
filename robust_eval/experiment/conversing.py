"""Conversations that go on: each turn is asked for once the answers to the turn before are there."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from robust_eval.answer import CURVES, SCHEMA, Answers
from robust_eval.error import UserError
from robust_eval.grader.judge import Judge
from robust_eval.model.base import Request
from robust_eval.question import Question
from robust_eval.sampler.challenge import Challenge, turn_of, turns_of
from robust_eval.sampler.recorded_answers import in_order
from robust_eval.store.stored_model import StoredModel


@dataclass(frozen=True)
class Conversing:
    """Conversations of a ``model`` about ``questions``, whose graded greedy answers are the ``baseline``."""

    sampler: Challenge
    model: StoredModel
    judge: Judge
    seed: int
    questions: Sequence[Question]
    baseline: pa.Table

    def answers(self, stage: str) -> Answers:
        """Ask turn by turn for what is not stored; the answers are ordered by question, turn, temperature and
        conversation.
        """
        whole = [SCHEMA.empty_table()]
        for temperature in self.sampler.temperatures:
            came = SCHEMA.empty_table()
            for turn in range(1, self.sampler.turns + 1):
                requests = self._requests(turn, temperature, came)
                if not requests:
                    break
                came = self._with(came, requests, f"{stage}, turn {turn} of {self.sampler.turns}")
            whole.append(came)
        found = in_order(self.questions, pa.concat_tables(whole))
        if not found.num_rows:
            raise UserError(
                "no answer can be doubted: sampler.challenge.challenges has no sentence that can be filled in"
            )
        return Answers(found, CURVES.empty_table())

    def missing(self) -> list[Request]:
        """Return what may still be asked for at most: all of a turn that is not stored, and of those after it."""
        missing: list[Request] = []
        planned = self.sampler.requests(self.questions, self.judge, self.seed)
        for temperature in self.sampler.temperatures:
            came = SCHEMA.empty_table()
            for turn in range(1, self.sampler.turns + 1):
                requests = self._requests(turn, temperature, came)
                if lacking := self.model.missing(requests):
                    later = [each for each in planned if turn_of(each) > turn]
                    missing += [*lacking, *(replace(each, temperatures=(temperature,)) for each in later)]
                    break
                came = self._with(came, requests, "")
        return missing

    def _requests(self, turn: int, temperature: float, came: pa.Table) -> list[Request]:
        return self.sampler.turn_requests(turn, temperature, self.questions, self.baseline, came, self.judge, self.seed)

    def _with(self, came: pa.Table, requests: Sequence[Request], stage: str) -> pa.Table:
        """Return the answers that came, and those to the requests of the next turn."""
        table = self.model.answers(requests, stage).table
        return pa.concat_tables([came, turns_of(table, self.sampler.trials)])
