"""What labels make of a grader that errs: how often intervals hold the true accuracy, and the bias of t_b.

    python benchmarks/judges.py [--simulations 2000] [--questions 500] [--quick] [--json FILE]

Each simulated data set has its own judge, of which sensitivity and specificity lie between 0.7 and 0.95 at t = 0.2 and
fall by up to 0.1 until t = 2, and its own number of labels, 100 to 500, drawn from all answers alike. The answers of
questions at ten temperatures depend on one another: each question breaks at a temperature of its own. Counted is how
often intervals of 95 % hold the true accuracy of all temperatures together, and at each temperature: corrected,
uncorrected, and by the labels alone.

The bias of the breaking temperature is that of judges who are right with fixed rates, on facts that break between 0.2
and 2.0, with ten trials and 300 labels.

Last come the replies of the file of real verdicts (grading_sample.jsonl): the default grader corrected by labels that
are drawn from them, in how many draws it holds the share that people call right.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from support.command import Command, write_figures

from robust_eval.cli.graders import graded
from robust_eval.grader.matching import Matching
from robust_eval.labels.verdict_records import read_records_of_people
from robust_eval.metric.frs import breaking_temperature
from robust_eval.metric.interval import mean_interval
from robust_eval.metric.judged import corrected_curve, corrected_mean
from robust_eval.metric.judged_breaks import corrected_breaks, label_counts
from robust_eval.reader.reply import Reply

Floats = NDArray[np.float64]
SAMPLE = Path(__file__).with_name("grading_sample.jsonl")
GRID = np.round(np.arange(0.2, 2.01, 0.2), 1)
RATES = ((0.95, 0.7), (0.7, 0.95), (0.9, 0.7), (0.7, 0.9), (0.85, 0.85), (0.75, 0.75), (0.95, 0.9))
"""Sensitivity and specificity of judges."""
TRIALS, LABELS = 10, 300
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
    figures |= {"trials": TRIALS, "labels": LABELS}
    figures |= coverage(options.simulations, options.questions)
    figures |= breaks(max(2, options.simulations // 50), options.questions)
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
    for seed in range(simulations):
        first, fall = generator.uniform(0.7, 0.95, 2), generator.uniform(0, 0.1, 2)
        rates = tuple(first[side] - fall[side] * (GRID - 0.2) / 1.8 for side in (0, 1))
        data = DataSet.draw(generator, questions, (rates[0], rates[1]))
        labels = np.full(data.right.size, np.nan)
        number = min(int(generator.integers(100, 501)), labels.size // 2)
        chosen = generator.choice(labels.size, number, replace=False)
        labels[chosen] = data.right.ravel()[chosen]
        verdicts = data.verdicts.ravel()
        found = {
            "corrected": corrected_mean(verdicts, labels, grid, questions=ids)[1:],
            "labels alone": corrected_mean(np.zeros(labels.size), labels, grid, questions=ids)[1:],
            "uncorrected": mean_interval(data.verdicts.mean(axis=1), (0, 1), seed=seed),
        }
        for name, (low, high) in found.items():
            held[name].append(bool(low <= truth.mean() <= high))
            if name in widths:
                widths[name].append(high - low)
        curve = corrected_curve(verdicts, labels, grid, questions=ids)
        for place, (t, accuracy) in enumerate(zip(GRID, truth, strict=True)):
            at["corrected"].append(bool(curve[float(t)].low <= accuracy <= curve[float(t)].high))
            low, high = mean_interval(data.verdicts[:, place], (0, 1), seed=seed)
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


def breaks(simulations: int, questions: int) -> dict[str, float]:
    """The bias of the mean breaking temperature, against ten trials that are graded without error."""
    generator = np.random.default_rng(2)
    figures: dict[str, float] = {}
    print(f"bias of the mean breaking temperature, {TRIALS} trials, {LABELS} labels")
    print("  sensitivity  specificity  uncorrected  corrected  share of it")
    for sensitivity, specificity in RATES:
        plain, corrected = [], []
        for _ in range(simulations):
            points = generator.uniform(0.3, 1.9, (questions, 1))
            chance = (0.02 + 0.96 / (1 + np.exp((GRID - points) / 0.1)))[:, :, None]
            right = (generator.random((questions, len(GRID), TRIALS)) < chance).astype(float)
            called = np.where(right == 1, sensitivity, 1 - specificity)
            verdicts = (generator.random(right.shape) < called).astype(float)
            labels = np.full(right.size, np.nan)
            chosen = generator.choice(right.size, min(LABELS, right.size // 2), replace=False)
            labels[chosen] = right.ravel()[chosen]
            rows, columns, _ = (axis.ravel() for axis in np.indices(right.shape))
            shape = right.shape[:2]
            counts = label_counts(verdicts.ravel(), labels, rows, columns, np.ones(labels.size), shape)
            number = np.full(shape, float(TRIALS))
            judged = corrected_breaks(verdicts.sum(axis=2), number, GRID, counts)
            true = breaking_temperature(right.mean(axis=2), GRID)
            plain.append(shift(breaking_temperature(verdicts.mean(axis=2), GRID), true))
            corrected.append(shift(judged.breaking, true))
        before, after = float(np.mean(plain)), float(np.mean(corrected))
        print(
            f"  {sensitivity:11.2f}  {specificity:11.2f}  {before:11.3f}  {after:9.3f}  {abs(after / before):11.2f}",
            flush=True,
        )
        name = f"t_b {sensitivity}/{specificity}"
        share = abs(after / before)
        figures |= {f"{name}: sensitivity": sensitivity, f"{name}: specificity": specificity}
        figures |= {f"{name}: bias": before, f"{name}: bias corrected": after, f"{name}: share": share}
    print()
    return figures


def shift(found: Floats, true: Floats) -> float:
    """The mean difference, with facts that do not break one step above the grid."""
    above = GRID[-1] + 0.2
    return float(np.nanmean(np.where(np.isinf(found), above, found) - np.where(np.isinf(true), above, true)))


def of_people(draws: int) -> dict[str, float]:
    """How often the corrected accuracy of the default grader holds the human one, with labels of the sample."""
    records = [record for record in read_records_of_people(SAMPLE) if not record.question.choices]
    found = graded(Matching(), Reply(), records)
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
