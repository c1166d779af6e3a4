"""HTTP requests that a request to a server needs."""

from collections.abc import Iterator
from typing import NamedTuple

from robust_eval.model.base import Request

FURTHER_DRAWS = 2
"""Number of further draws near an accuracy of one half on an exact curve, as a multiple of the first ones."""
LEVELS = 2
"""Number of tokens of the likeliest answer that are requested after each prefix but the first, which gets all."""


class Call(NamedTuple):
    """One request to the server: answers to one prompt at one temperature, with consecutive trials."""

    request: Request
    temperature: float
    trials: tuple[int, ...]


def calls(request: Request, choices: int) -> Iterator[Call]:
    """Yield the requests to a server for the pending answers, of at most ``choices`` answers each.

    Those of one prompt are consecutive, so that the prompt is in the server's cache.
    """
    batch: list[tuple[float, int]] = []
    for temperature, trial in request.pending:
        if batch and (len(batch) == choices or batch[-1] != (temperature, trial - 1)):
            yield _call(request, batch)
            batch = []
        batch.append((temperature, trial))
    if batch:
        yield _call(request, batch)


def _call(request: Request, batch: list[tuple[float, int]]) -> Call:
    return Call(request, batch[0][0], tuple(trial for _, trial in batch))
