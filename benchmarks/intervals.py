"""Coverage of 95 % intervals: shares and mean scores, alone and in groups.

    python benchmarks/intervals.py [--simulations 2000] [--quick] [--json FILE]

Questions of a group share a probability of being right, drawn from a beta distribution with a correlation of 0.3
between two of them; FRS scores of a group are correlated as much. Beside the intervals that runs report stand those of
the percentile bootstrap over the same units. A second table has the intervals of the variance components of answers to
questions with rewrites and trials, whose chances are drawn from beta distributions.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from support.command import Command, write_figures

from robust_eval.sampler.temperature_sweep import TemperatureSweep
from robust_eval.stats.frs import factual_robustness_score
from robust_eval.stats.interval import SHARE, bootstrap, mean_bounds
from robust_eval.stats.variance import variance_components

CORRELATION = 0.3
BOOTSTRAP_RESAMPLES = 500
ASKED = ((20, 1), (50, 1), (200, 1), (60, 4), (200, 4), (200, 10))
"""Questions, and how many of them make a group."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Kind:
    """A figure whose true value is known, and how to draw its values of the questions of so many groups."""

    name: str
    true: float
    draw: Callable[[np.random.Generator, int, int], Floats]


def share(true: float) -> Kind:
    """Return right and wrong answers of which a share is right."""
    prior = (1 - CORRELATION) / CORRELATION

    def draw(generator: np.random.Generator, groups: int, size: int) -> Floats:
        chances = generator.beta(true * prior, (1 - true) * prior, groups) if size > 1 else np.full(groups, true)
        return (generator.random(groups * size) < np.repeat(chances, size)).astype(float)

    return Kind(f"share {true:g}", true, draw)


def mean_frs(unbroken: float) -> Kind:
    """Return scores of facts of which a share never breaks."""
    generator = np.random.default_rng(1)
    grid = np.array(TemperatureSweep().temperatures)
    entropy = np.minimum(generator.gamma(0.6, 0.4, 20_000), 1.0)
    breaking = np.where(generator.random(20_000) < unbroken, math.inf, generator.choice(grid, 20_000))
    scores = np.sort(factual_robustness_score(entropy, breaking, d=1))

    def draw(generator: np.random.Generator, groups: int, size: int) -> Floats:
        shared = CORRELATION if size > 1 else 0.0
        common = np.repeat(generator.normal(size=groups), size) * math.sqrt(shared)
        place = stats.norm.cdf(common + generator.normal(size=groups * size) * math.sqrt(1 - shared))
        return scores[(place * len(scores)).astype(int)]

    return Kind(f"mean FRS, {unbroken:.0%} unbroken", float(scores.mean()), draw)


def coverage(kind: Kind, n: int, size: int, simulations: int) -> tuple[float, float]:
    """Return how often the reported interval holds the true value, and how often the bootstrap's does."""
    generator, held = np.random.default_rng(0), np.zeros(2)
    groups = np.repeat(np.arange(n // size), size) if size > 1 else None
    for seed in range(simulations):
        values = kind.draw(generator, n // size, size)
        units = values.reshape(-1, size).mean(axis=1)
        intervals = (
            mean_bounds(values, SHARE, groups),
            bootstrap(np.mean, units, seed=seed, resamples=BOOTSTRAP_RESAMPLES),
        )
        held += [low <= kind.true <= high for low, high in intervals]
    return float(held[0]) / simulations, float(held[1]) / simulations


REWRITES, TRIALS = 3, 4
SPREAD, REWRITE_SPREAD = (2.0, 1.0), 8.0
"""Parameters of the beta distribution of a question's chance, and the sum of those of its rewrites' chances."""


def component_coverage(questions: int, simulations: int, resamples: int) -> tuple[list[float], list[float]]:
    """Return how often the intervals of the components of questions, rewrites and trials hold the true values, and how
    often those of the percentile bootstrap over questions do, in a tenth of the simulations.
    """
    generator = np.random.default_rng(0)
    a, b = SPREAD
    mixed = a * b / ((a + b) * (a + b + 1))  # mean of p (1 - p)
    between = mixed / (a + b)
    true = np.array([between, mixed / (REWRITE_SPREAD + 1), mixed * REWRITE_SPREAD / (REWRITE_SPREAD + 1)])
    shape = (questions, REWRITES, TRIALS)
    question, rewrite, _ = np.indices(shape).reshape(3, -1)
    held, others, resampled = np.zeros(3), np.zeros(3), max(1, simulations // 10)
    for simulation in range(simulations):
        chance = generator.beta(a, b, (questions, 1))
        wording = generator.beta(chance * REWRITE_SPREAD, (1 - chance) * REWRITE_SPREAD, shape[:2])
        right = (generator.random(shape) < wording[:, :, None]).astype(float)
        estimates = variance_components(right.ravel(), question, rewrite)
        held += [low <= value <= high for (_, low, high), value in zip(estimates, true, strict=True)]
        if simulation < resampled:
            drawn = [right[generator.integers(questions, size=questions)] for _ in range(resamples)]
            values = [[each.value for each in variance_components(one.ravel(), question, rewrite)] for one in drawn]
            low, high = np.quantile(values, [0.025, 0.975], axis=0)
            others += (low <= true) & (true <= high)
    return (held / simulations).tolist(), (others / resampled).tolist()


def main() -> None:
    command = Command(__doc__)
    command.add_argument("--simulations", type=int, default=2000)
    options = command.options(simulations=20)
    kinds = [share(0.5), share(0.9), share(0.97), mean_frs(0.3), mean_frs(0.9)]
    figures: dict[str, float] = {"simulations": options.simulations, "correlation": CORRELATION, "level": 0.95}
    print(f"coverage of 95 % intervals, {options.simulations} simulations (in brackets the percentile bootstrap)")
    print("| figure | " + " | ".join(f"{n}" if size == 1 else f"{n} in groups of {size}" for n, size in ASKED) + " |")
    print("| --- " * (1 + len(ASKED)) + "|")
    for kind in kinds:
        cells = []
        for n, size in ASKED:
            ours, others = coverage(kind, n, size, options.simulations)
            asked = f"{kind.name}, {n} questions, groups of {size}"
            figures |= {asked: ours, f"{asked}, bootstrap": others}
            cells.append(f"{ours:.1%} ({others:.1%})")
        print(f"| {kind.name} | " + " | ".join(cells) + " |", flush=True)
    print("\n| component | 20 questions | 50 | 200 |\n| --- | --- | --- | --- |")
    counts = (20, 50, 200)
    found = {
        n: component_coverage(n, options.simulations, BOOTSTRAP_RESAMPLES if options.simulations > 20 else 5)
        for n in counts
    }
    for place, name in enumerate(("questions", "rewrites", "trials")):
        cells = []
        for n, (ours, others) in found.items():
            asked = f"variance between {name}, {n} questions"
            figures |= {asked: ours[place], f"{asked}, bootstrap": others[place]}
            cells.append(f"{ours[place]:.1%} ({others[place]:.1%})")
        print(f"| {name} | " + " | ".join(cells) + " |")
    write_figures(options.json, figures)


if __name__ == "__main__":
    main()
