"""Coverage of 95 % intervals of AUROC, PRR and other metrics of uncertainty, and the bias of ECE.

    python benchmarks/uncertainty.py [--simulations 1000] [--quick] [--json FILE]

The log-odds of a wrong answer rise with a latent difficulty, and the uncertainty is the difficulty with noise; "in
tenths" has ties. Difficulty and noise are correlated by 0.3 within a group. True values are those of two million
questions. Probabilities of answers come from a beta distribution; those of the overconfident forecaster lie 0.1 above
the true ones, where they can.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from support.command import Command, write_figures

from robust_eval.stats.calibration import calibration_errors
from robust_eval.stats.uncertainty import coverage_at_risk, error_ranking, risk_coverage

CORRELATION = 0.3
ASKED = ((50, 1), (200, 1), (1000, 1), (52, 4), (200, 4), (1000, 4))
"""Questions, and how many of them make a group."""
RISKS = (0.05, 0.1)
MANY = 2_000_000
FIGURES = (
    *("AUROC", "PRR", "AURC", "share of errors in the least certain 20 %", "coverage at 5 % risk"),
    "coverage at 10 % risk",
)
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Kind:
    """Answers of which the share of wrong ones and the noise of the uncertainty are set."""

    name: str
    log_odds: float
    noise: float
    in_tenths: bool = False

    def draw(self, generator: np.random.Generator, groups: int, size: int) -> tuple[Floats, Floats]:
        """Return (n,) uncertainties, and 1 for right answers, 0 for wrong ones."""
        shared = CORRELATION if size > 1 else 0.0

        def normal() -> Floats:
            common = np.repeat(generator.normal(size=groups), size) * math.sqrt(shared)
            return common + generator.normal(size=groups * size) * math.sqrt(1 - shared)

        difficulty = normal()
        right = generator.random(groups * size) > 1 / (1 + np.exp(-(self.log_odds + 1.5 * difficulty)))
        uncertainty = difficulty + self.noise * normal()
        if self.in_tenths:
            uncertainty = np.round(stats.norm.cdf(uncertainty / math.hypot(1, self.noise)), 1)
        return uncertainty, right.astype(float)


KINDS = (
    Kind("31 % wrong, noisy", -1.0, 1.0),
    Kind("31 % wrong, noisy, in tenths", -1.0, 1.0, in_tenths=True),
    Kind("17 % wrong, less noisy", -2.2, 0.5),
    Kind("31 % wrong, random", -1.0, 1000.0),
)


class Forecaster(NamedTuple):
    """Probabilities of answers, by what they exceed the true ones."""

    name: str
    excess: float

    def draw(self, generator: np.random.Generator, n: int) -> tuple[Floats, Floats]:
        """Return (n,) probabilities, and 1 for right answers, 0 for wrong ones."""
        true = generator.beta(2.0, 1.0, n)
        return np.minimum(true + self.excess, 1.0), (generator.random(n) < true).astype(float)


FORECASTERS = (Forecaster("calibrated", 0.0), Forecaster("overconfident", 0.1))


def true_values(kind: Kind) -> list[float]:
    """Return the value of each figure over very many questions."""
    uncertainty, correct = kind.draw(np.random.default_rng(1), MANY, 1)
    order = np.argsort(uncertainty, kind="stable")
    ranked = error_ranking(uncertainty, correct)
    curve, last = risk_coverage(uncertainty, correct), np.append(np.diff(uncertainty[order]) > 0, True)
    coverages = [round(float(curve.coverage[last & (curve.risk <= risk)].max(initial=0.0)), 4) for risk in RISKS]
    return [*(figure.estimate.value for figure in ranked), *coverages]


def coverage(kind: Kind, true: list[float], n: int, size: int, simulations: int) -> Floats:
    """Return how often the interval of each figure holds the true value, of the simulations with an interval."""
    generator = np.random.default_rng(0)
    held, counted = np.zeros(len(FIGURES)), np.zeros(len(FIGURES))
    groups = np.repeat(np.arange(n // size), size) if size > 1 else None
    for _ in range(simulations):
        uncertainty, correct = kind.draw(generator, n // size, size)
        intervals = [
            *(figure.estimate[1:] for figure in error_ranking(uncertainty, correct, groups)),
            *(each[1:] for each in coverage_at_risk(uncertainty, correct, RISKS, groups)),
        ]
        for place, ((low, high), value) in enumerate(zip(intervals, true, strict=True)):
            counted[place] += not math.isnan(low)
            held[place] += low <= value <= high
    return held / counted


def main() -> None:
    command = Command(__doc__)
    command.add_argument("--simulations", type=int, default=1000)
    options = command.options(simulations=10)
    figures: dict[str, float] = {"simulations": options.simulations, "correlation": CORRELATION, "level": 0.95}
    print(f"coverage of 95 % intervals, {options.simulations} simulations")
    print(
        "| answers | figure | true | "
        + " | ".join(f"{n}{'' if size == 1 else f' in groups of {size}'}" for n, size in ASKED)
        + " |"
    )
    print("| --- " * (3 + len(ASKED)) + "|")
    for kind in KINDS:
        true = true_values(kind)
        by_size = [coverage(kind, true, n, size, options.simulations) for n, size in ASKED]
        for place, name in enumerate(FIGURES):
            shares = [each[place] for each in by_size]
            print(
                f"| {kind.name} | {name} | {true[place]:.3f} | " + " | ".join(f"{share:.1%}" for share in shares) + " |"
            )
            figures[f"{kind.name}, {name}, true"] = true[place]
            for (n, size), share in zip(ASKED, shares, strict=True):
                figures[f"{kind.name}, {name}, {n} questions, groups of {size}"] = float(share)
    print("\nexpected calibration error: mean over simulations, and coverage of the interval of the corrected one")
    print("| probabilities | n | true | plug-in | corrected | coverage |")
    print("| --- " * 6 + "|")
    for forecaster in FORECASTERS:
        true_error = calibration_errors(*forecaster.draw(np.random.default_rng(1), MANY)).plug_in
        for n in (50, 200, 1000):
            generator = np.random.default_rng(0)
            errors = [calibration_errors(*forecaster.draw(generator, n)) for _ in range(options.simulations)]
            plug_in = float(np.mean([each.plug_in for each in errors]))
            corrected = float(np.mean([each.corrected.value for each in errors]))
            held = float(np.mean([each.corrected.low <= true_error <= each.corrected.high for each in errors]))
            print(f"| {forecaster.name} | {n} | {true_error:.3f} | {plug_in:.3f} | {corrected:.3f} | {held:.1%} |")
            asked = f"{forecaster.name}, {n} questions"
            figures |= {
                f"{forecaster.name}, true": true_error,
                f"{asked}, plug-in": plug_in,
                f"{asked}, corrected": corrected,
                f"{asked}, coverage": held,
            }
    write_figures(options.json, figures)


if __name__ == "__main__":
    main()
