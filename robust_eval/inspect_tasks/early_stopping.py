"""Samples and epochs that need not be asked (docs/methods.md, §1)."""

import math
from collections import defaultdict
from collections.abc import Sequence

from inspect_ai.dataset import Sample
from inspect_ai.log import EvalSpec
from inspect_ai.scorer import SampleScore, value_to_float
from inspect_ai.util import EarlyStop, EarlyStopping
from pydantic import JsonValue

from robust_eval.inspect_tasks.scoring import mark_in, temperature_in
from robust_eval.stats.frs import settled


class SettledEarly(EarlyStopping):
    """Skip what breaking temperatures do not need.

    A greedy answer is asked for once, and a question whose greedy answer is wrong is asked no further. With
    ``settle``, trials end at a temperature as soon as the others cannot change whether the fact holds there
    (:func:`settled`), and above the first at which it breaks. inspect_ai starts several samples at once: what it has
    begun is asked to its end, and the fewer at once (``max_samples``), the more is saved. Breaking temperatures, FRS
    and firmness are the same as of all trials; accuracies and entropies of trials that ended early are biased.
    """

    def __init__(self, threshold: float = 0.5, settle: bool = False) -> None:
        self.threshold, self.settle = threshold, settle
        self.epochs = 0
        self.place: dict[str | int, tuple[str, float]] = {}
        """The question and the temperature of each sample."""
        self.sweep: dict[str, list[str | int]] = defaultdict(list)
        """The samples of each question above temperature 0, from below."""
        self.values: dict[str | int, list[float]] = defaultdict(list)
        self.stopped = 0

    async def start_task(self, task: EvalSpec, samples: list[Sample], epochs: int) -> str:
        """Remember what is planned."""
        self.epochs = epochs
        self.values.clear()
        self.sweep.clear()
        self.stopped = 0
        named = [(each.id if each.id is not None else number, each) for number, each in enumerate(samples, start=1)]
        self.place = {}
        for name, sample in named:
            mark = mark_in(sample.metadata)
            self.place[name] = (str(mark["question"]["id"]), temperature_in(mark))
        for name, (question, t) in sorted(self.place.items(), key=lambda item: item[1][1]):
            if t > 0:
                self.sweep[question].append(name)
        return "robust_eval"

    async def schedule_sample(self, id: str | int, epoch: int) -> EarlyStop | None:  # noqa: A002
        """Say whether an epoch of a sample need not be asked, and why."""
        reason = self._reason(id, epoch)
        if reason is None:
            return None
        self.stopped += 1
        return EarlyStop(id=id, epoch=epoch, reason=reason)

    async def complete_sample(self, id: str | int, epoch: int, scores: dict[str, SampleScore]) -> None:  # noqa: A002
        """Count a verdict; NaN: no reply came."""
        for score in scores.values():
            self.values[id].append(value_to_float()(score.score.value))
            return

    async def complete_task(self) -> dict[str, JsonValue]:
        """Return how many epochs were not asked."""
        return {"skipped": self.stopped, "planned": self.epochs * len(self.place)}

    def _reason(self, name: str | int, epoch: int) -> str | None:
        question, t = self.place[name]
        if t == 0:
            return None if epoch == 1 else "one greedy answer is enough"
        greedy = [value for each in self._greedy(question) for value in self.values[each]]
        if greedy and not any(value >= 0.5 for value in greedy):
            return "the greedy answer is wrong"
        if not self.settle:
            return None
        for each in self.sweep[question]:
            found = self._settled(each)
            if each == name:
                return None if found is None else f"settled: it {found}"
            if found in ("breaks", "unknown"):
                return f"it {found} at t = {self.place[each][1]:g}"
        return None

    def _greedy(self, question: str) -> Sequence[str | int]:
        return [name for name, (own, t) in self.place.items() if own == question and t == 0]

    def _settled(self, name: str | int) -> str | None:
        values = self.values[name]
        right = sum(value >= 0.5 for value in values if not math.isnan(value))
        wrong = sum(value < 0.5 for value in values if not math.isnan(value))
        return settled(right, wrong, max(self.epochs - len(values), 0), self.threshold)
