"""A language model whose work is counted, and the questions and requests that benchmarks ask of it."""

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import hydra
import torch
from torch import Tensor

from robust_eval.config.checks import to_config
from robust_eval.config.groups import CONF
from robust_eval.config.schema import register
from robust_eval.grader.matching import Matching
from robust_eval.model.base import LanguageModel, Reply, Request
from robust_eval.model.local.transformers import Transformers
from robust_eval.question import Question

GRADER = Matching()


class CountedModel:
    """A loaded model that counts, whoever calls it, what goes through its body and through its output head."""

    def __init__(self, settings: Transformers) -> None:
        self.loaded = settings.load()
        self.network: Any = self.loaded.model
        self.tokenizer: Any = self.loaded.tokenizer
        self.ends = torch.from_numpy(self.loaded.texts.vocabularies[True].ends)
        self._total: Counter[str] = Counter()
        for module, count in (
            (self.network.base_model, self._body),
            (self.network.get_output_embeddings(), self._head),
        ):
            module.register_forward_pre_hook(self._start)
            module.register_forward_hook(count)

    def work(self) -> Counter[str]:
        """Tokens through the body and through the head, passes, and nanoseconds within both, since it was loaded."""
        return self._total.copy()

    def _start(self, *_: Any) -> None:
        self._started = time.perf_counter_ns()

    def _body(self, _module: Any, _inputs: Any, output: Any) -> None:
        nanoseconds = time.perf_counter_ns() - self._started
        tokens = output.last_hidden_state.shape[:-1].numel()
        self._total.update({"tokens": tokens, "passes": 1, "nanoseconds": nanoseconds})

    def _head(self, _module: Any, _inputs: Any, output: Tensor) -> None:
        nanoseconds = time.perf_counter_ns() - self._started
        self._total.update({"head_tokens": output.shape[:-1].numel(), "nanoseconds": nanoseconds})


def setting(dtype: str, *overrides: str) -> tuple[Transformers, list[Question]]:
    """The default model, on the CPU, and the default questions."""
    register()
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        composed = to_config(hydra.compose("config", list(overrides)))
    return replace(composed.model, dtype=dtype, device="cpu"), composed.dataset.load()


def tiny(settings: Transformers, folder: str) -> Transformers:
    """The same settings for a model with few and random weights, which is written to a folder."""
    sys.path.append(str(Path(__file__).parents[2] / "tests" / "support"))
    from tiny_model import save_tiny_model

    return replace(settings, name="tiny", path=str(save_tiny_model(Path(folder))), sha256=None)


def answered(model: LanguageModel, requests: Sequence[Request]) -> Iterator[Reply]:
    """The replies of a loaded model to all requests."""
    return chain.from_iterable(model.complete(requests, {request.item for request in requests}))


def warm_up(requests: Sequence[Request], tokenizer: Any) -> list[Request]:
    """One answer to the two longest prompts: after them, the tree need not check the model's attention again."""
    longest = sorted(requests, key=lambda request: len(tokenizer(request.prompt.text()).input_ids))[-2:]
    return [replace(request, temperatures=(1.0,), trials=1) for request in longest]
