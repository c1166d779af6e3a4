"""Error and cost of each estimator of an accuracy curve: trials and exact.

    python benchmarks/estimators.py [--questions 48] [--nodes 128] [--quick] [--json FILE]

The truth is a reference that has nothing in common with them but the model: enumerations with many more nodes and other
random numbers, averaged; its own error is printed beside. Exact is run with three seeds, with all nodes, with few, and
until it is as precise as wanted. The questions are the first of the built-in facts that the
model knows, for the others have no curve to speak of. Errors are root-mean-square over questions, and over the
temperatures of the grid for the accuracy; an unbroken fact counts as breaking one step beyond the grid.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from support.command import Command, write_figures
from support.counted_model import GRADER, CountedModel, answered, setting

from robust_eval.metric.frs_metric import FactualRobustness
from robust_eval.metric.score import grid
from robust_eval.model.base import Reply, Request
from robust_eval.model.reply_tables import answers_of
from robust_eval.question import Question
from robust_eval.sampler.exact import Exact
from robust_eval.sampler.temperature_sweep import TemperatureSweep
from robust_eval.stats.frs import breaking_temperature, factual_robustness_score

REFERENCE_NODES = 400
FEW_NODES = 24
PRECISION = 0.05
SEEDS = (0, 1, 2)
QUICK_ASKED = 8
REFERENCE_SEEDS = (1001, 1002, 1003)
Floats = NDArray[np.float64]
SWEEP = TemperatureSweep()
GRID = np.array(SWEEP.temperatures)


@dataclass(frozen=True)
class Found:
    """What a way found: ``accuracy`` (questions, temperatures), the standard error that it claims, and its cost."""

    accuracy: Floats
    error: Floats
    forwards: float
    seconds: float


def main() -> None:
    command = Command(__doc__)
    command.add_argument("--questions", type=int, default=48, help="the first so many that the model knows")
    command.add_argument("--nodes", type=int, default=Exact.nodes, help="prefixes that exact may evaluate")
    options = command.options(questions=1, nodes=8)

    settings, asked = setting("float32")
    model = CountedModel(settings)
    questions, entropy = known(model, asked[:QUICK_ASKED] if options.quick else asked, options.questions)

    sweeps = {k: TemperatureSweep(trials=k) for k in ((10, 11) if options.quick else (10, 100))}
    found: dict[str, list[Found]] = {}
    for k, sweep in sweeps.items():
        found[f"sampled_k{k}"] = [sampled(model, questions, sweep)]
    ways = {
        "exact": Exact(nodes=options.nodes),
        "exact_few": Exact(nodes=FEW_NODES),
        "exact_precise": Exact(nodes=options.nodes, precision=PRECISION),
    }
    for name, exact in ways.items():
        found[name] = [run(model, exact.requests(questions, GRADER, seed), curve_values) for seed in SEEDS]
    nodes = options.nodes if options.quick else REFERENCE_NODES
    reference = [
        run(model, Exact(nodes=nodes).requests(questions, GRADER, seed), curve_values).accuracy
        for seed in REFERENCE_SEEDS
    ]
    truth = np.mean(reference, axis=0)
    spread = np.std(reference, axis=0, ddof=1) / np.sqrt(len(reference))

    figures: dict[str, float] = {
        "questions": len(questions),
        "nodes": options.nodes,
        "few_nodes": FEW_NODES,
        "precision": PRECISION,
        "reference_standard_error": rms(spread),
    }
    for name, runs in found.items():
        of_each = [errors(one, truth, entropy) for one in runs]
        figures |= {f"{key}_{name}": mean(key, [each[key] for each in of_each]) for key in of_each[0]}
    console = Console(width=110)
    console.print(table(found, figures))
    console.print(f"The reference's own standard error: {figures['reference_standard_error']:.4f}")
    for name in ways:
        figures[f"{name}_over_sampled_k10"] = figures[f"rmse_{name}"] / figures["rmse_sampled_k10"]
        console.print(f"{name}: {figures[f'{name}_over_sampled_k10']:.3f} of the error of ten trials")
    for name in ways:
        beyond = np.stack([past_interval(one, truth, spread) for one in found[name]])
        figures[f"coverage_{name}"] = float((beyond <= 1e-6).mean())
        figures[f"coverage_to_a_thousandth_{name}"] = float((beyond <= 1e-3).mean())
        console.print(
            f"{name}: {(beyond <= 1e-6).mean():.1%} of its intervals hold the truth, "
            f"{(beyond <= 1e-3).mean():.1%} miss it by no more than a thousandth"
        )
    write_figures(options.json, figures)


def known(model: CountedModel, questions: Sequence[Question], count: int) -> tuple[list[Question], Floats]:
    """The first questions that the model answers rightly when greedy, and their initial entropies."""
    requests = [SWEEP.baseline_request(question, GRADER, seed=0, min_logprobs=10) for question in questions]
    replies = {reply.request.question_id: reply for reply in answered(model.loaded, requests)}
    tables = {question.id: GRADER.grade([question], answers_of([replies[question.id]])[0]) for question in questions}
    kept = [question for question in questions if tables[question.id]["exact"][0].as_py()][:count]
    entropy = [FactualRobustness().initial_entropy([q.id], tables[q.id])[0] for q in kept]
    return kept, np.array(entropy)


def run(model: CountedModel, requests: Sequence[Request], read: Callable[[Reply], Floats]) -> Found:
    """The answers to requests; ``read`` makes (2, T) accuracies and standard errors of each reply, NaN for none."""
    before, start = Counter(model.work()), time.perf_counter()
    replies = {reply.request.question_id: reply for reply in answered(model.loaded, requests)}
    seconds = (time.perf_counter() - start) / len(requests)
    forwards = (model.work() - before)["tokens"] / len(requests)
    values = np.stack([read(replies[request.question_id]) for request in requests])
    return Found(values[:, 0], values[:, 1], forwards, seconds)


def curve_values(reply: Reply) -> Floats:
    assert reply.curve is not None
    at = [reply.curve.temperatures.tolist().index(t) for t in GRID.tolist()]
    return np.stack([reply.curve.accuracy[at], reply.curve.standard_error[at]])


def sampled(model: CountedModel, questions: Sequence[Question], sweep: TemperatureSweep) -> Found:
    """Trials, counted."""
    by_id = {question.id: question for question in questions}

    def read(reply: Reply) -> Floats:
        name = reply.request.question_id
        accuracy = grid([name], GRADER.grade([by_id[name]], answers_of([reply])[0])).accuracy[0]
        return np.stack([accuracy, np.full_like(accuracy, np.nan)])

    return run(model, sweep.requests(questions, GRADER, 0), read)


def mean(key: str, values: Sequence[float]) -> float:
    """The mean of a figure over runs that differ in their seeds; of errors, the root of the mean square."""
    return rms(np.array(values)) if key.startswith("rmse") else float(np.mean(values))


def past_interval(way: Found, truth: Floats, spread: Floats) -> Floats:
    """How far the truth, which is itself uncertain by ``spread``, lies beyond the 95 % interval of each accuracy."""
    return np.abs(way.accuracy - truth) - 1.96 * np.hypot(way.error, spread)


def errors(way: Found, truth: Floats, entropy: Floats) -> dict[str, float]:
    accuracy = np.clip(way.accuracy, 0, 1)
    breaks, true_breaks = (np.minimum(breaking_temperature(a, GRID), 2.2) for a in (accuracy, np.clip(truth, 0, 1)))
    scores, true_scores = (factual_robustness_score(entropy, t, 1) for t in (breaks, true_breaks))
    return {
        "rmse": rms(way.accuracy - truth),
        "rmse_breaking": rms(breaks - true_breaks),
        "rmse_frs": rms(scores - true_scores),
        "wrong_breaking": float((breaks != true_breaks).mean()),
        "forwards": way.forwards,
        "seconds": way.seconds,
    }


def rms(values: Floats) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def table(found: dict[str, Found], figures: dict[str, Any]) -> Table:
    shown = Table(title=f"Errors over {figures['questions']} known facts, and cost per question", title_justify="left")
    shown.add_column("estimate", no_wrap=True)
    columns = {
        "rmse": "accuracy",
        "rmse_breaking": "t_b",
        "rmse_frs": "FRS, d = 1",
        "wrong_breaking": "t_b wrong",
        "forwards": "token-forwards",
        "seconds": "seconds",
    }
    for title in columns.values():
        shown.add_column(title, justify="right", no_wrap=True)
    forms = {"wrong_breaking": ".0%", "forwards": ".0f", "seconds": ".2f"}
    for name in found:
        shown.add_row(
            name.replace("_", ", "), *(format(figures[f"{key}_{name}"], forms.get(key, ".4f")) for key in columns)
        )
    return shown


if __name__ == "__main__":
    main()
