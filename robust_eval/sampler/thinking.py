"""Thinking sampler: several reasoning traces of a question, cut off at several budgets (docs/thinking.md)."""

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from robust_eval.answer import NO_REPLY, SCHEMA, rows
from robust_eval.error import UserError
from robust_eval.model.base import Enumeration, Reasoning, Request
from robust_eval.prompt.prompt import prompt_for
from robust_eval.prompt.reasoning_budget import EFFORTS, AfterReasoning, Budget, sorted_budgets
from robust_eval.question import Question
from robust_eval.sampler.base import REASONED, REASONING, STEP, PrefixGrader, ordered_answers, prefix_grader_settings
from robust_eval.sampler.known_facts import KnownFacts
from robust_eval.sampler.steps import NOTHING, Step, Steps, single_step

MAX_TRACES = 4000
MAX_TOKENS = 200_000


@dataclass
class Thinking(KnownFacts):
    """Thinking: a local model draws the reasoning traces of a question first; each is cut off at every budget, ended,
    and followed by an answer. A service returns trace and answer together, in a separate draw for each budget.
    """

    temperatures: list[float] = field(default_factory=lambda: [1.0])
    """Temperatures of the answers, all above 0; for a service, also those of the traces."""
    max_new_tokens: int = 16
    """Length limit of an answer without its trace, in tokens."""
    selection: str = "none"
    traces: int = 4
    """Number of reasoning traces of each question."""
    trace_temperature: float = 1.0
    """Temperature of the traces of a local model, above 0."""
    budgets: list[Any] = field(default_factory=lambda: [0, 64, 256])
    """Reasoning budgets: numbers of tokens (0: no reasoning), or effort levels of a service (none, minimal, low,
    medium, high, xhigh, max)."""
    answers: int = 0
    """Number of answers drawn after each trace; 0: a local model enumerates all with their probabilities. A service
    returns one with each trace."""
    nodes: int = 32
    """Maximum number of evaluated prefixes of the answers after a trace, if they are enumerated."""

    axis = REASONING
    is_local = True
    """True if the model is local; set by :meth:`of_model`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.traces <= MAX_TRACES:
            raise ValueError(f"traces must be between 1 and {MAX_TRACES}, not {self.traces}")
        if self.nodes < 1:
            raise ValueError(f"nodes must be at least 1, not {self.nodes}")
        if self.answers < 0:
            raise ValueError(f"answers must be 0 (enumerate all) or more, not {self.answers}")
        if not 0 < self.trace_temperature < math.inf:
            raise ValueError(f"trace_temperature must be finite and above 0, not {self.trace_temperature:g}")
        self.budgets = _grid(self.budgets)

    @property
    def exact(self) -> bool:
        """True if the answers after reasoning are enumerated instead of drawn."""
        return self.is_local and not self.answers

    @property
    def estimator(self) -> str:
        return "exact" if self.exact else "trials"

    @property
    def repetitions(self) -> float:
        """Number of answers to each question at each temperature with each reasoning budget."""
        return math.inf if self.exact else self.traces * max(1, self.answers if self.is_local else 1)

    def requests(self, questions: Sequence[Question], grader: PrefixGrader, seed: int) -> list[Request]:
        """Return the requests with reasoning: all to a service; the maximum to a local model, whose traces may all
        differ.
        """
        if not self.is_local:
            return [self._served(question, budget, grader, seed) for question in questions for budget in self.budgets]
        planned = self.trace_requests(questions, seed)
        for question in questions:
            planned += [
                self._answer_request(question, number, tuple(range(budget)), (budget,), grader, seed)
                for budget in self.budgets
                for number in range(self.traces if budget else 1)
            ]
        return planned

    def steps(self, questions: Sequence[Question], baseline: pa.Table | None, grader: PrefixGrader, seed: int) -> Steps:
        """Return steps for the reasoning traces and then for the answers; for a service, one step."""
        if self.is_local:
            return self._after_traces(questions, grader, seed)
        return super().steps(questions, baseline, grader, seed)

    def _after_traces(self, questions: Sequence[Question], grader: PrefixGrader, seed: int) -> Steps:
        """Request traces, then answers; return these by question, length of the reasoning, trace and temperature."""
        requests, traces = self.trace_requests(questions, seed), SCHEMA.empty_table()
        if requests:
            planned = partial(self.requests, questions, grader, seed)
            reply = yield Step(requests, "reasoning traces", lambda missing: [*missing, *planned()[len(requests) :]])
            if reply is None:
                return NOTHING
            traces = reply.table
        answers = yield from single_step(self.answer_requests(questions, traces, grader, seed))
        return answers._replace(table=ordered_answers(questions, answers.table))

    def of_model(self, name: str, remote: bool, model: str) -> "Thinking":
        """Return the thinking sampler for a local model or a service; UserError for settings that it cannot support."""
        if not remote and not all(isinstance(budget, int) for budget in self.budgets):
            raise UserError(
                f"sampler.{name}.budgets={self.budgets}: budgets of the local model {model} must be numbers of tokens, "
                "such as [0,64,256]"
            )
        if remote and self.answers > 1:
            raise UserError(
                f"sampler.{name}.answers={self.answers}: a service such as {model} returns one answer with each trace: "
                f"remove sampler.{name}.answers"
            )
        other = copy(super().of_model(name, remote, model))
        other.is_local = not remote
        return other

    def baseline_request(self, question: Question, grader: PrefixGrader, seed: int, min_logprobs: int) -> Request:
        """Return the request for a baseline answer without reasoning; from a service, with the smallest budget."""
        request = super().baseline_request(question, grader, seed, min_logprobs)
        if self.is_local:
            return replace(request, reasoning=Reasoning(()))
        return replace(request, **self._thinking(self.budgets[0]))

    def trace_requests(self, questions: Sequence[Question], seed: int) -> list[Request]:
        """Return requests for reasoning traces as long as the largest budget; none for a service or with budget 0."""
        if not self.is_local or not self.budgets[-1]:
            return []
        return [
            Request(
                question_id=question.id,
                variant=REASONED,
                prompt=prompt_for(question, prompts=self.prompts),
                temperatures=(self.trace_temperature,),
                trials=self.traces,
                max_new_tokens=self.budgets[-1],
                seed=seed,
                first_line=False,
                reasoning=Reasoning(most=self.budgets[-1]),
            )
            for question in questions
        ]

    def answer_requests(
        self, questions: Sequence[Question], traces: pa.Table, grader: PrefixGrader, seed: int
    ) -> list[Request]:
        """Return the requests for the answers after these reasoning traces, each cut off at every budget; identical
        cuts of several budgets share a request.
        """
        traces_by_question: dict[str, dict[int, list[int]]] = {}
        columns = ("question_id", "trial", "token_ids", "answer_tokens", "outcome")
        for name, number, ids, length, outcome in rows(traces, *columns):
            if outcome not in NO_REPLY:
                traces_by_question.setdefault(name, {})[number] = ids[:length]
        requests = []
        for question in questions:
            if 0 in self.budgets:
                requests.append(self._answer_request(question, 0, (), (0,), grader, seed))
            for number, tokens in traces_by_question.get(question.id, {}).items():
                cuts: dict[int, list[Budget]] = {}
                for budget in filter(None, self.budgets):
                    cuts.setdefault(min(budget, len(tokens)), []).append(budget)
                requests += [
                    self._answer_request(question, number, tuple(tokens[:cut]), tuple(budgets), grader, seed)
                    for cut, budgets in cuts.items()
                ]
        return requests

    def _answer_request(
        self,
        question: Question,
        number: int,
        tokens: tuple[int, ...],
        budgets: tuple[Budget, ...],
        grader: PrefixGrader,
        seed: int,
    ) -> Request:
        """Return the request for the answers after a reasoning trace; those without reasoning count for all traces."""
        without_reasoning = budgets == (0,)
        matcher, choices = (grader.matcher(question), grader.choices(question)) if self.exact else (None, None)
        if self.exact and matcher is None and choices is None:
            raise UserError(
                f"sampler=thinking cannot grade the answers to question {question.id} while it enumerates them: it "
                f"needs accepted answers, and {prefix_grader_settings(grader)}; "
                "or set sampler.thinking.answers=10 to draw answers"
            )
        grid = tuple(sorted({*self.temperatures, 1.0}))
        return replace(
            self.request(question, grader, seed, self.answers * self.traces if without_reasoning else self.answers),
            variant=REASONED + (MAX_TRACES if without_reasoning else number + STEP * len(tokens)),
            max_new_tokens=1 if choices else self.max_new_tokens,
            matcher=matcher,
            enumeration=Enumeration(self.nodes, grid, choices) if self.exact else None,
            form=AfterReasoning(number, budgets).tag,
            reasoning=Reasoning(tokens),
        )

    def _served(self, question: Question, budget: Budget, grader: PrefixGrader, seed: int) -> Request:
        return replace(
            self.request(question, grader, seed, self.traces),
            variant=REASONED + STEP * (EFFORTS.index(budget) if isinstance(budget, str) else budget),
            form=AfterReasoning(None, (budget,)).tag,
            **self._thinking(budget),
        )

    def _thinking(self, budget: Budget) -> dict[str, Any]:
        """Return the fields of a request to a service with a reasoning budget."""
        tokens = budget if isinstance(budget, int) else 0
        return {"reasoning": Reasoning(most=budget), "max_new_tokens": self.max_new_tokens + tokens}


def _grid(budgets: Sequence[Any]) -> list[Any]:
    """Return the reasoning budgets, ascending; ValueError unless all are tokens or all are effort levels."""
    tokens = [type(budget) is int and 0 <= budget <= MAX_TOKENS for budget in budgets]
    words = [budget in EFFORTS for budget in budgets]
    if not budgets or not (all(tokens) or all(words)):
        raise ValueError(
            f"budgets must be either all numbers of tokens from 0 to {MAX_TOKENS:,} or all effort "
            f"levels ({', '.join(EFFORTS)}), not {list(budgets)}"
        )
    if len(set(budgets)) < len(budgets):
        raise ValueError(f"budgets must be distinct, not {list(budgets)}")
    return sorted_budgets(budgets)
