"""Frequency of a gate's decisions and of wrong ones, and the number of facts that it asks until it is decided.

    python benchmarks/gate.py [--repetitions 400] [--quick] [--json FILE]

Facts change for the better or the worse by 1. The power is the share of candidates that PASS one figure although a
share of their facts has changed, as many for the better as for the worse. A false FAIL is that of a candidate whose two
figures are worse by just the margin, a false PASS that of one such figure: each should happen in at most 2.5 % of
cases, and is counted in five times as many repetitions. Until it is decided, a gate looks at one figure after each
block, as ``early_stop=true`` does.
"""

import numpy as np
from support.command import Command, write_figures

from robust_eval.experiment.schedule import BLOCK
from robust_eval.gate.decision import Differences, joint_outcome, metric_verdicts
from robust_eval.stats.interval import MIN_UNITS
from robust_eval.stats.non_inferiority import confidence_sequence

FACTS = (200, 500, 1000, 2000, 4000)
CHANGED = (0.02, 0.05, 0.10)
MARGIN = 0.02
MOST_FALSE = 0.032
"""What 2,000 cases may show of a share that is 2.5 %."""
AT_MARGIN, LOOK = 500, 50
"""Facts of a candidate that is worse by the margin, and after how many of them each look comes."""
WORSE = (0.0, 0.05, 0.1, 0.2)
"""How much worse the candidates are that are asked until it is decided; beyond that, 5 % of their facts change."""


def drawn(random: np.random.Generator, n: int, changed: float, mean: float, name: str) -> Differences:
    """Draw facts of which a share changes, so that the mean difference is ``mean``."""
    worse, better = (changed - mean) / 2, (changed + mean) / 2
    values = random.choice([-1.0, 0.0, 1.0], n, p=[worse, 1 - changed, better])
    return Differences(name, name, MARGIN, np.zeros(n), values)


def rate(outcome: str, times: int, figures: int, n: int, changed: float, mean: float) -> float:
    """Return how often the gate says this of so many figures of ``n`` facts."""
    random, found = np.random.default_rng(0), 0
    for _ in range(times):
        found += (
            joint_outcome(metric_verdicts([drawn(random, n, changed, mean, f"f{k}") for k in range(figures)], 0.95))
            == outcome
        )
    return found / times


def fails_at_some_look(times: int, n: int, changed: float, mean: float) -> float:
    """Return how often two figures FAIL, looked at again and again before they PASS.

    What the gate says at a look is said by the sequence up to there: one of the two FAILS at half of the level.
    """
    random, found = np.random.default_rng(0), 0
    looks = np.arange(LOOK, n + 1, LOOK) - 1
    for _ in range(times):
        both = [drawn(random, n, changed, mean, name).values for name in "ab"]
        failed = np.any([confidence_sequence(each, 0.975)[1][looks] < -MARGIN for each in both], axis=0)
        passed = np.all([confidence_sequence(each)[0][looks] > -MARGIN for each in both], axis=0)
        found += bool(failed.any() and not passed[: failed.argmax()].any())
    return found / times


def asked(times: int, n: int, worse: float) -> tuple[float, float]:
    """Return how many of ``n`` facts are asked until one figure is decided, in the median, and how often it is."""
    random, looks = np.random.default_rng(0), [MIN_UNITS]
    while looks[-1] < n:
        looks.append(min(n, looks[-1] + max(BLOCK, looks[-1] // 5)))
    ends, decided = [], 0
    for _ in range(times):
        low, high = confidence_sequence(drawn(random, n, 0.05 + worse, -worse, "f").values)
        known = [m for m in looks if low[m - 1] > -MARGIN or high[m - 1] < -MARGIN]
        ends.append(known[0] if known else n)
        decided += bool(known)
    return float(np.median(ends)), decided / times


def main() -> None:
    command = Command(__doc__)
    command.add_argument("--repetitions", type=int, default=400)
    options = command.options(repetitions=2)
    times, often = options.repetitions, 5 * options.repetitions
    sizes = FACTS[:2] if options.quick else FACTS
    figures: dict[str, float] = {"repetitions": times, "often": often, "margin": MARGIN, "level": 0.95}
    figures |= {"judged": AT_MARGIN, "look": LOOK, "most false": MOST_FALSE, "most facts": sizes[-1]}
    figures |= {f"changed {place}": changed for place, changed in enumerate(CHANGED)}
    print(f"PASS of a candidate that is as good, margin {MARGIN}, {times} repetitions")
    print("| facts | " + " | ".join(f"{changed:.0%} change" for changed in CHANGED) + " |")
    print("| --- " * (1 + len(CHANGED)) + "|")
    for n in sizes:
        rates = [rate("PASS", times, 1, n, changed, 0.0) for changed in CHANGED]
        figures |= {f"facts {n}": n}
        figures |= {f"pass.{n}.{changed:g}": value for changed, value in zip(CHANGED, rates, strict=True)}
        print(f"| {n:,} | " + " | ".join(f"{value:.0%}" for value in rates) + " |", flush=True)
    at_margin = (AT_MARGIN, 0.1, -MARGIN)
    figures["false_pass"] = rate("PASS", often, 1, *at_margin)
    figures["false_fail.once"] = rate("FAIL", often, 2, *at_margin)
    figures["false_fail.looks"] = fails_at_some_look(often, *at_margin)
    print(f"at the margin, {AT_MARGIN} facts, {often} repetitions, each at most {MOST_FALSE:.1%}")
    print(f"  false PASS of one figure   {figures['false_pass']:.2%}")
    print(f"  false FAIL of two figures  {figures['false_fail.once']:.2%}")
    print(f"  a look after each {LOOK}     {figures['false_fail.looks']:.2%}", flush=True)
    print(f"early_stop=true, at most {sizes[-1]} facts")
    for worse in WORSE:
        median, decided = asked(times, sizes[-1], worse)
        figures |= {f"worse {worse:g}": worse, f"asked.{worse:g}": median, f"decided.{worse:g}": decided}
        print(f"  worse by {worse:.2f}: {median:.0f} facts in the median, {decided:.0%} decided", flush=True)
    write_figures(options.json, figures)


if __name__ == "__main__":
    main()
