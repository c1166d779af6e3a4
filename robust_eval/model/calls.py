"""What a server is asked for at once."""

from collections.abc import Iterator
from typing import NamedTuple

from robust_eval.model.base import Request

FURTHER_DRAWS = 2
"""How many times as many answers are drawn once more where an exact curve passes near one half."""
LEVELS = 2
"""Tokens of the likeliest answer that are asked for after each beginning of one but the first, of which all are."""


class Call(NamedTuple):
    """A request to the server: answers to one prompt at one temperature, whose numbers follow on one another."""

    request: Request
    temperature: float
    trials: tuple[int, ...]


def calls(request: Request, choices: int) -> Iterator[Call]:
    """Yield the requests to a server that together ask for what is not known, of at most so many ``choices`` each.

    Those of one prompt come after one another, so that a server finds the prompt in its cache.
    """
    together: list[tuple[float, int]] = []
    for temperature, trial in request.wanted:
        if together and (len(together) == choices or together[-1] != (temperature, trial - 1)):
            yield _call(request, together)
            together = []
        together.append((temperature, trial))
    if together:
        yield _call(request, together)


def _call(request: Request, together: list[tuple[float, int]]) -> Call:
    return Call(request, together[0][0], tuple(trial for _, trial in together))
