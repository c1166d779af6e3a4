"""Answers to one question that are drawn with the log-probabilities of their tokens, and checked by these."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from robust_eval.model.base import Completion, Request
from robust_eval.model.calls import Call, calls
from robust_eval.model.served.completions import completions
from robust_eval.model.served.continuation import Ask, Sending, Settings
from robust_eval.model.served.seen_tokens import Position
from robust_eval.model.served.seen_vocabulary import SeenVocabulary
from robust_eval.model.served.service import UnansweredError
from robust_eval.runtime.finish_reasons import LENGTH

CHANGED = 0.08
"""By how much log-probabilities of one place may be further apart at one time than at another: half precision is not
exact."""
FAR_ENOUGH = 0.5
"""How far apart they have to be for that to be told."""


@dataclass(frozen=True)
class Asking:
    """How the server is asked: with which ``settings``; for draws with which ``body``, with so many ``choices`` in one
    request.
    """

    ask: Ask
    settings: Settings
    body: Callable[[Call], Mapping[str, Any]]
    choices: int

    @property
    def vocabulary(self) -> SeenVocabulary:
        return SeenVocabulary(self.settings.top_logprobs, self.settings.whole_vocabulary)


@dataclass(frozen=True)
class Draw:
    """One answer that was drawn: what was said of its places, and whether the length ended it."""

    completion: Completion
    places: Sequence[Position]
    cut: bool


async def drawn(
    request: Request, trials: range, asking: Asking, temperatures: Sequence[float], root: Position | None
) -> dict[float, list[Draw]]:
    """Return answers drawn at each of these temperatures, with the numbers ``trials``; raises UnansweredError, also
    where the server says otherwise of the first place than it did.
    """
    plain = replace(
        request,
        temperatures=tuple(temperatures),
        first_trial=trials.start,
        trials=trials.stop,
        top_logprobs=asking.settings.top_logprobs,
        enumeration=None,
    )
    path, asked = asking.settings.asked(request.prompt)
    style = "chat" if asking.settings.chat else "plain"
    found: dict[float, list[Draw]] = {}
    for call in calls(plain, asking.choices):
        left = call.trials
        while left:
            part = call._replace(trials=left)
            most = len(left) * request.max_new_tokens
            body = {**asking.body(part), **asked}
            answered = await asking.ask.seen(Sending(asking.settings, path, body, 0, most))
            came = completions(part, left, answered, style)
            for completion, places in zip(came, answered.seen, strict=False):
                root = root or (places[0] if places else None)
                _refuse_change(root, places)
                cut = completion.finish_reason == LENGTH
                found.setdefault(call.temperature, []).append(Draw(completion, places, cut))
            left = left[len(came) :]
    return found


def _refuse_change(root: Position | None, places: Sequence[Position]) -> None:
    """UnansweredError where the log-probabilities of the first place are others than they were: those after the
    temperature are closer together, or further apart.
    """
    if not places or root is None:
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


def answer_row(temperature: float, trial: int, text: str, weight: float, **more: Any) -> Completion:
    """Return an answer of a table that says what ``more`` names, and of everything else that it is not known."""
    nothing = dict.fromkeys(("token_ids", "token_logprobs", "sampling_logprobs", "top_logprobs"))
    rest = {"answer_tokens": None, "finish_reason": None, "prompt_tokens": 0, "completion_tokens": 0}
    return Completion(temperature, trial, text, weight, **{**nothing, **rest, **more})
