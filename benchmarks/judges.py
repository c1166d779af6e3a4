"""Correction of a grader that errs by labels: coverage of intervals of the accuracy, and the bias of t_b.

    python benchmarks/judges.py [--simulations 2000] [--questions 500] [--quick] [--json FILE]

Each simulated data set has its own judge, of which sensitivity and specificity lie between 0.7 and 0.95 at t = 0.2 and
fall by up to 0.1 until t = 2, and its own number of labels, 100 to 500, drawn from all answers alike. The answers of
questions at ten temperatures depend on one another: each question breaks at a temperature of its own. Counted is how
often intervals of 95 % hold the true accuracy of all temperatures together, and at each temperature: corrected,
uncorrected, and by the labels alone.

The bias of the breaking temperature is that of judges with the same rates at t = 0.2 in all data sets, which fall as
above, on facts that break between 0.2 and 2.0, with ten trials and 100 to 500 labels. By how much it is larger with the
correction than without is measured on the same data sets, and has a standard error.

Last come the replies of the file of real verdicts (grading_sample.jsonl): the default grader corrected by labels that
are drawn from them, in how many draws it holds the share that people call right.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from support.command import Command, write_figures

from robust_eval.cli.graders import graded
from robust_eval.grader.matching import Matching
from robust_eval.labels.label_records import read_records_of_people
from robust_eval.reader.reply import ReplyReader
from robust_eval.stats.corrected_breaks import LabelledGrid, corrected_breaks, label_counts
from robust_eval.stats.correction import corrected_curve, corrected_mean
from robust_eval.stats.frs import breaking_temperature
from robust_eval.stats.interval import mean_bounds

Floats = NDArray[np.float64]
SAMPLE = Path(__file__).with_name("grading_sample.jsonl")
GRID = np.round(np.arange(0.2, 2.01, 0.2), 1)
RATES = ((0.95, 0.7), (0.7, 0.95), (0.9, 0.7), (0.7, 0.9), (0.85, 0.85), (0.75, 0.75), (0.95, 0.9))
"""Sensitivity and specificity of judges."""
TRIALS = 10
FEWEST, MOST = 100, 500
"""Labels."""
DRAWS, DRAWN = 300, 200


@dataclass(frozen=True)
class DataSet:
    """One answer of each of n questions at T temperatures: (n, T) whether it is right, and the judge's verdict."""

    chance: Floats
    right: Floats
    verdicts: Floats

    @classmethod
    def draw(cls, generator: np.random.Generator, questions: int, rates: tuple[Floats, Floats]) -> "DataSet":
        breaks = generator.normal(1.1, 0.6, (questions, 1))
        chance = 0.02 + 0.96 / (1 + np.exp((GRID - breaks) / 0.2))
        right = (generator.random(chance.shape) < chance).astype(float)
        called = np.where(right == 1, rates[0], 1 - rates[1])
        return cls(chance, right, (generator.random(chance.shape) < called).astype(float))


