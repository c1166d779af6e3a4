"""Ask a loaded model for everything."""

from collections.abc import Iterator, Sequence
from itertools import chain

from robust_eval.model.base import LanguageModel, Reply, Request


def answered(model: LanguageModel, requests: Sequence[Request]) -> Iterator[Reply]:
    """The replies to all requests, one after the other."""
    return chain.from_iterable(model.complete(requests, {request.item for request in requests}))
