"""Answers after thoughts of a model that is loaded here: they are asked for once its thoughts are there."""

from collections.abc import Sequence
from dataclasses import dataclass

from robust_eval.answer import SCHEMA, Answers
from robust_eval.grader.judge import Judge
from robust_eval.model.base import Request
from robust_eval.question import Question
from robust_eval.sampler.recorded_answers import in_order
from robust_eval.sampler.thinking import Thinking
from robust_eval.store.stored_model import StoredModel


@dataclass(frozen=True)
class ThinkingFirst:
    """What a ``model`` thinks of the ``questions``, and answers then."""

    sampler: Thinking
    model: StoredModel
    judge: Judge
    seed: int
    questions: Sequence[Question]

    def answers(self, stage: str) -> Answers:
        """Ask for the thoughts, and then for the answers, as far as they are not stored; the answers are ordered by
        question, thought and temperature.
        """
        found = self.model.answers(self._requests(f"{stage}, thoughts"), stage)
        return found._replace(table=in_order(self.questions, found.table))

    def missing(self) -> list[Request]:
        """Return what may still be asked for at most: all answers, where a thought is not stored."""
        thoughts = self.sampler.trace_requests(self.questions, self.seed)
        if lacking := self.model.missing(thoughts):
            planned = self.sampler.requests(self.questions, self.judge, self.seed)
            return [*lacking, *planned[len(thoughts) :]]
        return self.model.missing(self._requests(""))

    def _requests(self, stage: str) -> list[Request]:
        """Return the requests for the answers; asks for the thoughts behind which they come."""
        thoughts = self.sampler.trace_requests(self.questions, self.seed)
        traces = self.model.answers(thoughts, stage).table if thoughts else SCHEMA.empty_table()
        return self.sampler.answer_requests(self.questions, traces, self.judge, self.seed)
