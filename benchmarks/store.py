"""Cost of a store of a million answers: opening it and finding the answers that a run lacks, in its own process.

    python benchmarks/store.py [--questions 10000] [--quick] [--json FILE]

The store holds 100 answers (10 temperatures, 10 trials) to each of the questions but one. Seconds and peak memory are
those of a process that imports what a run does, opens the store and asks for everything, when the model turns out to be
needed for the one question that is missing; beside them the same for a run of a twentieth of the questions.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from support.command import Command, of_its_own, peak_megabytes, write_figures

from robust_eval.engine.local import Local
from robust_eval.model.base import Completion, Item, LanguageModel, Reply, Request
from robust_eval.model.model_config import ModelConfig
from robust_eval.prompt.prompt import Prompt
from robust_eval.runtime.process import Stopwatch
from robust_eval.store.sqlite import FILE, SqliteStore
from robust_eval.store.stored_model import StoredModel

TEMPERATURES = tuple(step / 5 for step in range(1, 11))
TRIALS = 10
CASES = {"all of them": 1, "a twentieth of them": 20}


class NeededError(Exception):
    """The model was needed."""


class Here(Local):
    """Does without torch, which a run imports when it needs its model."""

    def prepare(self) -> None: ...


class Invented(ModelConfig, LanguageModel):
    """A model whose answers are made up; ``answers`` says whether it may be asked at all."""

    name = "invented"

    def __init__(self, answers: bool) -> None:
        self._answers = answers

    def identity(self) -> Mapping[str, Any]:
        return {"files": "invented"}

    def load(self) -> "Invented":
        if not self._answers:
            raise NeededError
        return self

    def check(self, requests: Sequence[Request]) -> None:
        pass

    def complete(self, requests: Sequence[Request], missing: Set[Item]) -> Iterator[list[Reply]]:
        block = [request for request in requests if request.item in missing]
        for start in range(0, len(block), 16):
            yield [Reply(request, list(self._completions(request))) for request in block[start : start + 16]]

    def _completions(self, request: Request) -> Iterator[Completion]:
        for temperature in request.temperatures:
            for trial in range(request.trials):
                drawn = hash((request.question_id, temperature, trial))
                ids = [drawn >> shift & 0xFFFF for shift in (0, 16, 32)]
                logprobs = [-(token % 1000) / 100 for token in ids]
                text = f"answer {drawn & 0xFFFF}"
                yield Completion(temperature, trial, text, 0.1, ids, logprobs, logprobs, None, 3, "stop", 60)

    def description(self) -> dict[str, Any]:
        return {"name": self.name}


def main() -> None:
    command = Command(__doc__)
    command.add_argument("--questions", type=int, default=10_000, help="questions with 100 answers each")
    command.add_argument("--case", nargs=3, help=argparse.SUPPRESS)
    options = command.options(questions=20)
    if options.case:
        folder, known, asked = options.case
        print(json.dumps(measured(folder, int(known), int(asked))))
        return
    with tempfile.TemporaryDirectory() as folder:
        ask(Invented(answers=True), folder, requests(options.questions))
        figures = {"answers": options.questions * len(TEMPERATURES) * TRIALS}
        figures["megabytes"] = (Path(folder) / FILE).stat().st_size / 2**20
        print(f"{figures['answers']:,} answers: {figures['megabytes']:.0f} MB")
        for name, part in CASES.items():
            seconds, megabytes = of_its_own(__file__, folder, options.questions, options.questions // part)
            print(f"a run of {name}: {seconds:.2f} s, {megabytes:.0f} MB")
            figures |= {f"seconds {name}": seconds, f"megabytes {name}": megabytes}
    write_figures(options.json, figures)


def requests(count: int) -> list[Request]:
    return [
        Request(f"question {index}", 0, Prompt("Answer.", (), f"{index}?"), TEMPERATURES, TRIALS, 5, seed=0)
        for index in range(count)
    ]


def ask(model: Invented, folder: str, asked: Sequence[Request]) -> None:
    with SqliteStore(folder).open() as entries:
        StoredModel(model, Here(), entries, Stopwatch()).answers(asked, "answers")


def measured(folder: str, known: int, asked: int) -> tuple[float, float]:
    """Seconds until a run knows that one question is missing, and the peak memory of this process in megabytes."""
    wanted = [*requests(known)[: asked - 1], *requests(known + 1)[-1:]]
    start = time.perf_counter()
    try:
        ask(Invented(answers=False), folder, wanted)
    except NeededError:
        return time.perf_counter() - start, peak_megabytes()
    raise RuntimeError("no question was missing")


if __name__ == "__main__":
    main()
