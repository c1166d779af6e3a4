"""Ask a model for everything: one that is loaded, or one by its settings, whose answers are kept in a store."""

from collections.abc import Iterator, Sequence
from itertools import chain

import pyarrow as pa

from robust_eval.engine.local import Local
from robust_eval.model.base import LanguageModel, Reply, Request
from robust_eval.model.model_config import ModelConfig
from robust_eval.runtime.process import Stopwatch
from robust_eval.store.base import Store
from robust_eval.store.stored_model import StoredModel


def answered(model: LanguageModel, requests: Sequence[Request]) -> Iterator[Reply]:
    """The replies to all requests, one after the other."""
    return chain.from_iterable(model.complete(requests, {request.item for request in requests}))


def ask(model: ModelConfig, store: Store, requests: Sequence[Request]) -> pa.Table:
    """The answers to all requests, of which those in the store are not asked for."""
    with store.open() as entries:
        return StoredModel(model, Local(), entries, Stopwatch()).answers(requests, "test").table
