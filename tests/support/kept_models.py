"""Models that are loaded and tried once for several runs, which takes most of the time of a small run of the embedded
one.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from robust_eval.model.local.transformers import Transformers

if TYPE_CHECKING:
    from robust_eval.model.local.transformers_model import TransformersModel

MOST = 2
"""Models that are kept; each takes half a gigabyte."""


@contextmanager
def packing_is_known(loaded: Mapping[str, "TransformersModel"]) -> Iterator[None]:
    from robust_eval.model.local import transformers_model

    agrees = transformers_model.agrees_with_plain_passes

    def known(model: Any, shared: Sequence[int], prompts: Sequence[Sequence[int]]) -> bool:
        return any(model is each.model for each in loaded.values()) or agrees(model, shared, prompts)

    with patch.object(transformers_model, "agrees_with_plain_passes", known):
        yield


@contextmanager
def kept_models() -> Iterator[None]:
    """Whoever loads an embedded model meanwhile with the settings of one of the last has that one.

    Whether its prefixes can be packed is not tried anew for each longer prompt: a test of the model itself finds that
    they can. Torch is imported when the first is loaded.
    """
    load, loaded = Transformers.load, dict[str, "TransformersModel"]()

    def once(self: Transformers) -> "TransformersModel":
        if not self.path.startswith("embedded:"):
            return load(self)
        settings = repr(replace(self, device=self.effective_device, dtype=self.effective_dtype))
        model = loaded.pop(settings, None) or load(self)
        patches.close()
        patches.enter_context(packing_is_known(loaded))
        loaded[settings] = model  # the last is the one that was asked for last
        if len(loaded) > MOST:
            del loaded[next(iter(loaded))]
        return model

    with ExitStack() as patches, patch.object(Transformers, "load", once):
        yield
