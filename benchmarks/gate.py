"""How often a gate decides: power by the number of facts, and false FAILs at the margin.

    python benchmarks/gate.py [--repetitions 400] [--quick] [--json FILE]

Facts change for the better or the worse by 1. The power is the share of candidates that PASS one figure although a
share of their facts has changed, as many for the better as for the worse. A false FAIL is that of a candidate whose two
figures are worse by just the margin, which should happen in at most 2.5 % of cases.
"""

import numpy as np
from support.command import Command, write_figures

from robust_eval.gate.decision import Differences, judge, whole

FACTS = (200, 500, 1000, 2000, 4000)
CHANGED = (0.02, 0.05, 0.10)
MARGIN = 0.02
AT_MARGIN, LOOK = 500, 50
"""Facts of a candidate that is worse by the margin, and after how many of them each look comes."""


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
    command = Command(__doc__)
    command.add_argument("--repetitions", type=int, default=400)
    options = command.options(repetitions=20)
    times = options.repetitions
    sizes = FACTS[:2] if options.quick else FACTS
    figures: dict[str, float] = {"repetitions": times, "margin": MARGIN, "judged": AT_MARGIN, "look": LOOK}
    figures |= {f"changed {place}": changed for place, changed in enumerate(CHANGED)}
    print(f"PASS of a candidate that is as good, margin {MARGIN}, {times} repetitions")
    print("| facts | " + " | ".join(f"{changed:.0%} change" for changed in CHANGED) + " |")
    print("| --- " * (1 + len(CHANGED)) + "|")
    for n in sizes:
        rates = [rate("PASS", times, 1, n, changed, 0.0, ()) for changed in CHANGED]
        figures |= {f"facts {n}": n}
        figures |= {f"pass.{n}.{changed:g}": value for changed, value in zip(CHANGED, rates, strict=True)}
        print(f"| {n:,} | " + " | ".join(f"{value:.0%}" for value in rates) + " |", flush=True)
    for name, looks in (("one look", ()), (f"a look after each {LOOK}", tuple(range(LOOK, AT_MARGIN + 1, LOOK)))):
        value = rate("FAIL", times, 2, AT_MARGIN, 0.1, -MARGIN, looks)
        figures[f"false_fail.{'looks' if looks else 'once'}"] = value
        print(f"false FAIL of two figures at the margin, {AT_MARGIN} facts, {name}: {value:.1%}", flush=True)
    write_figures(options.json, figures)


if __name__ == "__main__":
    main()
