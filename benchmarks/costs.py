"""Cost model of a block of questions on a device, checked against counters here, and worked out for an H100.

    python benchmarks/costs.py [--questions 16] [--quick] [--json FILE]

While the embedded model answers on the CPU, every kernel is counted, with its FLOP and the bytes that it reads and
writes, and every place where the processor would wait for a device. Blocks of questions and batches of logits are as
large as on a GPU, and sums over the vocabulary count as the kernels of a GPU. The formulas beside them are those of
docs/development/performance.md. The second table is of a model of almost no cost: one layer of width 64 with random
weights, and a vocabulary of 128,000. It has the milliseconds of one processor core for a question of a block of 64,
around the model and without torch's operators, which a GPU would execute. They are not executed here either; their
results were recorded by a run in another process. With random weights it hardly ever writes a right answer; in the last
row it is biased towards three cities and a number, one of which is the accepted answer to each question.

The third table puts the shapes of larger models into the formulas, with what was counted here of prefixes, kernels and
waits, for a block of 128 questions on an H100. gpu.py says what a GPU took.
"""

import ctypes
import gc
import hashlib
import pickle
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from itertools import cycle
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from support.command import Command, write_figures
from support.counted_model import GRADER, CountedModel, answered, setting, tiny, warm_up
from support.op_counter import OpCounter, counted
from support.replay import Recorder, Replay, reads
from support.shape import Shape
from support.widened import of_shape
from torch import Tensor
from transformers import AutoModelForCausalLM

from robust_eval.model.base import Floats, Reply, Request
from robust_eval.model.local import batching, device, draw, settings, tempered
from robust_eval.model.local.device import sent
from robust_eval.model.local.tempered import LogitHistogram
from robust_eval.model.local.transformers_model import TransformersModel
from robust_eval.model.local.vocabulary import OTHER, OutcomeTable
from robust_eval.question import Question
from robust_eval.sampler.exact import Exact
from robust_eval.sampler.temperature_sweep import TemperatureSweep

FLOPS, BANDWIDTH, MEMORY = 989e12, 3.35e12, 80e9
"""Of an H100 (SXM): dense bfloat16, and its memory; NVIDIA's data sheet."""
KERNEL, WAIT = 5e-6, 20e-6
"""Seconds of the processor for a kernel that it launches, and for one that it waits for: assumed, not measured."""
IN_FLIGHT, BLOCK, BLOCK_ON_GPU = 16, 64, 128
"""Questions of a block in the first table, in the second, and in the third."""
LEVELS = 5
BATCH = 2**31
"""Bytes of a batch of logits, as on a device with 64 GiB."""
LOGIT = 4
"""Bytes of a logit, which is float32 whatever the weights are."""


LARGER = {
    "1B": Shape(16, 2048, 32, 8, 64, 8192, 128_256),
    "8B": Shape(32, 4096, 32, 8, 128, 14_336, 128_256),
    "14B": Shape(48, 5120, 40, 8, 128, 13_824, 152_064),
}
"""Llama 3.2 1B, Llama 3.1 8B, Qwen2.5 14B."""
GOALS = {"exact": 10, "exact24": 4, "tree": 9}
"""Target time per question in milliseconds, 8B model on an H100."""
NO_COST = Shape(1, 64, 4, 2, 16, 128, 128_000, 4)
INITIALIZER_RANGE = 0.6
"""Standard deviation of the random weights: some tokens are likely, as of a real model."""
ANSWERS, BIAS = ("Paris", "London", "Berlin", "seven"), 20.0
"""Words towards which the model of almost no cost is biased, and by how much: many of its answers are right."""
RIGHT_ANSWERS = "exact_right_answers"
M_MMAP_MAX, M_TRIM_THRESHOLD = -4, -1
"""Options of glibc's mallopt."""


