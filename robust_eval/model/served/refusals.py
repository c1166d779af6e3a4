"""Refusals of requests that exceed the capabilities of a server."""

import math
from collections.abc import Iterator, Sequence

from robust_eval.model.base import Request, Temperatures
from robust_eval.model.served.probe import Capabilities
from robust_eval.model.served.service_settings import ServiceSettings

REMEDY = "Turn off greedy decoding and the cache of replies at the server"


def refusal(settings: ServiceSettings, can: Capabilities, requests: Sequence[Request]) -> str | None:
    """Return the reason why a server with these capabilities cannot answer the requests, with alternatives; None if it
    can.
    """
    supported = taken_temperatures(settings, can)
    temperatures = sorted({t for request in requests for t in request.temperatures if not math.isnan(t)})
    if temperatures and (supported.default_only or (temperatures[0] == 0 and not supported.greedy)):
        fault = "ignores the temperature" if can.ignores_temperature else "takes no temperature but its own"
        return (
            f"model {settings.model} {fault if supported.default_only else 'takes no temperature 0'}, and is asked "
            f"at {temperatures[0]:g}: sampler=repetition and sampler=perturbation ask at the model's own"
        )
    if temperatures and temperatures[-1] > supported.highest:
        within = [f"{t:g}" for t in temperatures if 0 < t <= supported.highest]
        return (
            f"{settings.server} takes temperatures up to {supported.highest:g}, and the sampler asks "
            f"at {temperatures[-1]:g}: sampler.temperatures=[{','.join(within)}] would work"
        )
    if reason := _one_reply(settings, can, requests):
        return reason
    needed = max((request.min_logprobs for request in requests), default=0)
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
        alternative = (
            f"metric.frs.k={can.top_logprobs} would work: the entropy is then that of the {can.top_logprobs} most "
            "probable tokens, as a share of the largest that so few can have"
            if can.top_logprobs > 1
            else "metric=certainty and metric=agreement need none"
        )
        return (
            f"{settings.server} gives {can.top_logprobs} log-probabilities a token, and metric.frs.k="
            f"{needed} needs {needed}: {alternative}"
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
        several = max(request.trials - request.first_trial for request, _ in draws) > 1
        if several or any(len(request.temperatures) > 1 for request, _ in draws):
            return (
                "model.deterministic=true says that all replies to a prompt are the same, and the sampler asks "
                f"{'several times' if several else 'at several temperatures'}: a sweep or repetition would find every "
                "answer unbroken. experiment=multiqa asks each wording once; leave model.deterministic out where the "
                "server draws"
            )
        return None
    if can.deterministic:
        return (
            f"{settings.server} gives the same reply whatever the seed: asked for sixteen random words at "
            f"{'its own temperature' if can.own_temperature else f'temperature {can.highest_temperature:g}'}, it said "
            f"the same each time, and every fact would seem unbroken. {REMEDY}, or set model.deterministic=true, which "
            "asks each prompt once (experiment=multiqa)"
        )
    return None


def unfaithful(settings: ServiceSettings, can: Capabilities) -> Iterator[str]:
    """Yield warnings of unfaithful sampling, and its consequence, unless the settings account for it."""
    if can.ignores_temperature and settings.takes_temperature is not False:
        yield (
            f"{settings.server} ignores the temperature: its replies at 0 are those at {can.highest_temperature:g}. It "
            "is asked at its own (model.takes_temperature=false says so), at which sampler=repetition and "
            "sampler=perturbation ask; a sweep needs a server that heeds the temperature"
        )
    if can.capped and not (settings.highest_temperature or math.inf) <= can.highest_temperature:
        yield (
            f"{settings.server} silently caps higher temperatures at {can.highest_temperature:g}: its replies at "
            f"both are the same. It is asked for none above {can.highest_temperature:g} "
            f"(model.highest_temperature={can.highest_temperature:g} says so)"
        )
    if can.copies:
        yield (
            f"{settings.server} answers a request for several replies (n) with copies of one: it is asked for one at a "
            "time, which takes more requests"
        )


def repeats_itself(settings: ServiceSettings, temperature: float) -> str:
    """Return the message that replies are equal too often for draws, with alternatives."""
    return (
        f"{settings.server} repeats itself: its replies at temperature {temperature:g} are equal so often that, by the "
        "log-probabilities that it gives with them, draws would be in less than one of a billion runs. "
        f"{REMEDY}, and ask into another store (store.folder=…), because this one has its replies"
    )


def draws_otherwise(settings: ServiceSettings, temperature: float, drawn_at: float) -> str:
    """Return the message that replies are drawn as if at another temperature, with alternatives."""
    return (
        f"{settings.server} draws at temperature {temperature:g} as if at about {drawn_at:g}, by the log-probabilities "
        "that it gives: it caps or ignores the temperature, or silently truncates the distribution. "
        + (
            f"model.highest_temperature={drawn_at:g} asks for none above that"
            if drawn_at < temperature
            else "model.takes_temperature=false asks at its own"
        )
    )