def main() -> None:
    command = Command(__doc__)
    command.add_argument("--simulations", type=int, default=2000)
    command.add_argument("--questions", type=int, default=500)
    options = command.options(simulations=20, questions=150)
    figures: dict[str, float] = {"simulations": options.simulations, "questions": options.questions, "level": 0.95}
    figures |= {"trials": TRIALS, "fewest labels": FEWEST, "most labels": MOST}
    figures |= coverage(options.simulations, options.questions)
    figures |= breaks(max(2, options.simulations // 5), options.questions)
    figures |= of_people(20 if options.quick else DRAWS)
    write_figures(options.json, figures)


def true_accuracy() -> Floats:
    """By many questions: (T,)."""
    breaks = np.random.default_rng(1).normal(1.1, 0.6, (2_000_000, 1))
    return np.array([float((0.02 + 0.96 / (1 + np.exp((t - breaks) / 0.2))).mean()) for t in GRID])


def coverage(simulations: int, questions: int) -> dict[str, float]:
    generator, truth = np.random.default_rng(0), true_accuracy()
    held: dict[str, list[bool]] = {name: [] for name in ("corrected", "labels alone", "uncorrected")}
    at: dict[str, list[bool]] = {name: [] for name in ("corrected", "uncorrected")}
    widths: dict[str, list[float]] = {name: [] for name in ("corrected", "labels alone")}
    ids = np.repeat(np.arange(questions), len(GRID))
    grid = np.tile(GRID, questions)
    for _ in range(simulations):
        data = DataSet.draw(generator, questions, falling(generator, generator.uniform(0.7, 0.95, 2)))
        labels = some_labels(generator, data.right)
        verdicts = data.verdicts.ravel()
        found = {
            "corrected": corrected_mean(verdicts, labels, questions=ids)[1:],
            "labels alone": corrected_mean(np.zeros(labels.size), labels, questions=ids)[1:],
            "uncorrected": mean_bounds(data.verdicts.mean(axis=1), (0, 1)),
        }
        for name, (low, high) in found.items():
            held[name].append(bool(low <= truth.mean() <= high))
            if name in widths:
                widths[name].append(high - low)
        curve = corrected_curve(verdicts, labels, grid, questions=ids)
        for place, (t, accuracy) in enumerate(zip(GRID, truth, strict=True)):
            at["corrected"].append(bool(curve[float(t)].low <= accuracy <= curve[float(t)].high))
            low, high = mean_bounds(data.verdicts[:, place], (0, 1))
            at["uncorrected"].append(bool(low <= accuracy <= high))
    narrower = float(np.mean(np.array(widths["corrected"]) < np.array(widths["labels alone"])))
    ratio = float(np.mean(widths["corrected"]) / np.mean(widths["labels alone"]))
    print(f"{simulations} data sets of {questions} questions: the interval of 95 % holds the true accuracy in")
    for name, values in held.items():
        print(f"  {name:14} {np.mean(values):7.1%} of all temperatures together", end="")
        print(f", {np.mean(at[name]):7.1%} at one temperature" if name in at else "")
    print(f"  width {ratio:.2f} of that of labels alone, narrower in {narrower:.1%}\n")
    figures = {f"{name}: holds": float(np.mean(values)) for name, values in held.items()}
    figures |= {f"{name}: holds at one temperature": float(np.mean(values)) for name, values in at.items()}
    return figures | {"width of labels alone": ratio, "narrower than labels alone": narrower}


def falling(generator: np.random.Generator, first: ArrayLike) -> tuple[Floats, Floats]:
    """Sensitivity and specificity by temperature (T,), which begin with these two."""
    fall = generator.uniform(0, 0.1, 2)
    sensitivity, specificity = np.asarray(first)[:, None] - fall[:, None] * (GRID - 0.2) / 1.8
    return sensitivity, specificity


def some_labels(generator: np.random.Generator, right: Floats) -> Floats:
    """Labels of as many answers as are drawn, and NaN for the others."""
    labels = np.full(right.size, np.nan)
    number = min(int(generator.integers(FEWEST, MOST + 1)), labels.size // 2)
    chosen = generator.choice(labels.size, number, replace=False)
    labels[chosen] = right.ravel()[chosen]
    return labels


def breaks(simulations: int, questions: int) -> dict[str, float]:
    """The bias of the mean breaking temperature, against ten trials that are graded without error."""
    generator = np.random.default_rng(2)
    figures: dict[str, float] = {"t_b: data sets": simulations}
    print(f"bias of the mean breaking temperature, {TRIALS} trials, {FEWEST} to {MOST} labels, {simulations} data sets")
    print("  sensitivity  specificity  uncorrected  corrected  share of it   larger by  standard error  without")
    for sensitivity, specificity in RATES:
        shifts = np.array([shifts_of_one(generator, questions, sensitivity, specificity) for _ in range(simulations)])
        told = ~np.isnan(shifts).any(axis=1)
        without, shifts = int((~told).sum()), shifts[told]
        before, after = map(float, shifts.mean(axis=0))
        share, larger = abs(after / before), abs(after) - abs(before)
        differences = np.sign(after) * shifts[:, 1] - np.sign(before) * shifts[:, 0]
        error = float(differences.std(ddof=1)) / math.sqrt(len(shifts))
        print(
            f"  {sensitivity:11.2f}  {specificity:11.2f}  {before:11.4f}  {after:9.4f}  {share:11.2f}  {larger:10.4f}  "
            f"{error:14.4f}  {without:7d}",
            flush=True,
        )
        name = f"t_b {sensitivity}/{specificity}"
        figures |= {f"{name}: sensitivity": sensitivity, f"{name}: specificity": specificity}
        figures |= {f"{name}: bias": before, f"{name}: bias corrected": after, f"{name}: share": share}
        figures |= {f"{name}: larger by": larger, f"{name}: standard error of that": error}
        figures |= {f"{name}: without": without}
    print()
    return figures


def shifts_of_one(
    generator: np.random.Generator, questions: int, sensitivity: float, specificity: float
) -> tuple[float, float]:
    """By how much the mean breaking temperature of one data set is too high, uncorrected and corrected."""
    points = generator.uniform(0.3, 1.9, (questions, 1))
    chance = (0.02 + 0.96 / (1 + np.exp((GRID - points) / 0.1)))[:, :, None]
    right = (generator.random((questions, len(GRID), TRIALS)) < chance).astype(float)
    rates = [rate[:, None] for rate in falling(generator, (sensitivity, specificity))]
    called = np.where(right == 1, rates[0], 1 - rates[1])
    verdicts = (generator.random(right.shape) < called).astype(float)
    labels = some_labels(generator, right)
    rows, columns, _ = (axis.ravel() for axis in np.indices(right.shape))
    shape = right.shape[:2]
    counts = label_counts(verdicts.ravel(), labels, rows, columns, np.ones(labels.size), shape)
    judged = corrected_breaks(LabelledGrid(verdicts.sum(axis=2), np.full(shape, float(TRIALS)), GRID, counts))
    true = breaking_temperature(right.mean(axis=2), GRID)
    return shift(breaking_temperature(verdicts.mean(axis=2), GRID), true), shift(judged, true)


def shift(found: Floats, true: Floats) -> float:
    """The mean difference, with facts that do not break one step above the grid; NaN where none is known."""
    known = ~np.isnan(found) & ~np.isnan(true)
    above = GRID[-1] + 0.2
    apart = np.where(np.isinf(found), above, found) - np.where(np.isinf(true), above, true)
    return float(apart[known].mean()) if known.any() else math.nan


def of_people(draws: int) -> dict[str, float]:
    """How often the corrected accuracy of the default grader holds the human one, with labels of the sample."""
    records = [record for record in read_records_of_people(SAMPLE) if not record.question.choices]
    found = graded(Matching(), ReplyReader(), records)
    verdicts = np.array([float(found[record.question.id]) for record in records])
    people = np.array([float(record.right) for record in records])
    names = np.unique([record.question.text for record in records], return_inverse=True)[1]
    number = min(DRAWN, len(records) // 2)
    generator, held = np.random.default_rng(3), 0
    for _ in range(draws):
        labels = np.full(len(people), np.nan)
        chosen = generator.choice(len(people), number, replace=False)
        labels[chosen] = people[chosen]
        _, low, high = corrected_mean(verdicts, labels, questions=names)
        held += bool(low <= people.mean() <= high)
    print(
        f"{len(records)} replies with human verdicts, {number} labels drawn: the corrected accuracy holds theirs in "
        f"{held / draws:.1%} of {draws} draws"
    )
    return {"people: replies": len(records), "people: labels": number, "people: holds": held / draws}


if __name__ == "__main__":
    main()
