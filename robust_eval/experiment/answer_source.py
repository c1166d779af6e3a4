"""Answer source of a run: samplers with a model, or a file."""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pyarrow as pa

from robust_eval.answer import (
    DEFAULT_TEMPERATURE,
    SCHEMA,
    Answers,
    EarlyStopping,
    most_frequent,
)
from robust_eval.config.config import Config
from robust_eval.dataset.jsonl import JsonLines
from robust_eval.error import UserError
from robust_eval.experiment.early_stopping import (
    early_stopping_rules,
    refuse_early_stopping,
)
from robust_eval.grader.reply_grader import ReplyGrader
from robust_eval.metric.profile_metric import FRS_METRIC, METHODS, THINKING_METRIC, joins
from robust_eval.metric.sampler_choice import choose_available_samplers, choose_samplers
from robust_eval.metric.score import Metric
from robust_eval.metric.thinking_metric import ReasoningBudget
from robust_eval.model.base import ALL, Request, Temperatures
from robust_eval.model.model_config import ModelConfig
from robust_eval.prompt.prompt import refuse_exemplars
from robust_eval.question import Question
from robust_eval.sampler.base import (
    ORDER,
    REASONING,
    TURN,
    Conditions,
    Sampler,
    at_temperatures,
    clip_to_supported,
    highest_temperature,
)
from robust_eval.sampler.recorded_answers import RecordedAnswers
from robust_eval.sampler.steps import Steps, plan_steps, run_steps
from robust_eval.sampler.thinking import Thinking
from robust_eval.store.stored_model import AdaptiveAnswers, StoredModel

log = logging.getLogger(__name__)


UNANSWERABLE_STAGE = "answers to unanswerable questions"
"""Name of these answers in progress bars, logs and plans."""
RELIABILITY = "reliability"
"""Name of the metric with which a profile asks them."""
PLURALITY_DRAWS = 5
"""Number of draws whose most frequent answer replaces the greedy one of a model without temperature 0."""

_PERTURBATIONS = {
    "rewrite": "rewording",
    "trial": "repetition",
    ORDER: "order of choices",
    TURN: "pushback",
    REASONING: "reasoning effort",
}
"""Perturbations that need no temperature, by the axes of their samplers."""
_EFFORTS = ("low", "high")


class UnanswerableQuestions(NamedTuple):
    """Unanswerable questions of a run, and the name of the sampler that asks them."""

    sampler: str
    questions: Sequence[Question]


