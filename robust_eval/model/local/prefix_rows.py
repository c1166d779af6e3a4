"""Evaluator of prefixes, one row of a batch each, for every model that can decode with a cache."""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from robust_eval.model.local.transfers import to_device
from robust_eval.model.token_texts import Ids


class SharedPrompt:
    """Common prefix of all prompts, evaluated once."""

    @torch.inference_mode()
    def __init__(self, model: Any, tokens: Sequence[int]) -> None:
        self.length = len(tokens)
        self._device = model.device
        self._cache = DynamicCache(config=model.config)
        if tokens:
            ids = torch.tensor([list(tokens)], device=model.device)
            model.base_model(input_ids=ids, past_key_values=self._cache, use_cache=True)

    def repeated(self, rows: int) -> DynamicCache:
        """Return a copy of the cache for ``rows`` rows that begin with these tokens."""
        cache = copy.deepcopy(self._cache)
        if self.length:
            cache.reorder_cache(torch.zeros(rows, dtype=torch.long, device=self._device))
        return cache


class PrefixRows:
    """Evaluator of prefixes, one row of a batch each, with a key-value cache that is reordered from parent to child.

    All rows of a batch have the same length, without padding or mask. This holds for every architecture that the
    library can decode with a cache, including recurrent ones.
    """

    def __init__(self, model: Any, shared: Sequence[int]) -> None:
        self._model = model
        self._shared = SharedPrompt(model, shared)

    def roots(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Return logits (prompts, V) after whole prompts of one length that begin with the shared tokens."""
        self._cache = self._shared.repeated(len(prompts))
        suffixes = [list(prompt)[self._shared.length :] for prompt in prompts]
        return self._forward(to_device(np.array(suffixes), self._model.device))

    def children(self, parents: Ids, tokens: Ids) -> Tensor:
        """Return logits (m, V) after m prefixes: ``parents`` (ascending) indexes the rows of the last call's logits,
        and ``tokens`` continues them.
        """
        self._cache.reorder_cache(to_device(parents, self._model.device))
        return self._forward(to_device(tokens[:, None], self._model.device))

    @torch.inference_mode()
    def _forward(self, tokens: Tensor) -> Tensor:
        output = self._model(input_ids=tokens, past_key_values=self._cache, use_cache=True, logits_to_keep=1)
        logits: Tensor = output.logits[:, -1]
        return logits.float()
