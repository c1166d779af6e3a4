"""Refusals of requests that exceed the capabilities of a server."""

import math
from collections.abc import Iterator, Sequence

from robust_eval.model.base import Request, Temperatures
from robust_eval.model.served.probe import Capabilities
from robust_eval.model.served.service_settings import ServiceSettings
from robust_eval.model.served.structured import UNSUPPORTED

REMEDY = "turn off greedy decoding and response caching on the server"


def refusal(settings: ServiceSettings, can: Capabilities, requests: Sequence[Request]) -> str | None:
    """Return the reason why a server with these capabilities cannot answer the requests, with alternatives; None if it
    can.
    """
    supported = taken_temperatures(settings, can)
    temperatures = sorted({t for request in requests for t in request.temperatures if not math.isnan(t)})
    if temperatures and (supported.default_only or (temperatures[0] == 0 and not supported.greedy)):
        fault = "ignores the temperature" if can.ignores_temperature else "accepts no temperature"
        return (
            f"model {settings.model} {fault if supported.default_only else 'does not accept temperature 0'}, but the "
            f"sampler requests {temperatures[0]:g}: choose sampler=repetition or sampler=perturbation, which leave the "
            "temperature to the model"
        )
    if temperatures and temperatures[-1] > supported.highest:
        within = [f"{t:g}" for t in temperatures if 0 < t <= supported.highest]
        return (
            f"{settings.server} accepts temperatures up to {supported.highest:g}, but the sampler requests "
            f"{temperatures[-1]:g}: set sampler.temperatures=[{','.join(within)}]"
        )
    if can.structured == UNSUPPORTED and any(request.signs for request in requests):
        return (
            f"sampler.structured=true: {settings.server} restricts replies neither by a grammar nor by "
            "response_format with a JSON schema: remove it"
        )
    if reason := _one_reply(settings, can, requests):
        return reason
    needed = max((request.min_logprobs for request in requests), default=0)  # 1: a confidence, more: metric=frs
    exact = any(request.enumeration for request in requests)
    if (needed or exact) and can.tempered_logprobs:
        return (
            f"{settings.server} returns log-probabilities scaled by the temperature, but "
            f"{'sampler=exact' if exact else 'metric=frs' if needed > 1 else 'sampler.min_confidence'} needs unscaled "
            "ones: start vLLM with --logprobs-mode raw_logprobs, or choose another server"
        )
    if exact and not can.top_logprobs:
        return (
            f"{settings.server} returns no log-probabilities, but sampler=exact needs them: choose "
            "sampler=temperature_sweep"
        )
    if needed == 1 and not can.top_logprobs:
        return (
            f"{settings.server} returns no log-probabilities, but sampler.min_confidence needs them: set "
            "sampler.min_confidence=0"
        )
    if needed > can.top_logprobs and not can.whole_vocabulary:
        alternative = (
            f"set metric.frs.k={can.top_logprobs} (the entropy of the {can.top_logprobs} most probable tokens, as a "
            "share of its maximum)"
            if can.top_logprobs > 1
            else "choose metric=certainty or metric=agreement, which need none"
        )
        return (
            f"{settings.server} returns {can.top_logprobs} log-probabilities per token, but metric.frs.k={needed} "
            f"needs {needed}: {alternative}"
        )
    return None


def taken_temperatures(settings: ServiceSettings, can: Capabilities) -> Temperatures:
    """Return the supported temperatures, by the settings or else by the capabilities."""
    if settings.takes_temperature is False:
        return Temperatures(greedy=False, default_only=True)
    return can.temperatures(settings.highest_temperature)


def _one_reply(settings: ServiceSettings, can: Capabilities, requests: Sequence[Request]) -> str | None:
    """Return the reason why a server with one reply to a prompt cannot answer the requests; None if it can."""
    draws = [(request, t) for request in requests for t in request.temperatures if t != 0]
    if not draws:
        return None
    if settings.deterministic:
        several = max(request.trials for request, _ in draws) > 1
        if several or any(len(request.temperatures) > 1 for request, _ in draws):
            return (
                "model.deterministic=true declares that all replies to a prompt are identical, but the sampler "
                f"requests several {'replies' if several else 'temperatures'}, so every fact would seem unbroken: "
                "choose experiment=multiqa, which requests one reply to each wording, or remove model.deterministic if "
                "the server samples"
            )
        return None
    if can.deterministic:
        return (
            f"{settings.server} returns the same reply for every seed: at "
            f"{'its default temperature' if can.own_temperature else f'temperature {can.highest_temperature:g}'}, the "
            "sixteen random words that the probe requests are the same every time, so every fact would seem unbroken: "
            f"{REMEDY}, or set model.deterministic=true with experiment=multiqa, which requests one reply to each "
            "prompt"
        )
    return None


def unfaithful(settings: ServiceSettings, can: Capabilities) -> Iterator[str]:
    """Yield warnings of unfaithful sampling, with the consequence, unless the settings account for it."""
    if can.ignores_temperature and settings.takes_temperature is not False:
        yield (
            f"{settings.server} ignores the temperature: its replies at 0 and {can.highest_temperature:g} are "
            "identical. Requests leave the temperature to the model (set model.takes_temperature=false to confirm "
            "this), which sampler=repetition and sampler=perturbation support; a sweep needs a server that applies it"
        )
    if can.capped and not (settings.highest_temperature or math.inf) <= can.highest_temperature:
        yield (
            f"{settings.server} silently caps temperatures at {can.highest_temperature:g}: its replies at higher ones "
            f"are the same. No request exceeds that (set model.highest_temperature={can.highest_temperature:g} to "
            "confirm this)"
        )
    if can.copies:
        yield (
            f"{settings.server} answers a request for several replies (n) with copies of one: the run sends one "
            "request for each reply"
        )
