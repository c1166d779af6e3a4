"""Prefixes evaluated one row of a batch each: right for every model that can decode with a cache."""

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
    """The tokens that all prompts begin with, evaluated once."""

    @torch.inference_mode()
    def __init__(self, model: Any, tokens: Sequence[int]) -> None:
        self.length = len(tokens)
        self._device = model.device
        self._cache = DynamicCache(config=model.config)
        if tokens:
            ids = torch.tensor([list(tokens)], device=model.device)
            model.base_model(input_ids=ids, past_key_values=self._cache, use_cache=True)

    def repeated(self, rows: int) -> DynamicCache:
        """Return a cache of its own for each of some rows that begin with these tokens."""
        cache = copy.deepcopy(self._cache)
        if self.length:
            cache.reorder_cache(torch.zeros(rows, dtype=torch.long, device=self._device))
        return cache


class PrefixRows:
    """Evaluates prefixes, one row of a batch each; the rows of the key-value cache follow from parent to child.

    All rows of a batch have the same length, so there is neither padding nor a mask: this is right for every
    architecture that the library can decode with a cache, also for recurrent ones.
    """

    def __init__(self, model: Any, shared: Sequence[int]) -> None:
        self._model = model
        self._shared = SharedPrompt(model, shared)

    def roots(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Return logits (prompts, V) after whole prompts; all of the same length, all beginning with the
        shared tokens.
        """
        self._cache = self._shared.repeated(len(prompts))
        own = [list(prompt)[self._shared.length :] for prompt in prompts]
        return self._forward(to_device(np.array(own), self._model.device))

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
