"""A model of transformers that waits after its first block in each process until a file is there."""

import os
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripted_model import wait_for

from robust_eval.model.base import Item, Reply, Request
from robust_eval.model.local.transformers import Transformers
from robust_eval.model.local.transformers_model import TransformersModel


@dataclass
class Waiting(Transformers):
    """``waiting`` is a folder: a process that waits has a file there, and goes on when there is one called ``go``."""

    waiting: str = ""

    def load(self) -> "WaitingModel":
        loaded = super().load()
        return WaitingModel(self, loaded.model, loaded.tokenizer)


class WaitingModel(TransformersModel):
    answered = 0

    def complete(
        self, requests: Sequence[Request], missing: Set[Item], batch_context: Any = None
    ) -> Iterator[list[Reply]]:
        folder = Path(self.config.waiting)
        if self.answered == 1:
            (folder / str(os.getpid())).touch()
            wait_for(folder / "go")
        self.answered += 1
        yield from super().complete(requests, missing, batch_context)
