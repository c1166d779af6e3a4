"""What a request to a server holds beside the prompt."""

import math
from typing import Any

from robust_eval.model.calls import Call
from robust_eval.model.served.capabilities import Capabilities
from robust_eval.model.served.completions import seed_of
from robust_eval.model.served.service_settings import ServiceSettings


def request_body(settings: ServiceSettings, can: Capabilities, call: Call) -> dict[str, Any]:
    """Return what is sent beside the prompt."""
    request = call.request
    body = truncation(settings, can) | extra_body(settings) | {can.limit: settings.reply_tokens(request.max_new_tokens)}
    body |= settings.thought(request)
    if not math.isnan(call.temperature):
        body["temperature"] = call.temperature
    if call.temperature != 0 and can.takes_seed:
        body["seed"] = seed_of(call)
    if len(call.trials) > 1:
        body["n"] = len(call.trials)
    top = min(request.top_logprobs, can.top_logprobs)
    if top:
        chat = settings.prompt_style == "chat"
        body |= {"logprobs": True, "top_logprobs": top} if chat else {"logprobs": top}
    elif request.first_line and settings.prompt_style == "plain":
        body["stop"] = ["\n"]
    return body


def truncation(settings: ServiceSettings, can: Capabilities) -> dict[str, Any]:
    """Return the part of the distribution that is sampled, as far as the server lets it be said."""
    own = settings.generation
    if own.preset == "repository":
        return {}
    body = dict(can.truncation_off)
    for name, off in (("top_p", 1.0), ("top_k", 0), ("min_p", 0.0), ("repetition_penalty", 1.0)):
        if getattr(own, name) != off:
            body[name] = getattr(own, name)
    return body


def extra_body(settings: ServiceSettings) -> dict[str, Any]:
    """Return what the settings say that every request holds."""
    return {**(settings.extra_body or {}), **settings.thinking()}