@dataclass(frozen=True)
class SampledSource:
    """Source of sampled answers. All samplers ask the same questions, so that their metrics can be joined by question.

    The first sampler has the settings of the greedy answers, which all samplers share. For a model without temperature
    0 the most frequent of several answers replaces the greedy one if a selection or a metric needs it; otherwise there
    is none.
    """

    samplers: Mapping[str, Sampler]
    model: StoredModel
    reply_grader: ReplyGrader
    seed: int
    top_logprobs: int
    """Minimum number of top log-probabilities per greedy token."""
    supported_temperatures: Temperatures = ALL
    """Temperatures that the model supports."""
    early_stopping: Mapping[str, EarlyStopping] = field(default_factory=dict)
    """Early-stopping rule of each sampler that has one."""
    only_selecting: Mapping[str, Sampler] = field(default_factory=dict)
    """Samplers that select questions and ask nothing else: those of temperatures, for a model without."""
    profile_sentence: str = ""
    """Sentence on what a profile leaves out because the model lacks it; empty in any other run."""
    unanswerable: UnanswerableQuestions | None = None
    """Questions that a profile asks besides its facts; None in any other run."""

    @property
    def at_own_temperature(self) -> bool:
        """True for a profile at the model's own temperature."""
        return bool(self.only_selecting)

    @property
    def selects_by_baseline(self) -> bool:
        """True if the source selects some questions by their baseline answers."""
        return any(sampler.selects_by_baseline for sampler in self._selecting)

    @property
    def votes_on_baseline(self) -> bool:
        """True if a selection or a metric needs baseline answers of a model without temperature 0."""
        return not self.supported_temperatures.greedy and (self.selects_by_baseline or self.top_logprobs > 0)

    @property
    def max_questions(self) -> int | None:
        """Maximum number of questions that the source selects, the smallest of its samplers; None without a limit."""
        return min((each.max_questions for each in self._selecting if each.max_questions is not None), default=None)

    @property
    def baseline_name(self) -> str:
        """Name of the source's baseline answers in log messages: "greedy" or "most frequent"."""
        return "greedy" if self.supported_temperatures.greedy else "most frequent"

    def conditions(self) -> Mapping[str, Conditions]:
        """Return the conditions of each sampler of the source: the sampler itself."""
        return self.samplers

    def check_questions(self, questions: Sequence[Question]) -> None:
        """Raise UserError for a question, or a rewrite, that is an exemplar of the prompt of the source."""
        refuse_exemplars(questions, self._first.prompts)

    def usable_questions(self, questions: Sequence[Question]) -> list[Question]:
        """Return all questions, once they are checked: the source can use each."""
        self.check_questions(questions)
        return list(questions)

    def candidates(self, questions: Sequence[Question]) -> list[Question]:
        """Return the questions that every sampler can ask; with other samplers, one of choice orders excludes none."""
        chosen = list(questions)
        deciding = [sampler for sampler in self._selecting if sampler.axis != ORDER]
        for sampler in deciding or self._selecting:
            chosen = sampler.candidates(chosen)
        return chosen

    def baseline(self, questions: Sequence[Question]) -> pa.Table:
        """Return the baseline answers, once each sampler could make its requests: mistakes are found before."""
        for name in self.samplers:
            self.requests(name, questions)  # raises UserError for a setting or a question that does not fit
        requests = self.baseline_requests(questions)
        if not requests:
            return SCHEMA.empty_table()
        table = self.model.answers(requests, f"{self.baseline_name} answers").table
        if self.supported_temperatures.greedy:
            return table
        return table.take(most_frequent(self.reply_grader.grade(questions, table)))

    def baseline_requests(self, questions: Sequence[Question]) -> list[Request]:
        """Return the source's requests for baseline answers: at temperature 0, or the draws of a plurality vote."""
        sampler = self._first
        min_logprobs = self.top_logprobs or int(any(each.min_confidence for each in self._selecting))
        requests = [
            sampler.baseline_request(question, self.reply_grader, self.seed, min_logprobs) for question in questions
        ]
        if self.supported_temperatures.greedy:
            return requests
        if not self.votes_on_baseline:
            return []
        draws: dict[str, Any] = {"temperatures": (sampler.temperatures[0],), "trials": PLURALITY_DRAWS}
        if self.supported_temperatures.default_only and not min_logprobs:
            draws["top_logprobs"] = 0  # as the trials of all samplers, which share these draws in the store
        return [replace(request, **draws) for request in requests]

    def requests(self, sampler: str, questions: Sequence[Question]) -> list[Request]:
        """Return the requests of one of the source's samplers for the selected questions."""
        requests = self.samplers[sampler].requests(questions, self.reply_grader, self.seed)
        if not isinstance(requests, list) or not all(isinstance(each, Request) for each in requests):
            raise UserError(f"sampler={sampler}: requests() must return a list of Request, not {requests!r:.60}")
        return requests

    def select(self, questions: Sequence[Question], baseline: pa.Table) -> list[Question]:
        """Select the questions that every sampler of the source keeps."""
        chosen = list(questions)
        for sampler in self._selecting:
            chosen = sampler.select(chosen, baseline, self.seed)
        return chosen

    def answers(self, questions: Sequence[Question], baseline: pa.Table) -> dict[str, Answers]:
        """Sample the answers of the source's samplers one after the other, without those that have no requests."""
        answers = {}
        for name in self.samplers:
            stage, planned = self.stage(name), sum(request.max_answers for request in self.requests(name, questions))
            if not planned:
                continue
            answers[name] = run_steps(self.model, self._steps(name, questions, baseline), stage)
            if name in self.early_stopping:
                requested = answers[name].table.num_rows
                log.info(
                    "%s: %d of %d answers were enough to determine all breaking temperatures", stage, requested, planned
                )
        return answers

    def answers_to_unanswerable(self) -> Answers:
        """Return the source's answers to the :attr:`unanswerable` questions."""
        assert self.unanswerable is not None
        sampler, questions = self.unanswerable
        return run_steps(self.model, self._steps(sampler, questions, None), UNANSWERABLE_STAGE)

    def missing(
        self, sampler: str, questions: Sequence[Question], baseline: pa.Table | None
    ) -> tuple[list[Request], Answers | None]:
        """Return the missing requests of a sampler to a cache-only model, and its answers if none is missing."""
        return plan_steps(self.model, self._steps(sampler, questions, baseline))

    def _steps(self, sampler: str, questions: Sequence[Question], baseline: pa.Table | None) -> Steps | AdaptiveAnswers:
        chosen, rule = self.samplers[sampler], self.early_stopping.get(sampler)
        if rule is None:
            return chosen.steps(questions, baseline, self.reply_grader, self.seed)

        def verdicts(table: pa.Table) -> list[bool | None]:
            """Grade answers; None for a missing reply, or a question without an accepted answer."""
            graded: list[bool | None] = self.reply_grader.grade(questions, table)["correct"].to_pylist()
            return graded

        return chosen.early_stopping_answers(questions, self.reply_grader, self.seed, rule.threshold, verdicts)

    def stage(self, sampler: str) -> str:
        """Return the name of a sampler's answers in progress bars and logs."""
        return "sampled answers" if len(self.samplers) == 1 else f"sampled answers ({sampler})"

    def description(self) -> dict[str, Any]:
        """Return the source's metadata: supported temperatures, if not all, and the gaps of a profile, if any."""
        supported = self.supported_temperatures
        metadata = {"loaded.profile": self.profile_sentence} if self.profile_sentence else {}
        if supported.default_only:
            return metadata | {"loaded.temperatures": "the model's own"}
        if not math.isinf(supported.highest):
            metadata["loaded.temperatures"] = f"up to {supported.highest:g}"
        if not supported.greedy:
            metadata["loaded.greedy"] = (
                f"the most frequent of {PLURALITY_DRAWS} answers at {self._first.temperatures[0]:g}"
            )
        return metadata

    @property
    def _first(self) -> Sampler:
        return next(iter(self.samplers.values()))

    @property
    def _selecting(self) -> list[Sampler]:
        return [*self.only_selecting.values(), *self.samplers.values()]


