"""Coverage of the interval at which a run stopped because it was narrow enough, and the savings of stopping.

    python benchmarks/until.py [--simulations 2000] [--questions 1000] [--quick] [--json FILE]

The values of questions are made up, with a mean that is known: FRS of facts that are as sure as any and break at any
temperature of the grid or at none, and answers of which seven or nine in ten are right. ``blocks`` looks at the
interval after each ten questions, from thirty on. ``until`` takes as many as a run does
(robust_eval/experiment/schedule.py). Both report the interval on which they stopped.
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray
from support.command import Command, write_figures

from robust_eval.experiment.schedule import BLOCK, SequentialScheduler, careful_half_width, stretched
from robust_eval.metric.score import Score
from robust_eval.question import Question
from robust_eval.sampler.temperature_sweep import TemperatureSweep
from robust_eval.stats.estimate import Estimate
from robust_eval.stats.frs import factual_robustness_score
from robust_eval.stats.interval import MIN_UNITS, SHARE, mean_bounds

MOST_MISSED = 0.065
FIGURE = "frs.d1"
Floats = NDArray[np.float64]
Values = Callable[[np.random.Generator, int], Floats]


def main() -> None:
    command = Command(__doc__)
    command.add_argument("--simulations", type=int, default=2000)
    command.add_argument("--questions", type=int, default=1000, help="of the data set: at most so many are taken")
    options = command.options(simulations=10, questions=200)
    figures: dict[str, float] = {"simulations": options.simulations, "questions": options.questions}
    figures |= {"most_missed": MOST_MISSED}
    print(f"{options.simulations} runs, at most {options.questions} questions; at most {MOST_MISSED:.1%} may miss")
    kinds: list[tuple[str, Values, float]] = [
        ("frs", frs, 0.02),
        ("seven_in_ten", partial(right_or_wrong, 0.7), 0.05),
        ("nine_in_ten", partial(right_or_wrong, 0.9), 0.05),
    ]
    for name, values, wanted in kinds:
        figures[f"{name}_wanted"] = wanted
        truth = float(values(np.random.default_rng(1), 1_000_000).mean())
        for rule, stops in (("blocks", after_blocks), ("until", as_a_run)):
            generator = np.random.default_rng(0)
            ended = [stops(values(generator, options.questions), wanted) for _ in range(options.simulations)]
            missed = float(np.mean([not low <= truth <= high for low, high, _ in ended]))
            taken = float(np.median([number for *_, number in ended]))
            saved = 1 - taken / options.questions
            print(
                f"{name}, ± {wanted}, {rule:6}: {missed:6.2%} missed; {taken:4.0f} questions, {saved:.0%} saved",
                flush=True,
            )
            figures |= {f"{name}_{rule}_missed": missed, f"{name}_{rule}_taken": taken, f"{name}_{rule}_saved": saved}
    write_figures(options.json, figures)


def frs(generator: np.random.Generator, number: int) -> Floats:
    """Return scores of facts: three in ten never break, and few are sure of their answer and break at once."""
    temperatures = np.array([*TemperatureSweep().temperatures, math.inf])
    shares = np.array([*np.linspace(0.04, 0.1, len(temperatures) - 1), 0.3])
    breaking = generator.choice(temperatures, number, p=shares / shares.sum())
    return factual_robustness_score(generator.beta(1, 3, number), breaking, d=1)


def right_or_wrong(share: float, generator: np.random.Generator, number: int) -> Floats:
    """Return 1 for each of a share of questions, and 0."""
    return (generator.random(number) < share).astype(float)


def after_blocks(values: Floats, wanted: float) -> tuple[float, float, int]:
    """Return the interval that is narrow enough after a block, and the number of questions."""
    for number in range(MIN_UNITS, len(values) + 1, BLOCK):
        taken = values[:number]
        low, high = mean_bounds(taken, SHARE)
        estimate = Estimate(float(taken.mean()), low, high)
        half_width = careful_half_width(estimate, (taken - estimate.value).tolist(), number)
        if half_width <= wanted:
            low, high = stretched(estimate, half_width, SHARE)[1:]
            break
    return low, high, number


def as_a_run(values: Floats, wanted: float) -> tuple[float, float, int]:
    """Return the interval at which a run ends, and the number of questions that it took."""
    taking = SequentialScheduler({FIGURE: wanted}, [Question(f"{number}", "") for number in range(len(values))], seed=0)
    scores: dict[str, Score] = {}
    while taking.next(scores):
        taken = values[: len(taking.taken)]  # in which order does not matter, as they are random
        low, high = mean_bounds(taken, SHARE)
        ids = [f"{number}" for number in range(len(taken))]
        estimate = Estimate(float(taken.mean()), low, high)
        scores = {"frs": Score(ids, {FIGURE: estimate}, by_question={FIGURE: taken}, limits={FIGURE: SHARE})}
    _, low, high = taking.reported(scores)["frs"].values[FIGURE]
    return low, high, len(taking.taken)


if __name__ == "__main__":
    main()
