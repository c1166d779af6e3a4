"""A model whose answers follow from the requests, and which fails as it is told to; actors can load it."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robust_eval.error import UserError
from robust_eval.model.base import Completion, Item, LanguageModel, Reply, Request
from robust_eval.model.model_config import ModelConfig, Shards
from robust_eval.prompt.prompt import Prompt


@dataclass(frozen=True)
class ScriptedModel(ModelConfig, LanguageModel):
    """Answers ``together`` requests at once. ``log`` gets a line for each time that a block is begun."""

    log: str
    together: int = 2
    raises: tuple[str, ...] = ()
    """Questions that raise an error, when those before them in their block are answered."""
    exits: tuple[str, ...] = ()
    """Questions that end the process."""
    times: int | None = None
    """How often they do so; None: always."""
    unusable: str | None = None
    """What is wrong with the model, so that it cannot be loaded."""
    name: str = "scripted"

    def identity(self) -> Mapping[str, Any]:
        return {"files": "scripted"}

    def shard(self, requests: Sequence[Request]) -> Shards:
        asked = list(requests)
        return Shards([asked[at : at + self.together] for at in range(0, len(asked), self.together)], "beside")

    def load(self) -> "ScriptedModel":
        if self.unusable:
            raise UserError(self.unusable)
        return self

    def check(self, requests: Sequence[Request]) -> None:
        pass

    def description(self) -> dict[str, Any]:
        return {"name": self.name, "loaded": "here"}

    def complete(
        self, requests: Sequence[Request], missing: Set[Item], batch_context: Any = None
    ) -> Iterator[list[Reply]]:
        for block in self.shard([request for request in requests if request.item in missing]).blocks:
            names = [request.question_id for request in block]
            with open(self.log, "a") as file:
                file.write(f"{os.getpid()} {','.join(names)}\n")
            tried = sum(
                f" {','.join(names)}\n" in line for line in Path(self.log).read_text().splitlines(keepends=True)
            )
            for request in block:
                if self.times is None or tried <= self.times:
                    if request.question_id in self.exits:
                        os._exit(1)
                    if request.question_id in self.raises:
                        raise RuntimeError("no more\nat all")
                yield [Reply(request, list(completions(request)))]


def completions(request: Request) -> Iterator[Completion]:
    for t, trial in request.conditions:
        text = f"{request.question_id} {t} {trial}"
        yield Completion(t, trial, text, 1.0, [7], [-0.5], [-0.25], None, 1, "stop", 11)


def asked(log: str | Path) -> list[tuple[int, list[str]]]:
    """The process and the questions of each block that was begun."""
    lines = Path(log).read_text().split("\n")[:-1] if Path(log).exists() else []
    return [(int(line.split()[0]), line.split()[1].split(",")) for line in lines]


def questions(number: int) -> list[Request]:
    return [Request(f"q{k}", 0, Prompt("", (), f"{k}?"), (0.5, 1.0), 2, 5, seed=0) for k in range(number)]


def wait_for(file: Path) -> None:
    """Until somebody has made the file."""
    while not file.exists():
        time.sleep(0.01)