AnswerSource = SampledSource | RecordedAnswers
"""Source of a run's answers. Of the usable questions, the candidates have baseline answers; by these, questions are
selected, and each sampler has answers to the selected ones.
"""


def answer_source(
    config: Config, model: StoredModel, reply_grader: ReplyGrader
) -> tuple[AnswerSource, Mapping[str, Metric]]:
    """Return the source of a run's answers, a file of recorded ones or samplers with the model, and the metrics that
    score them: those of the configuration, or those of a profile at the model's own temperature.
    """
    metrics: Mapping[str, Metric] = config.metric
    if config.left_out:
        reasons = ", ".join(f"{path.replace('.', '=')} ({reason})" for path, reason in config.left_out.items())
        log.info("the profile leaves out %s", reasons)
    if config.recorded is not None:
        refuse_early_stopping(config.recorded, metrics)
        return config.recorded, metrics
    name = model.config.name
    samplers = {key: each.of_model(key, model.config.remote, name) for key, each in config.sampler.items()}
    supported = model.temperatures(highest_temperature(samplers.values()))
    own = own_temperature_profile(samplers, metrics, model.config, supported)
    if own is None:
        samplers = {key: clip_to_supported(key, each, supported, name) for key, each in samplers.items()}
    else:
        samplers, metrics = own.samplers, own.metrics
    top_logprobs, sentence = max(each.top_logprobs for each in metrics.values()), own.sentence if own else ""
    if top_logprobs and not supported.has_logprobs and joins(choose_samplers(metrics, samplers)):
        top_logprobs = max(each.top_logprobs for key, each in metrics.items() if key != FRS_METRIC)
        sentence = (
            f"{name} returns no log-probabilities: the profile has breaking temperatures, but leaves out FRS and the "
            "initial entropy, which need them."
        )
    if sentence:
        log.warning(sentence)
    source = SampledSource(
        samplers,
        model,
        reply_grader,
        config.seed,
        top_logprobs=top_logprobs,
        supported_temperatures=supported,
        early_stopping=early_stopping_rules(samplers, metrics, reply_grader.grader.uses_judge),
        only_selecting=own.only_selecting if own else {},
        profile_sentence=sentence,
    )
    if own is not None or joins(choose_samplers(metrics, samplers)):
        source = replace(source, unanswerable=_unanswerable(source, metrics))
    if source.votes_on_baseline:
        log.warning(
            "%s does not accept temperature 0: the most frequent of %d answers replaces the greedy one",
            *(name, PLURALITY_DRAWS),
        )
    return source, metrics


