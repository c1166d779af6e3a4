"""How breaking temperatures of ten trials err where the answers of a trial share their random numbers, and where not.

    python benchmarks/coupling.py [--facts 2000] [--quick] [--json FILE]

A fact's answer is one token, which is right with probability 1 / (1 + m exp(−g / t)): m wrong ones lie g below it. Its
curve falls the steeper the more they are, and crosses one half at t = g / ln m, which is put in the middle between two
temperatures of the grid. Of many such facts the breaking temperature is read off as the first of the grid at which less
than half of the trials are right, drawn by the code of the answer tree. Errors are counted in steps of the grid; a fact
that does not break is taken to break one step beyond it.
"""

from collections.abc import Sequence

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from support.command import Command, write_figures

from robust_eval.model.base import COMMON, COUPLINGS, INDEPENDENT, Floats, Request
from robust_eval.model.local.common_draw import CommonNumbers
from robust_eval.model.local.draw import Independent, Picks, answer_uniforms, draw
from robust_eval.prompt.prompt import Prompt
from robust_eval.sampler.temperature_sweep import TemperatureSweep
from robust_eval.stats.frs import breaking_temperature

SWEEP = TemperatureSweep()
GRID, TRIALS = np.array(SWEEP.temperatures), SWEEP.trials
FACT = Request("fact", 0, Prompt("", (), ""), tuple(SWEEP.temperatures), TRIALS, 1, 0, coupling=COMMON)
WRONG = (2, 10, 100, 10_000)
"""How many wrong tokens there are: from flat curves to steep ones."""
BREAKS = (0.5, 0.9, 1.3, 1.7)
"""Where curves cross one half."""


def main() -> None:
    command = Command(__doc__)
    command.add_argument("--facts", type=int, default=2000, help="of each curve")
    options = command.options(facts=20)
    figures = {"facts": float(options.facts)}
    shown = Table(title=f"Breaking temperatures of {options.facts} facts: steps too high", title_justify="left")
    for column in ("wrong tokens", "accuracy, first and last", "crosses one half", *COUPLINGS):
        shown.add_column(column, no_wrap=True)
    answers = options.facts * TRIALS
    uniforms = independent_uniforms(answers)
    for wrong in WRONG:
        for crossing in BREAKS:
            name = f"{wrong}_wrong_{crossing:g}"
            logits = torch.zeros(1, 1 + wrong)
            logits[0, 0] = crossing * np.log(wrong)
            ends = [1 / (1 + wrong * np.exp(-float(logits[0, 0]) / t)) for t in (GRID[0], GRID[-1])]
            figures |= {f"{name}_first": ends[0], f"{name}_last": ends[1]}
            common = CommonNumbers([(FACT, trial) for trial in range(answers)], 1, 1 + wrong, logits.device)
            picks: dict[str, Sequence[Picks]] = {
                INDEPENDENT: [Independent(of_temperature) for of_temperature in uniforms],
                COMMON: [common.at(0, np.arange(answers))] * len(GRID),
            }
            cells = []
            for coupling in COUPLINGS:
                apart = errors(shares(logits, picks[coupling], answers), crossing)
                bias, spread = float(apart.mean()), float(apart.std())
                figures |= {f"{name}_bias_{coupling}": bias, f"{name}_spread_{coupling}": spread}
                cells.append(f"{bias:.2f} ± {spread:.2f}")
            shown.add_row(str(wrong), f"{ends[0]:.2f}, {ends[1]:.2f}", f"{crossing:g}", *cells)
    Console(width=110).print(shown)
    write_figures(options.json, figures)


def independent_uniforms(answers: int) -> list[torch.Tensor]:
    """The random numbers (answers, LEVELS) at each temperature."""
    numbers = [[answer_uniforms(0, "fact", 0, t, trial, 1)[0] for trial in range(answers)] for t in GRID.tolist()]
    return [torch.from_numpy(np.stack(of_temperature)) for of_temperature in numbers]


def shares(logits: torch.Tensor, picks: Sequence[Picks], answers: int) -> Floats:
    """The share of right trials (facts, temperatures) of facts that all have the same curve."""
    node = np.zeros(answers, dtype=np.intp)
    tokens = [
        draw(logits, node, np.full(answers, t), of_temperature).tokens
        for t, of_temperature in zip(GRID.tolist(), picks, strict=True)
    ]
    return np.asarray((torch.stack(tokens, dim=1) == 0).double().view(-1, TRIALS, len(GRID)).mean(dim=1).numpy())


def errors(accuracy: Floats, crossing: float) -> Floats:
    """How many steps of the grid the breaking temperatures (facts,) lie above the true one."""
    step = GRID[1] - GRID[0]
    breaks = np.minimum(breaking_temperature(accuracy, GRID), GRID[-1] + step)
    return np.asarray((breaks - GRID[crossing < GRID][0]) / step)


if __name__ == "__main__":
    main()
