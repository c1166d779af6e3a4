"""What a sampler can ask of a model that does not take every temperature."""

import logging
import math
from copy import copy

from robust_eval.answer import OWN
from robust_eval.error import UserError
from robust_eval.model.base import Temperatures
from robust_eval.sampler.base import Sampler

log = logging.getLogger(__name__)


def possible(name: str, sampler: Sampler, takes: Temperatures, model: str) -> Sampler:
    """Return the sampler as far as a model that ``takes`` these temperatures can be asked; log what falls away.

    One temperature of the model's own takes the place of any number of them. Temperatures above the highest are left
    out: a fact that has not broken by then is censored there. Raises UserError where nothing is left.
    """
    asked = sampler.temperatures
    if takes.default_only:
        if sampler.axis == "temperature":
            raise UserError(
                f"sampler={name} asks at several temperatures, and {model} takes none but its own: without them no "
                "fact can be seen to break, and there is no FRS. experiment=certainty (each question again and again) "
                "and experiment=multiqa (each in other words) ask at the model's own temperature"
            )
        log.warning(
            "sampler=%s asks at the temperature of %s's own: it takes none, such as the %s that is set",
            *(name, model, ", ".join(f"{t:g}" for t in asked)),
        )
        return _at(sampler, [OWN])
    within = [t for t in asked if t <= takes.highest]
    if len(within) == len(asked):
        return sampler
    beyond = ", ".join(f"{t:g}" for t in asked if t > takes.highest)
    if not within:
        raise UserError(
            f"sampler={name} asks at {beyond}, and {model} takes temperatures up to {takes.highest:g}: "
            f"sampler.{name}.temperatures=[{takes.highest:g}] would work"
        )
    censored = "; a fact that is unbroken at the last is censored there" if sampler.axis == "temperature" else ""
    log.warning(
        "%s takes temperatures up to %g: sampler=%s leaves out %s%s", *(model, takes.highest, name, beyond, censored)
    )
    return _at(sampler, within)


def highest(samplers: list[Sampler]) -> float:
    """Return the highest temperature at which any of the samplers asks."""
    return max((t for sampler in samplers for t in sampler.temperatures if not math.isnan(t)), default=1.0)


def _at(sampler: Sampler, temperatures: list[float]) -> Sampler:
    """Return the same sampler with other temperatures. Its own check of them is for those that a person sets."""
    other = copy(sampler)
    other.temperatures = temperatures  # type: ignore[misc]
    return other
