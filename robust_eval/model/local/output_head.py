"""Logits from the last hidden states of a model, in batches of rows.

A row of logits is a hundred times as long as its hidden state. Of the thousands of prefixes in one forward pass, a
batch has as many rows of logits as fit into a processor's cache.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn

BYTES_PER_BATCH = {False: 16 * 2**20, True: 2**29}
"""Size of a batch of logits in float32: on the CPU below the size that its allocator reuses without fresh memory from
the system (32 MiB); on CUDA (True) large, because every call costs the same."""


def rows_per_batch(vocabulary: int, device: torch.device) -> int:
    """Return the number of rows of logits in a batch."""
    return max(1, BYTES_PER_BATCH[device.type == "cuda"] // (4 * vocabulary))


class OutputHead:
    """The logits (n, V), in float32, of the first n tokens whose hidden states a model's layers have computed.

    The model itself computes everything after the layers: besides the output head, some models scale or cap the logits.
    Meanwhile the finished output replaces the layers.
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
    """Replacement of a model's layers that returns their earlier output."""

    def __init__(self, output: Any) -> None:
        super().__init__()
        self._output = output

    def forward(self, *_: Any, **__: Any) -> Any:
        return self._output
