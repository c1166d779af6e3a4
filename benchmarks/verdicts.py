"""Frequency of wrong verdicts: FAILs and PASSes of a candidate at the margin, FAILs where it is twice as far away.

    python benchmarks/verdicts.py [--simulations 2000] [--facts 2000] [--quick] [--json FILE]

Differences are made up, with a mean that is known. Of FRS they are those of two models of which each fact breaks at
any two temperatures of the grid, or at none, where it does not break alike in both. Of right and wrong they are -1, 0
and 1. ``verdict`` judges once, at the number of facts that it needs; the confidence sequence is looked at after each
block of ten.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray
from support.command import Command, write_figures

from robust_eval.sampler.temperature_sweep import TemperatureSweep
from robust_eval.stats.frs import factual_robustness_score
from robust_eval.stats.non_inferiority import confidence_sequence, verdict

MARGIN = 0.02
BLOCK = 10
MOST_FALSE, LEAST_FOUND = 0.032, 0.85
ENTROPIES = (0.05, 0.2, 0.5)
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Differences:
    """A ``share`` of facts differ by one of the ``sizes``, up or down, and the others not at all."""

    share: float
    sizes: Floats

    def draw(self, generator: np.random.Generator, mean: float, facts: int) -> Floats:
        up = (1 + mean / (self.share * self.sizes.mean())) / 2
        signs = np.where(generator.random(facts) < up, 1.0, -1.0)
        return np.where(generator.random(facts) < self.share, signs * generator.choice(self.sizes, facts), 0.0)

    def variance(self, mean: float) -> float:
        return float(self.share * np.mean(self.sizes**2) - mean**2)


def main() -> None:
    command = Command(__doc__)
    command.add_argument("--simulations", type=int, default=2000)
    command.add_argument("--facts", type=int, default=2000, help="that the sequence goes on for")
    options = command.options(simulations=20, facts=200)
    kinds = {"frs": Differences(0.5, frs_sizes()), "right_or_wrong": Differences(0.06, np.ones(1))}
    figures: dict[str, float] = {
        "margin": MARGIN,
        "simulations": options.simulations,
        "sequence_facts": options.facts,
        "block": BLOCK,
        "most_false_fails": MOST_FALSE,
        "least_fails_found": LEAST_FOUND,
    }
    print(
        f"{options.simulations} simulations, margin {MARGIN}, sequences of {options.facts} facts in blocks of {BLOCK}"
    )
    for name, kind in kinds.items():
        found = measured(kind, options.simulations, options.facts)
        print(f"{name.replace('_', ' ')}: {found['facts']} facts a verdict")
        print(f"  false FAILs of the verdict     {found['false_fails']:7.2%}, at most {MOST_FALSE:.1%}")
        print(f"  false PASSes of the verdict    {found['false_passes']:7.2%}, at most {MOST_FALSE:.1%}")
        print(f"  false FAILs of the sequence    {found['sequence_false_fails']:7.2%}, at most {MOST_FALSE:.1%}")
        print(f"  FAILs at twice the margin      {found['fails_found']:7.2%}, at least {LEAST_FOUND:.0%}")
        print(f"  the sequence holds at all times {found['sequence_coverage']:6.2%}", flush=True)
        figures |= {f"{name}_{key}": value for key, value in found.items()}
    write_figures(options.json, figures)


def frs_sizes() -> Floats:
    """How far two scores are apart, of facts that are equally sure and do not break alike."""
    temperatures = np.array([*TemperatureSweep().temperatures, math.inf])
    scores = [factual_robustness_score(entropy, temperatures, d=1) for entropy in ENTROPIES]
    lower, higher = np.triu_indices(len(temperatures), 1)
    return np.concatenate([score[higher] - score[lower] for score in scores])


def measured(kind: Differences, simulations: int, facts: int) -> dict[str, float]:
    generator = np.random.default_rng(0)
    needed = facts_needed(kind.variance(-2 * MARGIN))
    counts = {"false_fails": 0, "false_passes": 0, "fails_found": 0, "sequence_false_fails": 0, "sequence_coverage": 0}
    for _ in range(simulations):
        at_margin, beyond = (kind.draw(generator, mean, needed) for mean in (-MARGIN, -2 * MARGIN))
        counts["false_fails"] += verdict(at_margin, MARGIN).outcome == "FAIL"
        counts["false_passes"] += verdict(at_margin, MARGIN).outcome == "PASS"
        counts["fails_found"] += verdict(beyond, MARGIN).outcome == "FAIL"
        low, high = confidence_sequence(kind.draw(generator, -MARGIN, facts))
        counts["sequence_false_fails"] += bool((high[BLOCK - 1 :: BLOCK] < -MARGIN).any())
        counts["sequence_coverage"] += bool(((low <= -MARGIN) & (high >= -MARGIN)).all())
    return {"facts": needed, **{name: count / simulations for name, count in counts.items()}}


def facts_needed(variance: float) -> int:
    """By the true variance: a sample's own would judge each simulation at another number."""
    normal = NormalDist()
    return math.ceil(variance * ((normal.inv_cdf(0.975) + normal.inv_cdf(0.9)) / MARGIN) ** 2)


if __name__ == "__main__":
    main()
