"""Time of a block of questions on a GPU, beside the formulas of costs.py, and a check of its answers by the CPU's.

    python benchmarks/gpu.py [--questions 16 128] [--block 128] [--shapes small 8B 14B] [--repeats 3]
                              [--peers generate static continuous graphed] [--quick] [--json FILE]

First the embedded model answers in float32 on the CPU and on the GPU, and there twice. Then it is timed in bfloat16, as
it is (*small*) and with the shape of larger models, which compute the same (support/widened.py), so that their answers
have as many prefixes as those of a real model. For a block of questions, torch's profiler measures what the GPU spends
its time on, and torch's own check shows where the processor waits for it. Peers draw the answers of the same sweep:
the library's generate, with a dynamic and with a static cache, its continuous batching, and a loop with CUDA graphs
(support/graphed.py). Last, a whole run of the embedded model is timed, from the command to the report. The file is
written after each part. Without a GPU everything runs on the CPU, and the times mean nothing.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from costs import LARGER
from rich.console import Console
from rich.table import Table
from support.command import Command, write_figures
from support.continuous import continuous
from support.counted_model import GRADER, CountedModel, answered, setting, tiny
from support.graphed import Graphed
from support.shape import Shape
from support.ways import Texts, generate, timed
from support.widened import Widened
from torch.profiler import ProfilerActivity, profile

from robust_eval.config.groups import PROJECT
from robust_eval.model.base import Reply, Request
from robust_eval.model.local.transformers import Transformers
from robust_eval.question import Question
from robust_eval.sampler.exact import Exact
from robust_eval.sampler.temperature_sweep import TemperatureSweep

SHAPES: dict[str, Shape | None] = {"small": None, "8B": LARGER["8B"], "14B": LARGER["14B"]}
QUICK = {"tiny": Shape(3, 96, 12, 4, 16, 100, 300)}
WAYS = ("exact", "exact24", "tree")
PEERS = ("generate", "static", "continuous", "graphed")
PEER_QUESTIONS = 64
"""Questions that a peer answers at once, at most."""
PRODUCTS = ("gemm", "nvjet", "cutlass", "gemv", "splitK")
"""Parts of the names of kernels that multiply matrices."""
WAITS = "called a synchronizing CUDA operation"


def main() -> None:
    command = Command(__doc__)
    command.add_argument("--questions", type=int, nargs="+", default=[16, 128], help="asked at once")
    command.add_argument("--block", type=int, default=128, help="questions that are profiled together")
    command.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    command.add_argument("--repeats", type=int, default=3)
    command.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS))
    options = command.options(questions=[2], block=2, repeats=1)
    settings, questions = setting(
        "float32", f"dataset.limit={options.block + options.repeats * max(options.questions)}"
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    figures: dict[str, float | str] = {
        "gpu": torch.cuda.get_device_name() if device == "cuda" else "none",
        "block": options.block,
    }
    console = Console(width=110)
    with tempfile.TemporaryDirectory() as folder:
        if options.quick:
            settings = tiny(settings, folder)
        figures |= agreement(settings, ways(questions[: options.block], options.quick), device)
        for name in QUICK if options.quick else options.shapes:
            shape = (QUICK if options.quick else SHAPES)[name]
            there = replace(settings, device=device, dtype="bfloat16")
            model = CountedModel(there if shape is None else Widened(there, shape))
            found = measured(model, ways(questions, options.quick), options)
            figures |= {f"{name}_{key}": value for key, value in found.items()}
            write_figures(options.json, figures)
            del model
            gc.collect()
            torch.cuda.empty_cache()
        quick = [
            "model=transformers",
            f"model.path={settings.path}",
            "model.prompt_style=plain",
            "dataset.limit=4",
            "sampler.selection=none",
        ]
        figures |= whole_run(Path(folder), quick if options.quick else [])
    console.print(agreed(figures))
    console.print(table(figures, options.questions))
    write_figures(options.json, figures)


def ways(questions: Sequence[Question], quick: bool) -> dict[str, list[Request]]:
    """What is asked: exact with many and with few nodes, and the tree of the draws of a sweep."""
    samplers = Exact(nodes=48 if quick else Exact.nodes), Exact(nodes=24), TemperatureSweep(trials=1 if quick else 10)
    return {way: each.requests(questions, GRADER, 0) for way, each in zip(WAYS, samplers, strict=True)}


def agreement(settings: Transformers, asked: Mapping[str, list[Request]], device: str) -> dict[str, float]:
    """How far answers in float32 on the device are those of the CPU, and those of a second time."""
    here, there = (replace(settings, device=each).load() for each in ("cpu", device))
    figures: dict[str, float] = {}
    for way, requests in asked.items():
        cpu, first, second = (in_order(answered(model, requests)) for model in (here, there, there))
        for name, (one, other) in {"cpu": (cpu, first), "again": (first, second)}.items():
            if way != "tree":  # which of equally likely answers it names, and how many, depends on the last bits
                figures[f"apart_{way}_{name}"] = float(np.abs(accuracies(one) - accuracies(other)).max())
            else:
                same = [a == b for a, b in zip(texts(one), texts(other), strict=True)]
                figures[f"same_{way}_{name}"] = float(np.mean(same))
    return figures


def in_order(replies: Iterator[Reply]) -> list[Reply]:
    return sorted(replies, key=lambda reply: reply.request.question_id)


def texts(replies: Sequence[Reply]) -> list[str]:
    return [completion.text for reply in replies for completion in reply.completions]


def accuracies(replies: Sequence[Reply]) -> np.ndarray:
    return np.stack([reply.curve.accuracy for reply in replies if reply.curve is not None])


def measured(model: CountedModel, asked: Mapping[str, list[Request]], options: argparse.Namespace) -> dict[str, float]:
    """Seconds of each way with each number of questions, and what a block of it consists of."""
    figures: dict[str, float] = {}
    size = options.block
    for way, requests in asked.items():
        block = requests[:size]
        ask(model, block)  # once before: attention is checked, kernels are loaded
        before = model.work()
        ask(model, block)
        figures[f"{way}_prefixes"] = (model.work() - before)["head_tokens"] / len(block)
        for count in options.questions:
            # each question is asked once, as in a run
            parts = [requests[size + number * count :][:count] for number in range(options.repeats)]
            spent = [timed(partial(ask, model, part))[0] / len(part) for part in parts]
            figures[f"{way}_ms_{count}"] = 1e3 * float(np.median(spent))
        figures |= {f"{way}_{key}": value for key, value in kernels(partial(ask, model, block)).items()}
        with waits() as found:
            ask(model, block)
        figures[f"{way}_waits"] = float(found.total())
        for place, number in found.most_common(8):
            print(f"{way}: {number} waits at {place}", file=sys.stderr)
    return figures | peer_times(model, asked["tree"][:size], options.peers)


def peer_times(model: CountedModel, requests: Sequence[Request], names: Sequence[str]) -> dict[str, float]:
    """Milliseconds a question in which each peer draws the answers; one that fails is left out and said to fail."""
    figures: dict[str, float] = {}
    count = min(PEER_QUESTIONS, len(requests))
    requests = requests[: len(requests) // count * count]
    for name in names:
        try:
            answer = peer(name, model, count, requests)
            for once in (requests[:count], requests):  # the first call compiles, and loads kernels
                figures[f"{name}_ms"] = 1e3 * timed(partial(answer, once))[0] / len(once)
        except RuntimeError as error:
            figures.pop(f"{name}_ms", None)
            print(f"{name} failed: {error}", file=sys.stderr)
        gc.collect()
        torch.cuda.empty_cache()
    return figures


def peer(
    name: str, model: CountedModel, count: int, requests: Sequence[Request]
) -> Callable[[Sequence[Request]], Texts]:
    """Return the function with which a peer draws answers, for ``count`` questions at once."""
    if name == "continuous":
        return partial(continuous, model, count)
    if name == "graphed":
        longest = max(len(model.tokenizer(request.prompt.text()).input_ids) for request in requests)
        graphed = Graphed(model, count, requests[0], longest)
        return lambda asked: [
            texts for start in range(0, len(asked), count) for texts in graphed(asked[start : start + count])
        ]
    return partial(generate, model, count, cache_implementation={"generate": None, "static": "static"}[name])


def whole_run(folder: Path, overrides: Sequence[str]) -> dict[str, float]:
    """Seconds of a run without MLflow, from the command to the report, in a process of its own, and its questions."""
    command = [sys.executable, "-m", "robust_eval", "tracking=none", f"hydra.run.dir={folder / 'run'}", *overrides]
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    call = partial(subprocess.run, command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)
    seconds, done = timed(partial(call, stdout=subprocess.DEVNULL))
    if done.returncode:
        print(f"the whole run failed: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return {}
    summary = json.loads((folder / "run" / "summary.json").read_text(encoding="utf-8"))
    return {"run_seconds": seconds, "run_questions": summary["questions.asked"]}


def ask(model: CountedModel, requests: Sequence[Request]) -> None:
    list(answered(model.loaded, requests))


def kernels(call: Callable[[], None]) -> dict[str, float]:
    """Count the kernels of a call, the milliseconds of matrix products, copies and all else on the GPU, and the share
    of the unprofiled time in which it is busy.
    """
    if not torch.cuda.is_available():
        return {}
    wall = 1e3 * timed(call)[0]
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        call()
        torch.cuda.synchronize()
    milliseconds: Counter[str] = Counter()
    by_kernel: Counter[str] = Counter()
    count = 0
    for event in found.key_averages():
        if event.device_type != torch.autograd.DeviceType.CUDA:
            continue
        spent = event.self_device_time_total / 1e3
        copies = event.key.startswith("Mem")
        product = any(part in event.key for part in PRODUCTS)
        milliseconds["copies" if copies else "products" if product else "others"] += spent
        by_kernel[event.key[:100]] += spent
        count += 0 if copies else event.count
    for name, spent in by_kernel.most_common(12):
        print(f"    {spent:.2f} ms {name}", file=sys.stderr)
    shares = {"kernels": float(count), "busy": milliseconds.total() / wall}
    return shares | {f"{name}_ms": value for name, value in milliseconds.items()}


@contextmanager
def waits() -> Iterator[Counter[str]]:
    """Count the places where the processor waits for the GPU."""
    found: Counter[str] = Counter()
    if not torch.cuda.is_available():
        yield found
        return
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            yield found
    finally:
        torch.cuda.set_sync_debug_mode("default")
    found.update(f"{Path(each.filename).name}:{each.lineno}" for each in heard if WAITS in str(each.message))


def agreed(figures: Mapping[str, float | str]) -> Table:
    """How many answers are the same, and how far probabilities of right answers are apart at most."""
    shown = Table(title="In float32, beside the CPU, and a second time", title_justify="left")
    for title in ("way", "same as the CPU's", "again", "apart from the CPU's", "again"):
        shown.add_column(title, justify="right")
    for way in WAYS:
        names = [f"{name}_{way}_{other}" for name in ("same", "apart") for other in ("cpu", "again")]
        shares = ["" if name not in figures else format(figures[name], ".1%") for name in names[:2]]
        shown.add_row(
            way, *shares, *("" if name not in figures else format(figures[name], ".6f") for name in names[2:])
        )
    return shown


def table(figures: Mapping[str, float | str], counts: Sequence[int]) -> Table:
    columns = {f"{count} at once": (f"ms_{count}", ".1f") for count in counts}
    columns |= {"prefixes": ("prefixes", ".0f"), "kernels": ("kernels", ".0f"), "products": ("products_ms", ".1f")}
    columns |= {"others": ("others_ms", ".1f"), "copies": ("copies_ms", ".1f"), "busy": ("busy", ".0%")}
    columns |= {"waits": ("waits", ".0f")}
    of_block = f"kernels, their milliseconds, and waits of a block of {figures['block']}"
    title = f"Milliseconds a question; {of_block}; GPU: {figures['gpu']}"
    shown = Table(title=title, title_justify="left")
    for column in ("model", "way", *columns):
        shown.add_column(column, justify="right", no_wrap=True)
    for name in SHAPES | QUICK:
        for way in WAYS:
            if f"{name}_{way}_prefixes" in figures:
                cells = [(figures.get(f"{name}_{way}_{column}", ""), form) for column, form in columns.values()]
                shown.add_row(name, way, *("" if cell == "" else format(cell, form) for cell, form in cells))
        for way in PEERS:
            if f"{name}_{way}_ms" in figures:
                shown.add_row(name, way, *[""] * (len(counts) - 1), format(figures[f"{name}_{way}_ms"], ".1f"))
    if "run_seconds" in figures:
        shown.caption = f"a whole run: {figures['run_questions']:.0f} questions in {figures['run_seconds']:.1f} s"
    return shown


if __name__ == "__main__":
    main()
