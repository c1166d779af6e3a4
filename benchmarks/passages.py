"""Savings by the evaluation of prompts with a common prefix, such as a passage, as a tree.

    python benchmarks/passages.py [--passages 8] [--quick] [--json FILE]

The questions are the built-in ones on passages, three to a passage. They are asked once as a sweep over temperatures
and once with their five rewrites, each by two ways in turn: prompts as a tree, and a row for each prompt. Answers are
the same but for rounding, and how many are is printed. Seconds are those of one run each, after one that warms up.
"""

import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from unittest.mock import patch

from rich.console import Console
from rich.table import Table
from support.command import Command, write_figures
from support.counted_model import GRADER, CountedModel, answered, setting, tiny, warm_up

from robust_eval.model.base import Request
from robust_eval.model.local.batching import PromptTree
from robust_eval.sampler.perturbation import Perturbation
from robust_eval.sampler.temperature_sweep import TemperatureSweep

WAYS = {"tree": "prompts as a tree", "rows": "a row for each"}


def main() -> None:
    command = Command(__doc__)
    command.add_argument("--passages", type=int, default=8)
    options = command.options(passages=2)
    settings, questions = setting("float32", "dataset=passages", f"dataset.limit={3 * options.passages}")
    with tempfile.TemporaryDirectory() as folder:
        model = CountedModel(tiny(settings, folder) if options.quick else settings)
    sweep = TemperatureSweep(temperatures=[1.0], trials=2) if options.quick else TemperatureSweep()
    asked = {
        "sweep": sweep.requests(questions, GRADER, 0),
        "rewrites": Perturbation().requests(questions, GRADER, 0),
    }
    figures: dict[str, float] = {"passages": options.passages, "questions": len(questions)}
    for name, requests in asked.items():
        figures |= {f"{name}_{key}": value for key, value in compared(model, requests).items()}
    Console(width=110).print(table(figures, list(asked)))
    write_figures(options.json, figures)


def compared(model: CountedModel, requests: Sequence[Request]) -> dict[str, float]:
    """Tokens and seconds of a question both ways, and the share of answers that are the same."""
    figures: dict[str, float] = {}
    answers = []
    list(answered(model.loaded, warm_up(requests, model.tokenizer)))
    for way in WAYS:
        with patch.object(PromptTree, "of", row_for_each) if way == "rows" else nullcontext():
            before, started = model.work(), time.perf_counter()
            replies = list(answered(model.loaded, requests))
            figures[f"seconds_{way}"] = (time.perf_counter() - started) / len(requests)
            figures[f"tokens_{way}"] = (model.work() - before)["tokens"] / len(requests)
        answers.append({reply.request.item: [one.token_ids for one in reply.completions] for reply in replies})
    pairs = [pair for item in answers[0] for pair in zip(answers[0][item], answers[1][item], strict=True)]
    figures["same"] = sum(one == other for one, other in pairs) / len(pairs)
    for unit in ("seconds", "tokens"):
        figures[f"{unit}_ratio"] = figures[f"{unit}_tree"] / figures[f"{unit}_rows"]
    return figures


def row_for_each(sequences: Sequence[Sequence[int]], cheapest: bool = True) -> PromptTree:
    """Stand in for :meth:`PromptTree.of`."""
    return PromptTree.in_stages(sequences, 1)


def table(figures: dict[str, float], asked: Sequence[str]) -> Table:
    shown = Table("a prompt of", "way", "tokens", "seconds", "tokens by rows'", "seconds by rows'", "same answers")
    for name in asked:
        for way, label in WAYS.items():
            own = [f"{figures[f'{name}_tokens_{way}']:.1f}", f"{figures[f'{name}_seconds_{way}']:.3f}"]
            ratios = [f"{figures[f'{name}_{unit}_ratio']:.2f}" for unit in ("tokens", "seconds")]
            same = f"{figures[f'{name}_same']:.1%}"
            shown.add_row(name, label, *own, *(([*ratios, same]) if way == "tree" else ["", "", ""]))
    return shown


if __name__ == "__main__":
    main()
