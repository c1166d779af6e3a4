"""Tightness of guaranteed bounds and error of estimates, by the number of prefixes that are evaluated.

    python benchmarks/bounds.py [--questions 16] [--reference 400] [--quick] [--json FILE]

Beside sampler=exact stand two algorithms, written from their papers, on the same model, questions and matchers. BEAVER
(arXiv 2512.05439) expands the likeliest prefix first and bounds the probability after each step; its estimate is the
middle of its bounds. It works at one temperature: it is given as many passes at each of ten as exact has for all of
them together, and, as one frontier that expands by the mean probability over the temperatures, as many as exact. Beams
(decoding-constrained beam search, arXiv 2603.24917) give lower bounds, one beam at each temperature; what is estimated
is the bound. Neither cuts the vocabulary here, and for all of them an answer ends when nothing can make it wrong.

The truth is the mean of trees with many more nodes and other random numbers. The questions are the first of the
built-in facts that the model knows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from estimators import GRID, QUICK_ASKED, Floats, known, rms
from rich.console import Console
from rich.table import Table
from support.command import Command, write_figures
from support.counted_model import GRADER, CountedModel, setting
from support.frontier import Expanded, Searches, expanded

from robust_eval.model.base import Curve, Request
from robust_eval.model.generation import Generation
from robust_eval.model.local.batching import BatchContext
from robust_eval.model.local.exact_tree import enumerate_answers, level_budgets
from robust_eval.model.local.prefixes import PackedPrefixes
from robust_eval.model.local.prompt_encoder import PromptEncoder
from robust_eval.model.local.vocabulary import Vocabulary
from robust_eval.sampler.exact import Exact

PASSES = (16, 32, 64, 128, 256)
ASKED = 100
"""Facts among which those are looked for that the model knows."""
SHOWN = 64
"""The number of passes of which the table by temperature is."""
REFERENCE_SEEDS = (1001, 1002)
COLD = GRID <= 1
SCORES = np.vstack([np.eye(len(GRID)), np.ones(len(GRID)) / len(GRID)])
"""What best-first searches go by: the probability at each temperature, and its mean over all."""
EACH, ALL = slice(0, len(GRID)), -1
WAYS = ("exact", "beaver_each", "beaver_one", "beams")


@dataclass(frozen=True)
class Found:
    """What a way found of one question, all (passes, T) but ``passes`` (passes,): the distinct prefixes that it
    evaluated for all temperatures together.
    """

    estimate: Floats
    lower: Floats
    upper: Floats
    passes: Sequence[int]


class Asked:
    """The model and how its prompts are read, for trees of one question each."""

    def __init__(self, model: CountedModel, style: str, requests: Sequence[Request]) -> None:
        encoded = PromptEncoder(model.tokenizer, style).in_order(requests)
        self.prompts = {request.question_id: prompt for prompt, request in encoded}
        self.vocabulary: Vocabulary = model.loaded.texts.vocabularies[requests[0].first_line]
        self.generation: Generation = model.loaded.generation
        self.prefixes = PackedPrefixes(model.network, BatchContext.of(encoded).shared)

    def enumerated(self, requests: Sequence[Request]) -> list[Curve]:
        """The curves of requests that differ in seeds and budgets alone."""
        prompts = [self.prompts[request.question_id] for request in requests]
        trees = enumerate_answers(self.prefixes, requests, prompts, self.vocabulary, self.generation)
        return [tree.curve for tree in trees]

    def expanded(self, request: Request, searches: Searches) -> Expanded:
        prompt = self.prompts[request.question_id]
        return expanded(self.prefixes, request, prompt, self.vocabulary, self.generation, searches)


def main() -> None:
    command = Command(__doc__)
    command.add_argument("--questions", type=int, default=16, help="the first so many that the model knows")
    command.add_argument("--reference", type=int, default=400, help="nodes of each tree of the reference")
    options = command.options(questions=1, reference=32)
    passes = PASSES[:1] if options.quick else PASSES
    settings, facts = setting("float32")
    model = CountedModel(settings)
    questions, _ = known(model, facts[: QUICK_ASKED if options.quick else ASKED], options.questions)
    requests = Exact().requests(questions, GRADER, 0)
    asked = Asked(model, settings.prompt_style, requests)

    found: dict[str, list[Found]] = {way: [] for way in WAYS}
    references = []
    for request in requests:
        for way, of_question in searched(asked, request, passes).items():
            found[way].append(of_question)
        larger = [of_size(request, options.reference, seed) for seed in REFERENCE_SEEDS]
        references.append([_on_grid(curve)[0] for curve in asked.enumerated(larger)])
    truth = np.mean(references, axis=1)
    spread = np.std(references, axis=1, ddof=1) / np.sqrt(len(REFERENCE_SEEDS))

    shown = SHOWN if SHOWN in passes else passes[-1]
    figures = {"questions": float(len(questions)), "reference_standard_error": rms(spread)}
    for way in WAYS:
        figures |= measured(way, found[way], truth, passes, passes.index(shown))
    for count in passes:
        for peer in ("beaver_each", "beaver_one"):
            for name in ("error", "error_to_1", "width_to_1"):
                figures[f"exact_{name}_over_{peer}_{count}"] = (
                    figures[f"exact_{name}_{count}"] / figures[f"{peer}_{name}_{count}"]
                )
    console = Console(width=110)
    for table in (by_passes(figures, passes), against(figures, passes), by_temperature(figures, shown)):
        console.print(table)
    console.print(f"The reference's own standard error: {figures['reference_standard_error']:.4f}")
    write_figures(options.json, figures)


def of_size(request: Request, nodes: int, seed: int) -> Request:
    assert request.enumeration is not None
    return replace(request, seed=seed, enumeration=replace(request.enumeration, nodes=nodes))


def fitting(passes: int, levels: int) -> int:
    """The largest budget of exact with which it evaluates no more prefixes than these, the prompt's end among them."""
    return max(nodes for nodes in range(passes + levels) if 1 + sum(level_budgets(nodes, levels)) <= passes)