def _unanswerable(source: SampledSource, metrics: Mapping[str, Metric]) -> UnanswerableQuestions | None:
    """Return the built-in unanswerable questions, for the sampler whose answers the reliability reads; None without
    that metric, and if the prompts or the form of the replies fit questions with choices alone.
    """
    if RELIABILITY not in metrics:
        return None
    sampler = choose_samplers({RELIABILITY: metrics[RELIABILITY]}, source.samplers)[RELIABILITY]
    questions = JsonLines(name="unanswerable", path="builtin:unanswerable.jsonl").load()
    try:
        source.requests(sampler, questions)
    except UserError as problem:
        log.info("the profile leaves out questions without an answer: %s", problem)
        return None
    return UnanswerableQuestions(sampler, questions)


class OwnTemperatureProfile(NamedTuple):
    """Profile at a model's own temperature: its samplers and metrics, the samplers of temperatures, which only select
    facts before the others, and a sentence on the choice.
    """

    samplers: dict[str, Sampler]
    metrics: dict[str, Metric]
    only_selecting: dict[str, Sampler]
    sentence: str


def own_temperature_profile(
    samplers: Mapping[str, Sampler], metrics: Mapping[str, Metric], model: ModelConfig, supported: Temperatures
) -> OwnTemperatureProfile | None:
    """Return the profile of a model without a temperature parameter: all perturbations that the model allows. Its
    samplers at several temperatures only select facts.

    None for another model, for metrics that are no profile, and if no perturbation is left.
    """
    swept = {key for key, sampler in samplers.items() if sampler.axis == "temperature"}
    if not (supported.default_only and swept and metrics.keys() >= {*METHODS}):
        return None
    chosen, missing = {**metrics}, {"temperature": "it needs several"}
    at_default = {key: at_temperatures(sampler, [DEFAULT_TEMPERATURE]) for key, sampler in samplers.items()}
    if not any(sampler.axis == REASONING for sampler in samplers.values()):
        if reason := _without_effort(model, supported):
            missing[_PERTURBATIONS[REASONING]] = reason
        else:
            thinking = Thinking(budgets=[*_EFFORTS], prompts=next(iter(at_default.values())).prompts)
            at_default[THINKING_METRIC] = at_temperatures(
                thinking.of_model(THINKING_METRIC, True, model.name), [DEFAULT_TEMPERATURE]
            )
            chosen[THINKING_METRIC] = ReasoningBudget()
    perturbing = {key: sampler for key, sampler in at_default.items() if key not in swept}
    if not perturbing:
        return None
    if not any(sampler.axis == TURN for sampler in perturbing.values()) and not model.service_limits().chat:
        missing[_PERTURBATIONS[TURN]] = "it needs model.prompt_style=chat"
    names = dict.fromkeys(_PERTURBATIONS[each.axis] for each in perturbing.values() if each.axis in _PERTURBATIONS)
    return OwnTemperatureProfile(
        perturbing,
        {name: chosen[name] for name in choose_available_samplers(chosen, perturbing)},
        {key: at_default[key] for key in at_default if key in swept},
        f"{model.name} accepts no temperature: the profile uses {', '.join(names)}, at the model's own temperature, "
        f"and leaves out {', '.join(f'{name} ({reason})' for name, reason in missing.items())}.",
    )


def _without_effort(model: ModelConfig, supported: Temperatures) -> str:
    """Return the reason why a model at its own temperature cannot compare reasoning efforts; empty if it can."""
    if getattr(model, "reasoning_effort", None) is not None:
        return "model.reasoning_effort already sets the effort"
    if not supported.takes_effort:
        skipped = getattr(model, "takes_temperature", None) is False
        return "model.takes_temperature=false skips its probe" if skipped else "the server accepts no reasoning_effort"
    return "" if getattr(model, "max_completion_tokens", None) else "it needs model.max_completion_tokens"
