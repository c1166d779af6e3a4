"""Intake of the answers of a service, which streams them or brings them in batches."""

import logging
from typing import Any

from robust_eval.model.base import Completion, Item, Reply, Request
from robust_eval.model.calls import Call
from robust_eval.model.logprobs import fault
from robust_eval.model.served.completions import completions
from robust_eval.model.served.limits.retries import Attempts
from robust_eval.model.served.service_settings import ServiceSettings
from robust_eval.model.served.transport.service import ServiceResponse, UnansweredError
from robust_eval.runtime.text import printable

log = logging.getLogger(__name__)

FEW = 10
"""Questions from which on the share of those that failed is judged."""


def by_prefix(request: Request) -> tuple[Any, ...]:
    """Return what requests are ordered by: prompts that begin alike follow one another, and a service finds in its
    cache what it has just read.
    """
    prompt = request.prompt
    return prompt.system, prompt.exemplars, prompt.question


class Intake:
    """Check of the answers of one run, and count of the questions of which an answer failed."""

    def __init__(self, settings: ServiceSettings, attempts: Attempts) -> None:
        self.answered: set[Item] = set()
        self.failed: set[Item] = set()
        self.unknown_ends: list[str] = []
        self._settings = settings
        self._attempts = attempts

    def completions(self, call: Call, answered: ServiceResponse, needed: int) -> list[Completion]:
        """Return the answers to a call, or the first of them, with ``needed`` log-probabilities a token; raises
        UnansweredError where log-probabilities cannot be believed.
        """
        self._note_ends(answered)
        found = completions(call, call.trials, answered, self._settings.prompt_style)
        for one in found:
            silent = one.outcome is not None or not one.text  # of what is no answer none are needed
            logprobs = one.token_logprobs, one.top_logprobs, one.answer_tokens
            if wrong := fault(*logprobs, 0 if silent else needed, whole_is_enough=False):
                raise UnansweredError("garbled", f"the server sent {wrong}")
        return found

    def reply(self, request: Request, completions: list[Completion]) -> Reply:
        """Return answers as a reply to their request, and count it."""
        self.answered.add(request.item)
        if any(completion.outcome == "error" for completion in completions):
            self.failed.add(request.item)
        return Reply(request, completions, share=1.0 if request.enumeration else len(completions) / request.answers)

    def failure(self, request: Request, problem: UnansweredError) -> str:
        """Return the outcome of an answer that did not come, and log an error."""
        if problem.kind == "filtered":
            return "filtered_prompt"
        log.warning("question %s: %s", request.question_id, problem)
        return "error"

    async def judge(self, problem: UnansweredError) -> None:
        """End the run where too many questions failed, in all processes that ask the service."""
        self.judge_totals(*await self._attempts.limiter.counted(len(self.answered), len(self.failed)), problem)

    def judge_totals(self, answered: int, failed: int, problem: UnansweredError) -> None:
        """End the run where too many of these questions failed."""
        if answered >= FEW and failed > self._settings.max_error_rate * answered:
            self._attempts.end(
                f"an answer to {failed} of {answered} questions failed, more than "
                f"model.max_error_rate={self._settings.max_error_rate:g}; the last: {problem}"
            )

    def _note_ends(self, answered: ServiceResponse) -> None:
        """Warn once of each word for the end of a reply that is in no dialect."""
        for word in {printable(choice.unknown_reason[:40]) for choice in answered.choices if choice.unknown_reason}:
            if word not in self.unknown_ends and len(self.unknown_ends) < FEW:
                self.unknown_ends.append(word)
                log.warning(
                    "%s ends replies with finish_reason=%r, which is not known: they are taken as whole",
                    *(self._settings.server, word),
                )
