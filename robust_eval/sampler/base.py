"""Base of samplers, the conditions of their answers, and the requests for greedy answers."""

import logging
import math
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from numbers import Real
from typing import Protocol, Self

import pyarrow as pa
import pyarrow.compute as pc

from robust_eval.answer import DEFAULT_TEMPERATURE
from robust_eval.error import UserError
from robust_eval.model.base import LetterChoices, Matcher, Request, Temperatures
from robust_eval.prompt.arrangement import Arrangement, shown_signs
from robust_eval.prompt.prompt import prompt_for
from robust_eval.question import Question
from robust_eval.sampler.steps import Steps, VerdictsOf, single_step
from robust_eval.store.stored_model import AdaptiveAnswers

log = logging.getLogger(__name__)


class NothingKeptError(UserError):
    """No question can be asked, or none is selected. The run continues with the next block of questions; after the last
    block it ends with this error.
    """


ORDER = "order"
"""Axis of choices in another order or form."""
TURN = "turn"
"""Axis of a conversation's turns."""
REASONING = "reasoning"
"""Axis of the reasoning before an answer."""
ROTATED, PERMUTED, FORMED, CHALLENGED, REASONED = 1000, 2000, 3000, 4000, 5000
"""First variants (:class:`Request`) with choices in other orders and forms, after pushback, and with reasoning. They do
not depend on settings, so that other settings keep the stored answers."""
STEP = 10_000
"""Distance of the variants of two conversations, and of two lengths of reasoning."""
TOP_LOGPROBS = 20
"""Minimum number of log-probabilities of each greedy token, so that another k needs no new request."""


def checked_temperatures(temperatures: Sequence[float]) -> list[float]:
    """Return a sampler's temperatures, ascending; ValueError for an empty list, a value not above 0, or a duplicate."""
    if not temperatures:
        raise ValueError("temperatures must contain at least one temperature")
    if other := [t for t in temperatures if not isinstance(t, Real)]:
        raise ValueError(f"temperatures must be numbers, not {other[0]}")
    if bad := [t for t in temperatures if not 0 < t < math.inf]:
        raise ValueError(
            f"temperatures must all be finite and above 0 (each run adds the greedy answer), not {bad[0]:g}"
        )
    if len(set(temperatures)) < len(temperatures):
        raise ValueError(f"temperatures must be distinct, not {list(temperatures)}")
    return sorted(temperatures)


def ordered_answers(questions: Sequence[Question], answers: pa.Table) -> pa.Table:
    """Return the answers to these questions, in the order of the questions, then by rewrite, temperature and trial."""
    ids = pa.array([question.id for question in questions], pa.string())
    indices = pc.index_in(answers["question_id"], value_set=ids)
    keys = pa.table({"question": indices, **{name: answers[name] for name in ("rewrite", "temperature", "trial")}})
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])
    return answers.take(order[: len(indices) - indices.null_count])  # nulls, of other questions, come last


class PrefixGrader(Protocol):
    """Part of a grader that a sampler needs: the rules for prefixes of answers, by which answers end early or are
    enumerated.

    >>> from robust_eval.grader.matching import Matching
    >>> Matching().matcher(Question("1", "What is the capital of Italy?", ("Rome",))).right("Rome")
    True
    """

    @property
    def first_line(self) -> bool:
        """True if the answers to be graded end with the first line of a reply."""

    def matcher(self, question: Question) -> Matcher | None:
        """Return the grader's matcher of right answers to a question; None where only whole replies can be graded."""

    def choices(self, question: Question) -> LetterChoices | None:
        """Return the grader's choices of a multiple-choice question; None for other questions."""


def prefix_grader_settings(grader: PrefixGrader) -> str:
    """Return, for a sampler's error message, the settings that can grade prefixes of answers."""
    return "grader=matching with grader.contains=word" + ("" if grader.first_line else " and reader=first_line")


class Conditions(Protocol):
    """Protocol of the conditions under which each question has answers, sampled here or recorded elsewhere."""

    axis: str
    """Condition that varies: temperature | rewrite | trial | order | turn | reasoning."""
    temperatures: list[float]
    """Sampling temperatures, ascending, all above 0."""

    @property
    def repetitions(self) -> float:
        """Number of a sampler's answers to each question at each temperature; inf for enumerated answers."""
        raise NotImplementedError

    @property
    def estimator(self) -> str:
        """Estimator of the accuracy from a sampler's answers: trials | exact."""
        return "trials"

    @property
    def arranges_choices(self) -> bool:
        """True if the sampler puts choices in several orders or forms."""
        return False


