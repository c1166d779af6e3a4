"""Profile of a model without a temperature parameter, at the model's own temperature."""

from collections.abc import Mapping
from typing import NamedTuple

from robust_eval.answer import DEFAULT_TEMPERATURE
from robust_eval.metric.profile_metric import METHODS, THINKING_METRIC
from robust_eval.metric.sampler_choice import choose_available_samplers
from robust_eval.metric.score import Metric
from robust_eval.metric.thinking_metric import ReasoningBudget
from robust_eval.model.base import Temperatures
from robust_eval.model.model_config import ModelConfig
from robust_eval.sampler.base import ORDER, REASONING, TURN, Sampler, at_temperatures
from robust_eval.sampler.thinking import Thinking

_PERTURBATIONS = {
    "rewrite": "rewording",
    "trial": "repetition",
    ORDER: "order of choices",
    TURN: "pushback",
    REASONING: "reasoning effort",
}
"""Perturbations that need no temperature, by the axes of their samplers."""
_EFFORTS = ("low", "high")


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
        return "model.reasoning_effort sets one"
    if not supported.takes_effort:
        skipped = getattr(model, "takes_temperature", None) is False
        return "model.takes_temperature=false skips its probe" if skipped else "the server accepts no reasoning_effort"
    return "" if getattr(model, "max_completion_tokens", None) else "it needs model.max_completion_tokens"
