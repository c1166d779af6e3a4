"""What a server is asked for at once."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from robust_eval.model.base import Request


class Call(NamedTuple):
    """A request to the server: answers to one prompt at one temperature, whose numbers follow on one another."""

    request: Request
    temperature: float
    trials: tuple[int, ...]


def calls(request: Request, choices: int) -> Iterator[Call]:
    """Yield the requests to a server that together ask for what is not known, of at most so many ``choices`` each.

    Those of one prompt come after one another, so that a server finds the prompt in its cache.
    """
    known_own = {trial for temperature, trial in request.known if math.isnan(temperature)}
    for temperature in request.temperatures:
        together: list[int] = []
        for trial in range(request.trials):
            known = trial in known_own if math.isnan(temperature) else (temperature, trial) in request.known
            if together and (known or len(together) == choices):
                yield Call(request, temperature, tuple(together))
                together = []
            if not known:
                together.append(trial)
        if together:
            yield Call(request, temperature, tuple(together))
