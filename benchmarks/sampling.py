"""What a temperature sweep costs: the answer tree beside the library's generate, in one process, interleaved.

    python benchmarks/sampling.py [--questions 8] [--trials 10] [--rounds 3] [--json FILE]

The same questions, temperatures, trials, vocabulary (all of it), number of new tokens and weights for all. Times are
the least of the rounds, and mean little by themselves on a shared machine: read the ratios.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import hydra
import torch
from rich.console import Console
from rich.table import Table

from robust_eval import config
from robust_eval.model import cpu_linear
from robust_eval.model.transformers import Transformers, TransformersModel
from robust_eval.sampler.temperature_sweep import TemperatureSweep


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=8)
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    config.register()
    with hydra.initialize_config_dir(str(config.CONF), version_base="1.3"):
        composed = hydra.compose("config", [f"dataset.limit={options.questions}"])
    settings = config.to_config(composed)
    questions = settings.dataset.load()
    requests = TemperatureSweep(trials=options.trials).requests(questions, seed=0)

    tree = settings.model.load()
    plain = with_torch_linear(settings.model)
    half = with_dtype(settings.model, "bfloat16")
    ways: dict[str, Callable[[], object]] = {
        "tree": lambda: list(tree.complete(requests)),
        "tree, torch's linear layers": lambda: list(plain.complete(requests)),
        "tree, a row for each prefix": lambda: list(rows(tree).complete(requests)),
        "tree, bfloat16": lambda: list(half.complete(requests)),
        **{
            f"generate, {size} questions at once": lambda size=size: generate(plain, requests, size)
            for size in (1, 4)
            if size <= options.questions
        },
    }
    seconds = dict.fromkeys(ways, float("inf"))
    for _ in range(options.rounds):
        for name, way in ways.items():
            seconds[name] = min(seconds[name], timed(way))

    best = min(value for name, value in seconds.items() if name.startswith("generate"))
    figures = {
        "questions": options.questions,
        "trials": options.trials,
        "seconds_per_question_tree": seconds["tree"] / options.questions,
        "ratio_vs_generate": best / seconds["tree"],
        "ratio_vs_generate_same_linear": best / seconds["tree, torch's linear layers"],
        "ratio_vs_rows": seconds["tree, a row for each prefix"] / seconds["tree"],
        "ratio_vs_torch_linear": seconds["tree, torch's linear layers"] / seconds["tree"],
        "ratio_vs_bfloat16": seconds["tree, bfloat16"] / seconds["tree"],
        "token_forwards_per_question": token_forwards(tree, requests) / options.questions,
        "curve_rms_bfloat16": curve_difference(tree, half, requests),
    }
    table = Table(
        title=f"{options.questions} questions × 10 temperatures × {options.trials} trials", title_justify="left"
    )
    table.add_column("way")
    table.add_column("seconds a question", justify="right")
    table.add_column("times the tree", justify="right")
    for name, value in seconds.items():
        table.add_row(name, f"{value / options.questions:.3f}", f"{value / seconds['tree']:.2f}")
    console = Console()
    console.print(table)
    for name, value in figures.items():
        console.print(f"{name}: {value:.4g}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


def timed(way: Callable[[], object]) -> float:
    start = time.perf_counter()
    way()
    return time.perf_counter() - start


def with_torch_linear(settings: Transformers) -> TransformersModel:
    """The model as torch runs it, whatever was measured to be faster."""
    faster, cpu_linear.use_faster_linear = cpu_linear.use_faster_linear, lambda model: "torch"
    try:
        return settings.load()
    finally:
        cpu_linear.use_faster_linear = faster


def with_dtype(settings: Transformers, dtype: str) -> TransformersModel:
    return Transformers(**{**vars(settings), "dtype": dtype}).load()


def rows(model: TransformersModel) -> TransformersModel:
    """The same model, told that it cannot pack."""
    told = TransformersModel.__new__(TransformersModel)
    told.__dict__ = {**model.__dict__, "_packs": False, "_checked_length": 1 << 30}
    return told


@torch.inference_mode()
def generate(model: TransformersModel, requests: list, size: int) -> None:
    """One call of the library for each temperature and batch of questions."""
    tokenizer = model.tokenizer
    tokenizer.padding_side = "left"
    ends = torch.nonzero(model._vocabulary.ends).flatten().tolist()
    for start in range(0, len(requests), size):
        block = requests[start : start + size]
        inputs = tokenizer([request.prompt.text() for request in block], return_tensors="pt", padding=True)
        for temperature in block[0].temperatures:
            model.model.generate(
                **inputs,
                do_sample=True,
                temperature=temperature,
                top_k=0,
                top_p=1.0,
                num_return_sequences=block[0].trials,
                max_new_tokens=block[0].max_new_tokens,
                eos_token_id=ends,
                pad_token_id=tokenizer.pad_token_id,
            )


def token_forwards(model: TransformersModel, requests: list) -> int:
    """Tokens that the tree evaluates: each question's own once, and every distinct prefix of its answers once."""
    prompts = [model._encode(request.prompt) for request in requests]
    shared = next(i for i, column in enumerate(zip(*prompts, strict=False)) if len(set(column)) > 1)
    count = shared + sum(len(prompt) - shared for prompt in prompts)
    for _, completions in model.complete(requests):
        prefixes = {tuple(c.token_ids[:length]) for c in completions for length in range(1, len(c.token_ids))}
        count += len(prefixes)
    return count


def curve_difference(one: TransformersModel, other: TransformersModel, requests: list) -> float:
    """Root-mean-square difference, over questions and temperatures, of the share of trials that repeat the greedy text.

    With the same random numbers, what differs is the number format and the answers that it flips.
    """
    squares = []
    found = [{request.question_id: completions for request, completions in m.complete(requests)} for m in (one, other)]
    for request in requests:
        first, second = (answers[request.question_id] for answers in found)
        reference = first[0].text
        for temperature in request.temperatures:
            shares = [
                sum(c.text == reference for c in completions if c.temperature == temperature) / request.trials
                for completions in (first, second)
            ]
            squares.append((shares[0] - shares[1]) ** 2)
    return float(torch.tensor(squares).mean().sqrt())


if __name__ == "__main__":
    main()
