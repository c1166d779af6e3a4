"""Where the time of a question goes: linear layers, attention, the rest of the model, and what is around it.

    python benchmarks/causes.py [--questions 16] [--repeats 3] [--quick] [--json FILE]

The built-in facts are asked by the answer tree (10 temperatures × 10 trials), and by exact
with few and with many nodes; one question at a time and all together, on one thread and on two. Hooks on the modules
of the model tell the time within them; *grading* is reading the answers and telling which are right, *around* all else:
softmax, drawing, choosing prefixes, the answer table. Of several repeats the fastest counts.
"""

import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from itertools import product
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from support.command import Command, write_figures
from support.counted_model import GRADER, CountedModel, answered, setting, tiny, warm_up
from torch import nn

from robust_eval.model.base import Request
from robust_eval.model.local.device import OneDnnLinear
from robust_eval.model.reply_tables import answers_of
from robust_eval.question import Question
from robust_eval.sampler.exact import Exact
from robust_eval.sampler.temperature_sweep import TemperatureSweep

WAYS = {
    "tree": TemperatureSweep(),
    "exact_128": Exact(nodes=128),
    "exact_24": Exact(nodes=24),
}
CAUSES = {"linear": "linear layers", "attention": "attention", "model": "rest of the model", "grading": "grading"}
CAUSES["around"] = "around"


class Clock:
    """The time within linear layers, within attention without its linear layers, and within the whole model."""

    def __init__(self, model: CountedModel) -> None:
        self.spent: Counter[str] = Counter()
        self._started: list[float] = []
        for module in model.network.modules():
            linear = isinstance(module, nn.Linear | OneDnnLinear)
            attention = type(module).__name__.endswith("Attention")
            whole = module is model.network.base_model
            if linear or attention or whole:
                module.register_forward_pre_hook(self._start)
                module.register_forward_hook(self._linear if linear else self._attention if attention else self._whole)

    def _start(self, *_: Any) -> None:
        self._started.append(time.perf_counter())

    def _linear(self, *_: Any) -> None:
        seconds = time.perf_counter() - self._started.pop()
        self.spent["linear"] += seconds
        if len(self._started) > 1:  # the body is under way, and attention in it
            self.spent["inside"] += seconds
        elif not self._started:
            self.spent["head"] += seconds

    def _attention(self, *_: Any) -> None:
        self.spent["attention"] += time.perf_counter() - self._started.pop()

    def _whole(self, *_: Any) -> None:
        self.spent["whole"] += time.perf_counter() - self._started.pop()

    def by_cause(self, seconds: float, grading: float) -> dict[str, float]:
        """How many of the ``seconds``, of which ``grading`` were spent on that, went where."""
        found = {"linear": self.spent["linear"], "attention": self.spent["attention"] - self.spent["inside"]}
        found["model"] = self.spent["whole"] + self.spent["head"] - sum(found.values())
        return found | {"grading": grading, "around": seconds - grading - self.spent["whole"] - self.spent["head"]}


def main() -> None:
    command = Command(__doc__)
    command.add_argument("--questions", type=int, default=16)
    command.add_argument("--repeats", type=int, default=3)
    options = command.options(questions=2, repeats=1)
    settings, questions = setting("float32", f"dataset.limit={options.questions}")
    with tempfile.TemporaryDirectory() as folder:
        model = CountedModel(tiny(settings, folder) if options.quick else settings)
    clock = Clock(model)
    figures: dict[str, float] = {"questions": options.questions, "repeats": options.repeats}
    threads = torch.get_num_threads()
    for name, sampler in WAYS.items():
        requests = sampler.requests(questions, GRADER, 0)
        list(answered(model.loaded, warm_up(requests, model.tokenizer) if name == "tree" else requests[:1]))
        for together, count in product((1, options.questions), (1, 2)):
            torch.set_num_threads(count)
            found = min(
                (timed(model, clock, requests, questions, together) for _ in range(options.repeats)),
                key=lambda causes: sum(causes.values()),
            )
            case = f"{name}_questions_{together}_threads_{count}"
            seconds = sum(found.values())
            figures[f"seconds_{case}"] = seconds / len(requests)
            figures |= {f"{cause}_{case}": found[cause] / seconds for cause in CAUSES}
    torch.set_num_threads(threads)
    Console(width=110).print(table(figures))
    write_figures(options.json, figures)


def timed(
    model: CountedModel, clock: Clock, requests: Sequence[Request], questions: Sequence[Question], together: int
) -> dict[str, float]:
    """The seconds of all requests, so many at once, by cause."""
    clock.spent.clear()
    started, grading = time.perf_counter(), 0.0
    for first in range(0, len(requests), together):
        replies = list(answered(model.loaded, requests[first : first + together]))
        table, before = answers_of(replies)[0], time.perf_counter()
        GRADER.grade(questions[first : first + together], table)
        grading += time.perf_counter() - before
    return clock.by_cause(time.perf_counter() - started, grading)


def table(figures: dict[str, float]) -> Table:
    shown = Table("way", "questions at once", "threads", "seconds a question", *CAUSES.values())
    for name, together, threads in product(WAYS, (1, int(figures["questions"])), (1, 2)):
        case = f"{name}_questions_{together}_threads_{threads}"
        shares = (f"{figures[f'{cause}_{case}']:.0%}" for cause in CAUSES)
        shown.add_row(
            name.replace("_", ", "), str(together), str(threads), f"{figures[f'seconds_{case}']:.2f}", *shares
        )
    return shown


if __name__ == "__main__":
    main()
