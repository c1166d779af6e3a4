"""Answers to one question that are drawn with the log-probabilities of their tokens, and checked by these."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from robust_eval.model.base import Completion, Request
from robust_eval.model.calls import Call, calls
from robust_eval.model.served.completions import completions
from robust_eval.model.served.exact.continuation import Ask, LogprobRequest, LogprobSettings
from robust_eval.model.served.exact.topk_tokens import TopKCoverage
from robust_eval.model.served.service import UnansweredError
from robust_eval.model.served.token_logprobs import Position
from robust_eval.runtime.finish_reasons import LENGTH

CHANGED = 0.08
"""By how much log-probabilities of one place may be further apart at one time than at another: half precision is not
exact."""
FAR_ENOUGH = 0.5
"""How far apart they have to be for that to be told."""


@dataclass(frozen=True)
class LogprobClient:
    """How the server is asked: with which ``settings``; for draws with which ``body``, with so many ``choices`` in one
    request.
    """

    ask: Ask
    settings: LogprobSettings
    body: Callable[[Call], Mapping[str, Any]]
    choices: int

    @property
    def coverage(self) -> TopKCoverage:
        return TopKCoverage(self.settings.top_logprobs, self.settings.whole_vocabulary)


@dataclass(frozen=True)
class Draw:
    """One answer that was drawn: what was said of its places, and whether the length ended it."""

    completion: Completion
    places: Sequence[Position]
    cut: bool


async def drawn(
    request: Request, trials: range, client: LogprobClient, temperatures: Sequence[float], root: Position
) -> dict[float, list[Draw]]:
    """Return answers drawn at each of these temperatures, with the numbers ``trials``; raises UnansweredError, also
    where the server says otherwise of the first place than it did.
    """
    plain = replace(
        request,
        temperatures=tuple(temperatures),
        first_trial=trials.start,
        trials=trials.stop,
        top_logprobs=client.settings.top_logprobs,
        enumeration=None,
    )
    path, asked = client.settings.asked(request.prompt)
    style = "chat" if client.settings.chat else "plain"
    found: dict[float, list[Draw]] = {}
    for call in calls(plain, client.choices):
        left = call.trials
        while left:
            part = call._replace(trials=left)
            most = len(left) * request.max_new_tokens
            body = {**client.body(part), **asked}
            answered = await client.ask.positions(LogprobRequest(client.settings, path, body, 0, most))
            came = completions(part, left, answered, style)
            for completion, places in zip(came, answered.positions, strict=False):
                _refuse_change(root, places)
                cut = completion.finish_reason == LENGTH
                found.setdefault(call.temperature, []).append(Draw(completion, places, cut))
            left = left[len(came) :]
    return found


def _refuse_change(root: Position, places: Sequence[Position]) -> None:
    """UnansweredError where the log-probabilities of the first place are others than they were: those after the
    temperature are closer together, or further apart.
    """
    if not places:
        raise UnansweredError("garbled", "the server sent no log-probabilities, and they are needed")
    before, now = ({token.name: token.logprob for token in each.largest} for each in (root, places[0]))
    both = [name for name in before if name in now and math.isfinite(before[name]) and math.isfinite(now[name])]
    if len(both) < 2:
        return
    apart = before[both[0]] - before[both[-1]]
    if apart > FAR_ENOUGH and abs((now[both[0]] - now[both[-1]]) / apart - 1) > CHANGED:
        raise UnansweredError(
            "garbled",
            "the server sent other log-probabilities of the same place than before: are they after the temperature?",
        )