def searched(asked: Asked, request: Request, passes: Sequence[int]) -> dict[str, Found]:
    """What each way finds of one question."""
    levels = request.max_new_tokens - 1
    searches = Searches(GRID.tolist(), SCORES, max(passes), [(count - 1) // levels for count in passes])
    tree = asked.expanded(request, searches)
    sizes = [1 + sum(level_budgets(fitting(count, levels), levels)) for count in passes]
    trees = [of_size(request, fitting(count, levels), 0) for count in passes]
    exact = asked.enumerated(trees)
    each = [[tree.best(score, count) for score in SCORES[EACH]] for count in passes]
    of_each = [[np.diagonal(values) for values in zip(*map(tree.bounds, at), strict=True)] for at in each]
    together = [len(np.unique(np.concatenate(at))) for at in each]
    of_all = [tree.bounds(tree.best(SCORES[ALL], count)) for count in passes]
    beams = tree.beam_bounds()
    return {
        "exact": _of_curves(exact, sizes),
        "beaver_each": _of_bounds(of_each, together),
        "beaver_one": _of_bounds(of_all, passes),
        "beams": Found(beams, beams, np.ones_like(beams), tree.beams.any(axis=2).sum(axis=0).tolist()),
    }


def _of_curves(curves: Sequence[Curve], passes: Sequence[int]) -> Found:
    estimate, lower, upper = np.stack([_on_grid(curve) for curve in curves], axis=1)
    return Found(estimate, lower, upper, passes)


def _of_bounds(bounds: Sequence[Sequence[Floats]], passes: Sequence[int]) -> Found:
    lower, upper = np.array(bounds).transpose(1, 0, 2)
    return Found((lower + upper) / 2, lower, upper, passes)


def _on_grid(curve: Curve) -> Floats:
    """The estimate and both bounds (3, T) at the temperatures of the grid."""
    at = [curve.temperatures.tolist().index(t) for t in GRID.tolist()]
    return np.stack([curve.accuracy[at], curve.lower[at], curve.upper[at]])


def measured(way: str, found: Sequence[Found], truth: Floats, passes: Sequence[int], shown: int) -> dict[str, float]:
    """The figures of a way over all questions; ``truth`` is (questions, T)."""
    estimate, lower, upper = (
        np.stack([getattr(one, name) for one in found]) for name in ("estimate", "lower", "upper")
    )
    apart, width = estimate - truth[:, None], upper - lower
    beyond = np.maximum(lower - truth[:, None], truth[:, None] - upper)
    figures = {f"{way}_beyond_bounds": float(beyond.max())}
    for place, count in enumerate(passes):
        figures |= {
            f"{way}_passes_{count}": float(np.mean([one.passes[place] for one in found])),
            f"{way}_error_{count}": rms(apart[:, place]),
            f"{way}_error_to_1_{count}": rms(apart[:, place, COLD]),
            f"{way}_width_{count}": float(width[:, place].mean()),
            f"{way}_width_to_1_{count}": float(width[:, place, COLD].mean()),
        }
    for t, temperature in enumerate(GRID.tolist()):
        figures[f"{way}_error_at_{temperature:g}"] = rms(apart[:, shown, t])
        figures[f"{way}_width_at_{temperature:g}"] = float(width[:, shown, t].mean())
    return figures


def by_passes(figures: dict[str, float], passes: Sequence[int]) -> Table:
    shown = Table(title=f"{figures['questions']:.0f} known facts", title_justify="left")
    for column in ("way", "passes", "evaluated", "error", "error, t ≤ 1", "width", "width, t ≤ 1"):
        shown.add_column(column, no_wrap=True)
    for way in WAYS:
        for count in passes:
            names = ("error", "error_to_1", "width", "width_to_1")
            values = [f"{figures[f'{way}_{name}_{count}']:.4f}" for name in names]
            bounded = values if way != "beams" else [*values[:2], "", ""]
            shown.add_row(way.replace("_", " "), str(count), f"{figures[f'{way}_passes_{count}']:.0f}", *bounded)
    return shown


def against(figures: dict[str, float], passes: Sequence[int]) -> Table:
    shown = Table(title="Exact over BEAVER (each, one)", title_justify="left")
    for column in ("passes", "error", "error, t ≤ 1", "width, t ≤ 1"):
        shown.add_column(column, no_wrap=True)
    for count in passes:
        cells = [
            ", ".join(f"{figures[f'exact_{name}_over_{peer}_{count}']:.2f}" for peer in ("beaver_each", "beaver_one"))
            for name in ("error", "error_to_1", "width_to_1")
        ]
        shown.add_row(str(count), *cells)
    return shown


def by_temperature(figures: dict[str, Any], count: int) -> Table:
    shown = Table(title=f"By temperature, with {count} passes: error, and width", title_justify="left")
    shown.add_column("t")
    for way in WAYS:
        shown.add_column(way.replace("_", " "), no_wrap=True)
    for temperature in GRID.tolist():
        cells = []
        for way in WAYS:
            error, width = (figures[f"{way}_{name}_at_{temperature:g}"] for name in ("error", "width"))
            cells.append(f"{error:.4f}" if way == "beams" else f"{error:.4f}, {width:.4f}")
        shown.add_row(f"{temperature:g}", *cells)
    return shown


if __name__ == "__main__":
    main()
