"""How often 95 % intervals hold the true value: shares and mean scores, alone and in groups.

    python benchmarks/intervals.py [--simulations 2000] [--quick] [--json FILE]

Questions of a group share a probability of being right, drawn from a beta distribution with a correlation of 0.3
between two of them; FRS scores of a group are correlated as much. Beside the intervals that runs report stand those of
the percentile bootstrap over the same units.
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
    write_figures(options.json, figures)


if __name__ == "__main__":
    main()