def main() -> None:
    command = Command(__doc__)
    command.add_argument("--questions", type=int, default=IN_FLIGHT, help="that are in flight together")
    options = command.options(questions=1)
    of_model, facts = setting("float32")
    with tempfile.TemporaryDirectory() as folder:
        model = CountedModel(tiny(of_model, folder) if options.quick else of_model)
    asked = facts[: options.questions]
    ways = {way: requests_of(way, asked, options.quick) for way in GOALS}
    shape = shape_of(model)
    figures: dict[str, float] = {"questions": len(asked), "block_on_gpu": BLOCK_ON_GPU}
    figures |= {f"8B_{way}_goal_ms": goal for way, goal in GOALS.items()}
    replies: list[Reply] = []
    for way, of_way in ways.items():
        replies = list(answered(model.loaded, of_way))  # once before: what is checked once is no part of it
        figures |= {f"{way}_{name}": value for name, value in of_run(model, shape, of_way).items()}
    written = [len(one.token_ids or ()) for reply in replies for one in reply.completions]
    figures["trials_tokens"] = sum(max(0, length - 1) for length in written) / len(asked)
    figures["prompt_tokens"] = float(np.mean([reply.completions[0].prompt_tokens for reply in replies]))
    for name, larger in LARGER.items():
        figures |= {f"{name}_{key}": value for key, value in worked_out(larger, figures).items()}
    console = Console(width=110)
    console.print(counters(figures, list(ways)))
    around_them = ("exact", "tree", RIGHT_ANSWERS)
    figures |= {f"{way}_around_ms": processor_milliseconds(way, options.quick) for way in around_them}
    console.print(around(figures, around_them))
    console.print(on_gpu(figures))
    write_figures(options.json, figures)


class CountedSums:
    """Sums over the vocabulary that count as Triton's kernels; the histogram of the CPU computes them."""

    def __init__(self, counter: OpCounter, temperatures: Sequence[float], table: OutcomeTable, rows: int) -> None:
        arrays = table.usual, table.rows, table.places, table.outcomes, table.states
        usual, of_states, places, outcomes, _ = sent(torch.device("cpu"), *arrays)  # as TritonSums does
        usual.index_select(0, of_states).view(-1).index_copy_(0, places, outcomes)
        self._counter, self._outcomes = counter, table.count
        # built at its first use, inside a counted kernel
        self._sums = cache(partial(LogitHistogram, temperatures, table, rows))

    def totals(self, x: Tensor) -> Tensor | None:
        self._size = x.numel()
        return self._counter.kernel(LOGIT * self._size, lambda: self._sums().totals(x))

    def of_outcomes(self, part: slice) -> Tensor | None:  # which reads hardly any logits
        return self._counter.kernel(self._outcomes * self._size, lambda: self._sums().of_outcomes(part))

    def importance(self, weights: Tensor, out: Tensor, part: slice, factors: Floats) -> None:
        sent(out.device, factors)
        size = (1 + 2 * LOGIT) * out.numel()
        self._counter.kernel(size, lambda: self._sums().importance(weights, out, part, factors))

    def likeliest(self, logits: Tensor, part: slice, first: int) -> Tensor | None:
        size = (1 + self._outcomes - first + LOGIT * (first == OTHER)) * logits.numel()
        return self._counter.kernel(size, lambda: self._sums().likeliest(logits, part, first))


def shape_of(model: CountedModel) -> Shape:
    config = model.network.config
    heads, hidden = config.num_attention_heads, config.hidden_size
    return Shape(
        config.num_hidden_layers,
        hidden,
        heads,
        config.num_key_value_heads,
        hidden // heads,
        config.intermediate_size,
        model.network.get_output_embeddings().weight.shape[0],
        4,
    )


def of_run(model: CountedModel, shape: Shape, requests: Sequence[Request]) -> dict[str, float]:
    """What was counted while the requests were answered, and what the formulas say; by question or by level."""
    before = model.work()
    counting = counted(model.network.base_model, model.network.get_output_embeddings(), OpCounter())
    with counting as counter, as_on_gpu(counter):
        replies = list(answered(model.loaded, requests))
    work, total = model.work() - before, counter.total
    prompt = float(np.mean([reply.completions[0].prompt_tokens or 0 for reply in replies]))
    rows, tokens, passes = work["head_tokens"], work["tokens"], work["passes"]
    flop = shape.flop(tokens, rows, tokens * (prompt + requests[0].max_new_tokens / 2))
    found = total["body_flop"] + total["head_flop"]
    return {
        "prefixes": rows / len(requests),
        "tokens": tokens / len(requests),
        "gflop": found / len(requests) / 1e9,
        "flop_over_formula": found / flop,
        "kernels_a_pass_and_layer": total["body_kernels"] / passes / shape.layers,
        "kernels_around_a_level": total["outside_kernels"] / LEVELS,
        "waits": float(total["outside_waits"] + total["body_waits"]),
        "weights_share": passes * shape.weights * shape.item / total["body_bytes"],
        "passes": float(passes),
        "rows_a_prefix": total["outside_bytes"] / rows / (shape.vocabulary * LOGIT),
    }


