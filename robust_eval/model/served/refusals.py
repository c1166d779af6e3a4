"""What a server cannot be asked for, said before it is asked."""

import math
from collections.abc import Sequence

from robust_eval.model.base import Request, Temperatures
from robust_eval.model.served.capabilities import Capabilities
from robust_eval.model.served.service_settings import ServiceSettings


def refusal(settings: ServiceSettings, can: Capabilities, requests: Sequence[Request]) -> str | None:
    """Say why a server that ``can`` do so much cannot answer these requests, and what would work; None
    if it can.
    """
    takes = taken_temperatures(settings, can)
    temperatures = sorted({t for request in requests for t in request.temperatures if not math.isnan(t)})
    if temperatures and (takes.own or (temperatures[0] == 0 and not takes.greedy)):
        return (
            f"model {settings.model} takes no temperature {'but its own' if takes.own else '0'}, and is asked "
            f"at {temperatures[0]:g}: sampler=repetition and sampler=perturbation ask at the model's own"
        )
    if temperatures and temperatures[-1] > takes.highest:
        within = [f"{t:g}" for t in temperatures if 0 < t <= takes.highest]
        return (
            f"{settings.server} takes temperatures up to {takes.highest:g}, and the sampler asks "
            f"at {temperatures[-1]:g}: sampler.temperatures=[{','.join(within)}] would work"
        )
    needed = max((request.least_logprobs for request in requests), default=0)
    exact = any(request.enumeration for request in requests)
    if (needed or exact) and can.tempered_logprobs:
        return (
            f"the log-probabilities of {settings.server} are those after the temperature, and "
            f"{'sampler=exact' if exact else 'metric=frs'} needs the model's own (vLLM gives them with "
            "--logprobs-mode raw_logprobs)"
        )
    if exact and not can.top_logprobs:
        return (
            f"{settings.server} gives no log-probabilities, and sampler=exact needs them: choose "
            "sampler=temperature_sweep"
        )
    if needed > can.top_logprobs and not can.whole_vocabulary:
        would = (
            f"metric.frs.k={can.top_logprobs} would work: the entropy is then that of the {can.top_logprobs} most "
            "probable tokens, as a share of the largest that so few can have"
            if can.top_logprobs > 1
            else "metric=certainty and metric=agreement need none"
        )
        return (
            f"{settings.server} gives {can.top_logprobs} log-probabilities a token, and metric.frs.k="
            f"{needed} needs {needed}: {would}"
        )
    return None


def taken_temperatures(settings: ServiceSettings, can: Capabilities) -> Temperatures:
    """Return what temperatures a server that ``can`` do so much takes, as far as the settings do not say it."""
    if settings.takes_temperature is False:
        return Temperatures(greedy=False, own=True)
    return can.temperatures(settings.highest_temperature)
