"""The models of a run: the one that is measured, and the one that writes rewrites."""

from collections.abc import Callable
from typing import Any

from robust_eval.config.config import Config
from robust_eval.runtime.stopwatch import Stopwatch
from robust_eval.store.base import Entries
from robust_eval.store.stored_model import StoredModel


def models(
    config: Config, entries: Entries, watch: Stopwatch, begin: Callable[[], object] = lambda: None
) -> tuple[StoredModel, StoredModel]:
    """Return the model that is measured and the one that writes rewrites, which may be the same object."""
    model = StoredModel(config.model, config.engine, entries, watch, begin=begin)
    other = config.rewriter.model
    if other is None or other == config.model:
        return model, model
    return model, StoredModel(other, config.engine, entries, watch, begin=begin)


def description(model: StoredModel, prefix: str = "") -> dict[str, Any]:
    """Return what a model was when it was last asked, for the record; ``prefix`` stands before each name."""
    loaded = {f"loaded.{prefix}{name}": value for name, value in model.description().items()}
    return loaded | {f"identity.{prefix}{name}": value for name, value in model.identity.items()}
