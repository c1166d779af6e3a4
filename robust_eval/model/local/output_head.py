"""Logits from the last hidden states of a model, some rows at a time.

A row of logits is a hundred times as long as the hidden state that it comes from. Of the thousands of prefixes that go
through a model together, only so many get their logits at once as fit into a processor's cache.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn

BYTES_AT_ONCE = {False: 16 * 2**20, True: 2**29}
"""Logits in float32 that are computed together: on the CPU no more than its allocator hands out again without asking
the system for fresh memory (32 MiB); on CUDA (True) many, for there every call costs the same."""


def rows_at_once(vocabulary: int, device: torch.device) -> int:
    """Return how many rows of logits are computed together."""
    return max(1, BYTES_AT_ONCE[device.type == "cuda"] // (4 * vocabulary))


class OutputHead:
    """The logits (n, V), in float32, of the first n tokens whose hidden states a model's layers have computed.

    What follows the layers is left to the model itself: besides the output head itself, some scale the logits or cap
    them. While it runs, their finished output stands in for the layers.
    """

    def __init__(self, model: Any, layers_output: Any, n: int) -> None:
        self._model = model
        self._output = layers_output
        self._hidden: Tensor = layers_output.last_hidden_state.flatten(0, 1)[:n]

    @property
    def device(self) -> torch.device:
        return self._hidden.device

    def __len__(self) -> int:
        return len(self._hidden)

    @torch.inference_mode()
    def __getitem__(self, rows: slice) -> Tensor:
        part = copy.copy(self._output)
        part.last_hidden_state = self._hidden[None, rows]
        name = self._model.base_model_prefix
        layers = getattr(self._model, name)
        setattr(self._model, name, _Finished(part))
        try:
            logits: Tensor = self._model(use_cache=False).logits[0]
        finally:
            setattr(self._model, name, layers)
        return logits.float()


class _Finished(nn.Module):
    """Stands where a model's layers were, and gives what they have computed before."""

    def __init__(self, output: Any) -> None:
        super().__init__()
        self._output = output

    def forward(self, *_: Any, **__: Any) -> Any:
        return self._output
