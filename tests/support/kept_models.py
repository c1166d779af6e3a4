"""Models that are loaded once for several runs, which takes most of the time of a small run of the embedded one."""

from collections.abc import Iterator
from contextlib import contextmanager

from robust_eval.model.local.transformers import Transformers
from robust_eval.model.local.transformers_model import TransformersModel


@contextmanager
def kept_models() -> Iterator[None]:
    """Whoever loads an embedded model meanwhile with the settings of one before has that one."""
    load, loaded = Transformers.load, dict[str, TransformersModel]()

    def once(self: Transformers) -> TransformersModel:
        if not self.path.startswith("embedded:"):
            return load(self)
        if repr(self) not in loaded:
            loaded[repr(self)] = load(self)
        return loaded[repr(self)]

    Transformers.load = once  # type: ignore[method-assign]
    try:
        yield
    finally:
        Transformers.load = load  # type: ignore[method-assign]
