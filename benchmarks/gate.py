"""How often a gate decides: power by the number of facts, and false FAILs at the margin.

python benchmarks/gate.py [--quick] [--json FILE]
"""

import argparse
import json
from pathlib import Path

import numpy as np

from robust_eval.gate.decision import Differences, judge, whole

FACTS = (200, 500, 1000, 2000, 4000)
CHANGED = (0.02, 0.05, 0.10)
MARGIN = 0.02


def drawn(random: np.random.Generator, n: int, changed: float, mean: float, name: str, looks: bool) -> Differences:
    """Draw facts of which a share changes, so that the mean difference is ``mean``."""
    worse, better = (changed - mean) / 2, (changed + mean) / 2
    values = random.choice([-1.0, 0.0, 1.0], n, p=[worse, 1 - changed, better])
    return Differences(name, name, MARGIN, np.zeros(n), values, looks=looks)


def rate(outcome: str, times: int, figures: int, n: int, changed: float, mean: float, looks: tuple[int, ...]) -> float:
    """Return how often the gate says this of so many figures, looked at after each number of facts in ``looks``."""
    random, found = np.random.default_rng(0), 0
    for _ in range(times):
        whole_run = [drawn(random, n, changed, mean, f"f{k}", bool(looks)) for k in range(figures)]
        parts = [[each._replace(baseline=each.baseline[:m], candidate=each.candidate[:m]) for each in whole_run]
                 for m in looks or (n,)]  # fmt: skip
        verdicts = (whole(judge(part, 0.95)) for part in parts)
        found += next((each for each in verdicts if each != "INCONCLUSIVE"), "INCONCLUSIVE") == outcome
    return found / times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few repetitions")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    times = 20 if arguments.quick else 400
    found: dict[str, float] = {}
    sizes = FACTS[:2] if arguments.quick else FACTS
    print("| facts | " + " | ".join(f"{100 * changed:g} % change" for changed in CHANGED) + " |")
    print("| --- " * (1 + len(CHANGED)) + "|")
    for n in sizes:
        rates = [rate("PASS", times, 1, n, changed, 0.0, ()) for changed in CHANGED]
        found |= {f"power.{n}.{changed:g}": value for changed, value in zip(CHANGED, rates, strict=True)}
        print(f"| {n:,} | " + " | ".join(f"{value:.0%}" for value in rates) + " |")
    for looks in ((), tuple(range(50, 501, 50))):
        name = "with looks after each 50" if looks else "one look"
        value = rate("FAIL", times, 2, 500, 0.1, -MARGIN, looks)
        found[f"false_fail.{'looks' if looks else 'once'}"] = value
        print(f"false FAIL of two figures at the margin, 500 facts, {name}: {value:.1%}")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