@contextmanager
def as_on_gpu(counter: OpCounter) -> Iterator[None]:
    """Blocks of questions and batches of logits are as large as on a GPU, and sums over the vocabulary are kernels."""
    with (
        patch.object(tempered, "LogitHistogram", partial(CountedSums, counter)),
        patch.object(device, "BYTES_PER_BATCH", BATCH),
        patch.object(draw, "PAIRS_PER_BATCH", BATCH // (LOGIT * NO_COST.vocabulary)),
        patch.dict(tempered.ROWS_PER_BATCH, {False: sys.maxsize}),
        patch.dict(batching.BLOCK_SIZES, {False: batching.BLOCK_SIZES[True]}),
        patch.dict(settings.MAX_ANSWERS_AT_ONCE, {False: settings.MAX_ANSWERS_AT_ONCE[True]}),
    ):
        yield


def requests_of(way: str, asked: Sequence[Question], quick: bool) -> list[Request]:
    if way in ("exact", RIGHT_ANSWERS):
        return Exact(nodes=24 if quick else Exact.nodes).requests(asked, GRADER, 0)
    if way == "exact24":
        return Exact(nodes=24).requests(asked, GRADER, 0)
    return TemperatureSweep(trials=2 if quick else 10).requests(asked, GRADER, 0)


def processor_milliseconds(way: str, quick: bool) -> float:
    """Milliseconds of the processor for a question around a model of no cost, without the operators of torch."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recording"
        process = get_context("spawn").Process(target=record, args=(way, quick, path))
        process.start()
        process.join()
        if process.exitcode:
            raise SystemExit(process.exitcode)
        recording, recorded = pickle.loads(path.read_bytes())
    gc.collect()
    gc.freeze()  # the recording is not part of the run
    model, further = no_cost(way, quick)
    network = model.model
    counting = counted(network.base_model, network.get_output_embeddings(), Replay(recording))
    with reads(recording, replayed=True):
        with counting as timer, as_on_gpu(timer):
            replies = list(answered(model, further))
        milliseconds = timer.around() / 1e6 / len(further)
    if digest(replies) != recorded:
        raise RuntimeError("the replies are not those of the recorded run")
    return milliseconds


def record(way: str, quick: bool, path: Path) -> None:
    """Record the operators of a run, what the processor reads of them, and the replies."""
    model, further = no_cost(way, quick)
    network, recorder = model.model, Recorder()
    counting = counted(network.base_model, network.get_output_embeddings(), recorder)
    with reads(recorder.recording, replayed=False), counting, as_on_gpu(recorder):
        replies = list(answered(model, further))
    path.write_bytes(pickle.dumps((recorder.recording, digest(replies))))


def digest(replies: Sequence[Reply]) -> str:
    return hashlib.sha256(repr([reply.completions for reply in replies]).encode()).hexdigest()


def no_cost(way: str, quick: bool) -> tuple[TransformersModel, list[Request]]:
    """A model of no cost that has answered other questions, and requests for a block."""
    torch.set_num_threads(1)
    if sys.platform == "linux":  # memory stays with the process: fresh pages would cost more than all else
        for option, value in ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, -1)):
            ctypes.CDLL(None).mallopt(option, value)
    of_model, facts = setting("float32")
    with tempfile.TemporaryDirectory() as folder:
        small = (tiny(of_model, folder) if quick else of_model).load()
    shape = replace(NO_COST, vocabulary=small.model.config.vocab_size) if quick else NO_COST
    config = of_shape(small.model.config, shape)
    config.initializer_range = INITIALIZER_RANGE
    torch.manual_seed(0)
    network = AutoModelForCausalLM.from_config(config).eval()
    network.generation_config = small.model.generation_config
    if way == RIGHT_ANSWERS:
        head = network.get_output_embeddings()
        bias = torch.zeros(head.out_features)
        likely = [small.tokenizer(f" {word}", add_special_tokens=False).input_ids[0] for word in ANSWERS]
        bias[[*likely, small.tokenizer.eos_token_id]] = BIAS
        head.bias = torch.nn.Parameter(bias, requires_grad=False)
        facts = [replace(fact, answers=(word,)) for fact, word in zip(facts, cycle(ANSWERS), strict=False)]
    model = TransformersModel(small.config, network, small.tokenizer)
    first, block = (1, 1) if quick else (IN_FLIGHT, BLOCK)
    further = requests_of(way, facts[first : first + block], quick)
    with as_on_gpu(OpCounter()):
        for requests in (requests_of(way, facts[:first], quick), warm_up(further, small.tokenizer)):
            list(answered(model, requests))
    return model, further


def worked_out(shape: Shape, figures: dict[str, float]) -> dict[str, float]:
    """Milliseconds that a question of a block takes on the GPU, by cause, and how many questions fit and pay."""
    found: dict[str, float] = {}
    prompt = figures["prompt_tokens"]
    for way in (*GOALS, "trials"):
        # of the prompt's last token, too, there are logits, and it is the first of the prefixes
        drawn = figures["trials_tokens"] if way == "trials" else figures[f"{way}_prefixes"] - 1
        tokens, rows = prompt + drawn, drawn + 1
        passes = LEVELS + 1 if way == "trials" else figures[f"{way}_passes"]
        read = LEVELS * prompt if way != "trials" else drawn * prompt  # keys and values of prompts
        logits = (figures[f"{way}_rows_a_prefix"] if way != "trials" else 0) * rows * shape.vocabulary * LOGIT
        weights = (shape.weights + shape.head) * shape.item
        flop = shape.flop(tokens, rows, tokens * (prompt + LEVELS / 2))
        size = passes * weights / BLOCK_ON_GPU + read * shape.cached + logits
        found |= {f"{way}_flop_ms": 1e3 * flop / FLOPS, f"{way}_bytes_ms": 1e3 * size / BANDWIDTH}
        if way != "trials":
            kernels = passes * shape.layers * figures[f"{way}_kernels_a_pass_and_layer"]
            kernels += LEVELS * figures[f"{way}_kernels_around_a_level"]
            found[f"{way}_kernels_ms"] = 1e3 * KERNEL * kernels / BLOCK_ON_GPU
            found[f"{way}_waits_ms"] = 1e3 * WAIT * figures[f"{way}_waits"] / BLOCK_ON_GPU
        found[f"{way}_fit"] = float((MEMORY - weights) / 2 // ((prompt + drawn) * 2 * shape.cached))
        found[f"{way}_pay"] = FLOPS / BANDWIDTH * shape.item / 2 * LEVELS / drawn
    return found


def counters(figures: dict[str, Any], ways: Sequence[str]) -> Table:
    columns = {
        "prefixes": ("prefixes", ".0f"),
        "tokens": ("tokens", ".0f"),
        "GFLOP": ("gflop", ".1f"),
        "over the formula": ("flop_over_formula", ".3f"),
        "kernels a layer": ("kernels_a_pass_and_layer", ".1f"),
        "around, a level": ("kernels_around_a_level", ".1f"),
        "waits": ("waits", ".0f"),
        "rows of logits": ("rows_a_prefix", ".0f"),
        "weights in bytes": ("weights_share", ".0%"),
    }
    shown = Table(title=f"Counted here, {figures['questions']} questions in flight", title_justify="left")
    shown.add_column("way", no_wrap=True)
    for title in columns:
        shown.add_column(title, justify="right")
    for way in ways:
        cells = [format(figures[f"{way}_{name}"], form) for name, form in columns.values()]
        shown.add_row(way.replace("_", " "), *cells)
    return shown


def around(figures: dict[str, Any], ways: Sequence[str]) -> Table:
    shown = Table(title="A model of no cost: milliseconds of the processor for a question", title_justify="left")
    for column in ("way", "around the model, without operators"):
        shown.add_column(column, justify="right")
    for way in ways:
        name = "exact, right answers" if way == RIGHT_ANSWERS else way
        shown.add_row(name, f"{figures[f'{way}_around_ms']:.2f}")
    return shown


def on_gpu(figures: dict[str, Any]) -> Table:
    title = f"An H100 by the formulas, a block of {figures['block_on_gpu']}: milliseconds a question, and questions"
    shown = Table(title=title, title_justify="left")
    for column in ("model", "way", "goal", "FLOP", "bytes", "kernels", "waits", "fit", "pay from"):
        shown.add_column(column, justify="right", no_wrap=True)
    for name in LARGER:
        for way in (*GOALS, "trials"):
            cells = []
            for key in ("goal", "flop", "bytes", "kernels", "waits"):
                value = figures.get(f"{name}_{way}_{key}_ms")
                cells.append("" if value is None else format(value, ".0f" if key == "goal" else ".2f"))
            fit, pay = (figures[f"{name}_{way}_{key}"] for key in ("fit", "pay"))
            shown.add_row(name, way, *cells, f"{fit:.0f}", f"{pay:.0f}")
    return shown


if __name__ == "__main__":
    main()
