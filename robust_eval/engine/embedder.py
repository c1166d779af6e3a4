"""Vectors of many texts by actors that hold a sentence model."""

import pickle
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from ray.exceptions import RayError

from robust_eval.engine.pool import ASKED, one_row, streamed
from robust_eval.model.sentences import TOGETHER, Vectors, encoded

if TYPE_CHECKING:
    from robust_eval.engine.ray import Ray


class Embedder:
    """Embeds texts with the sentence model at ``path``, which it loads with the first."""

    def __init__(self, path: str, threads: int) -> None:
        self._path = path
        self._threads = threads

    def __call__(self, batch: pa.Table) -> pa.Table:
        import torch

        torch.set_num_threads(self._threads)
        number, texts = pickle.loads(batch[ASKED][0].as_py())
        return one_row(pickle.dumps((number, encoded(self._path, texts))))


def embedded(engine: "Ray", path: str, texts: Sequence[str]) -> Vectors:
    """The vectors of texts, computed by actors; what does not come from them is computed here.

    The same texts of about the same length are embedded together as by the library in one process.
    """
    order = np.argsort([-len(text) for text in texts])
    parts = [[texts[k] for k in order[start : start + TOGETHER]] for start in range(0, len(texts), TOGETHER)]
    asked = [pickle.dumps((number, part)) for number, part in enumerate(parts)]
    came: dict[int, Vectors] = {}
    actors = min(engine.room(), len(parts))
    with suppress(RayError):
        for value in streamed(Embedder, (path, engine.num_cpus), asked, actors, engine.num_cpus, 0):
            number, vectors = pickle.loads(value)
            came[number] = vectors
    whole = np.concatenate([came[k] if k in came else encoded(path, part) for k, part in enumerate(parts)])
    return whole[np.argsort(order)]