class Sampler(Conditions):
    """Base of all samplers: a dataclass whose fields are its configuration.

    Greedy answers decide which questions are selected; a run of several samplers asks for them with the settings of the
    first. By default no question is left out, and all requests are sent at once. A subclass defines ``axis``,
    ``repetitions``, ``requests``, and the settings ``temperatures``, ``prompts`` and ``max_new_tokens``.

    >>> from robust_eval import Repetition
    >>> class Sweep(Repetition):
    ...     axis = "temperature"
    >>> Sweep(temperatures=[1.0, 0.5]).temperatures
    [0.5, 1.0]
    """

    prompts: str
    """File of prompt templates."""
    max_new_tokens: int
    """Length limit of an answer, in tokens."""
    max_questions: int | None = None
    """Maximum number of selected questions; None without a limit."""
    early_stop = False
    """True with early stopping: no trial is asked that cannot change a breaking temperature."""
    min_confidence = 0.0
    """Minimum mean token probability of the greedy answer to a selected question."""
    structured = False
    """True if a server restricts replies to the signs of the choices."""
    turns = 0
    """Number of pushbacks in a conversation."""
    pushbacks: Sequence[str] = ()
    """Kinds of pushback."""
    budgets: Sequence[int | str] = ()
    """Reasoning budgets."""

    @property
    def selects_by_baseline(self) -> bool:
        """True if the sampler's :meth:`select` depends on the greedy answers."""
        return False

    def candidates(self, questions: Sequence[Question]) -> list[Question]:
        """Return the questions that the sampler may select, before any is answered; NothingKeptError for none."""
        return list(questions)

    def select(self, questions: Sequence[Question], baseline: pa.Table, seed: int) -> list[Question]:
        """Return the questions that the sampler selects, given the graded greedy answers (``baseline``);
        NothingKeptError for none.
        """
        return list(questions)

    def requests(self, questions: Sequence[Question], grader: PrefixGrader, seed: int) -> list[Request]:
        """Return the sampler's requests for answers to selected questions; the maximum, if some depend on answers."""
        raise NotImplementedError

    def request(
        self, question: Question, grader: PrefixGrader, seed: int, trials: int = 1, rewrite: int = 0
    ) -> Request:
        """Return the sampler's request for ``trials`` answers to one wording of a question at every temperature."""
        return Request(
            question_id=question.id,
            variant=rewrite,
            prompt=prompt_for(question, rewrite, self.prompts),
            temperatures=tuple(self.temperatures),
            trials=trials,
            max_new_tokens=self.max_new_tokens,
            seed=seed,
            first_line=grader.first_line,
            signs=self.signs(question),
        )

    def signs(self, question: Question, arrangement: Arrangement | None = None) -> tuple[str, ...]:
        """Return the signs of the choices, as in the prompt, if replies are restricted to one of them; otherwise none.
        Raises UserError for a question without choices.
        """
        if not self.structured:
            return ()
        if not question.choices:
            raise UserError(
                f"sampler.structured=true restricts replies to the letters of choices, but question {question.id} has "
                "none: remove it, or choose a data set in which every question has choices, such as dataset=physics"
            )
        return shown_signs(len(question.choices), arrangement)

    def steps(self, questions: Sequence[Question], baseline: pa.Table | None, grader: PrefixGrader, seed: int) -> Steps:
        """Return the sampler's steps of requests for selected questions, given greedy answers (None: only a plan)."""
        return single_step(self.requests(questions, grader, seed))

    def baseline_request(self, question: Question, grader: PrefixGrader, seed: int, min_logprobs: int) -> Request:
        """Return the sampler's request for a question's greedy answer, with the largest log-probabilities of tokens."""
        request = self.request(question, grader, seed)
        top_logprobs = max(min_logprobs, TOP_LOGPROBS)
        return replace(request, temperatures=(0.0,), top_logprobs=top_logprobs, min_logprobs=min_logprobs)

    def of_model(self, name: str, remote: bool, model: str) -> Self:
        """Return the sampler, called ``name`` in messages, for a model; UserError if the model does not support it."""
        if self.structured and not remote:
            raise UserError(
                f"sampler.{name}.structured=true applies only to servers, but model {model} is local: choose "
                "sampler=exact, which computes the probabilities of its letters"
            )
        return self

    def full_sampling_reasons(self) -> list[str]:
        """Return the reasons why the sampler's settings rule out early stopping; none if it can stop early."""
        return ["it has no breaking temperatures"]

    def early_stopping_answers(
        self, questions: Sequence[Question], grader: PrefixGrader, seed: int, threshold: float, verdicts: VerdictsOf
    ) -> AdaptiveAnswers:
        """Return a sampler's answers to each question until its accuracy is certainly above or below the threshold."""
        raise NotImplementedError


def clip_to_supported(name: str, sampler: Sampler, supported: Temperatures, model: str) -> Sampler:
    """Return the sampler with the temperatures that a model supports; log those that are left out.

    A model without a temperature parameter answers at its own temperature. A fact that is unbroken at the cap is
    censored there. Raises UserError if nothing is left.
    """
    temperatures = sampler.temperatures
    if supported.default_only:
        if sampler.axis == "temperature":
            raise UserError(
                f"sampler={name} needs several temperatures, but {model} has only its own, so breaking temperatures "
                "and FRS cannot be measured: choose experiment=certainty (repeated answers), experiment=multiqa "
                "(several wordings), or experiment=profile (every perturbation that the model allows)"
            )
        log.warning(
            "%s has no temperature parameter: sampler=%s ignores the temperatures %s and uses the model's own "
            "temperature",
            *(model, name, ", ".join(f"{t:g}" for t in temperatures)),
        )
        return at_temperatures(sampler, [DEFAULT_TEMPERATURE])
    within = [t for t in temperatures if t <= supported.highest]
    if len(within) == len(temperatures):
        return sampler
    beyond = ", ".join(f"{t:g}" for t in temperatures if t > supported.highest)
    if not within:
        raise UserError(
            f"sampler.{name}.temperatures={beyond} exceeds the limit of {model}, {supported.highest:g}: set "
            f"sampler.{name}.temperatures=[{supported.highest:g}]"
        )
    censored = "; a fact that is unbroken at the limit is censored there" if sampler.axis == "temperature" else ""
    log.warning(
        "%s supports temperatures up to %g: sampler=%s leaves out %s%s",
        *(model, supported.highest, name, beyond, censored),
    )
    return at_temperatures(sampler, within)


def highest_temperature(samplers: Iterable[Sampler]) -> float:
    """Return the highest temperature at which any of the samplers asks."""
    return max((t for sampler in samplers for t in sampler.temperatures if not math.isnan(t)), default=1.0)


def at_temperatures(sampler: Sampler, temperatures: list[float]) -> Sampler:
    """Return the sampler with other temperatures, which its check of settings might refuse."""
    other = copy(sampler)
    other.temperatures = temperatures
    return other
