"""Ask no more than a breaking temperature needs: trials in waves, until the verdict of each temperature is settled
(docs/methods.md, §1).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache

import pyarrow as pa

from robust_eval.answer import rows
from robust_eval.model.base import Item, Request

Condition = tuple[float, int]
"""Temperature and trial of an answer."""
Verdicts = Mapping[Condition, bool | None]
"""Whether each answer that is there is right; None where there was no reply."""
Settled = Callable[[int, int, int], str | None]
"""The verdict of a temperature by the numbers of right, wrong and outstanding answers; None while it is open
(:func:`robust_eval.stats.frs.settled`).
"""


def next_wave(
    verdicts: Verdicts, temperatures: Sequence[float], trials: int, settled: Settled
) -> tuple[list[Condition], list[Condition]]:
    """Return the answers on which the breaking temperature rests so far, and those to ask for next.

    Temperatures (ascending) are asked from below, and the trials of each in their order: always as many as could settle
    it, were they all right or all wrong. None is asked for once a temperature breaks, or has no reply at all, or all
    hold. Answers that are there and would not have been asked for do not count.

    Examples
    --------
    >>> from robust_eval.stats.frs import settled
    >>> next_wave({}, [0.2, 0.4], 10, settled)[1]
    [(0.2, 0), (0.2, 1), (0.2, 2), (0.2, 3), (0.2, 4)]
    >>> next_wave({(0.2, trial): trial > 0 for trial in range(5)}, [0.2, 0.4], 10, settled)[1]
    [(0.2, 5)]
    """
    used: list[Condition] = []
    for temperature in temperatures:
        asked = right = wrong = 0
        while (verdict := settled(right, wrong, trials - asked)) is None:
            number = _fewest(right, wrong, trials - asked, settled)
            wave = [(temperature, trial) for trial in range(asked, asked + number)]
            if lacking := [condition for condition in wave if condition not in verdicts]:
                return used, lacking
            found = [verdicts[condition] for condition in wave]
            right, wrong, asked = right + found.count(True), wrong + found.count(False), asked + number
            used += wave
        if verdict != "holds":
            break
    return used, []


def _fewest(right: int, wrong: int, outstanding: int, settled: Settled) -> int:
    """Return how many of the outstanding answers can settle a temperature. Missing ones bring that no nearer than right
    or wrong ones do.
    """
    return next(
        number
        for number in range(1, outstanding + 1)
        if settled(right + number, wrong, outstanding - number) or settled(right, wrong + number, outstanding - number)
    )


class Waves:
    """Which answers are asked for next to each of several requests; each request is all that could be asked.

    ``verdicts`` says of a table of answers which are right, None where there was no reply.
    """

    def __init__(
        self, requests: Iterable[Request], verdicts: Callable[[pa.Table], Sequence[bool | None]], settled: Settled
    ) -> None:
        self._requests = {request.item: request for request in requests}
        self._judge = verdicts
        self._settled = cache(settled)
        self._verdicts: dict[Item, dict[Condition, bool | None]] = {item: {} for item in self._requests}
        self._awaited: dict[Item, set[Condition]] = {item: set() for item in self._requests}
        self._came: dict[Item, None] = dict.fromkeys(self._requests)
        self._finished: dict[Item, list[Condition]] = {}
        self.settled = 0
        """Requests to which nothing more is asked."""

    def take(self, answers: pa.Table) -> None:
        """Take answers that have come, or that were there."""
        columns = rows(answers, "question_id", "rewrite", "temperature", "trial")
        for (question_id, rewrite, temperature, trial), right in zip(columns, self._judge(answers), strict=True):
            item = question_id, rewrite
            self._verdicts[item][temperature, trial] = right
            self._awaited[item].discard((temperature, trial))
            self._came[item] = None

    def next(self) -> list[Request]:
        """Return what to ask for next to each request whose last wave has come since the call before."""
        wanted = []
        for item in [item for item in self._came if not self._awaited[item]]:
            del self._came[item]
            used, lacking = self._wave(item)
            if not lacking:
                self._finished[item] = used
                del self._verdicts[item], self._awaited[item]
                self.settled += 1
                continue
            self._awaited[item].update(lacking)
            (temperature, first), (_, last) = lacking[0], lacking[-1]
            known = frozenset((temperature, trial) for trial in range(first, last)) - set(lacking)
            wave = replace(self._requests[item], temperatures=(temperature,), first_trial=first, trials=last + 1)
            wanted.append(replace(wave, cached=known))
        return wanted

    def finished(self) -> dict[Item, list[Condition]]:
        """Return the requests that were settled since the call before, and the answers on which that rests."""
        finished, self._finished = self._finished, {}
        return finished

    def at_most(self) -> list[Request]:
        """Return all that may still be asked for to the requests that are not settled."""
        left = []
        for item in self._verdicts:
            request = self._requests[item]
            if lacking := self._wave(item)[1]:
                passed = {(t, k) for t in request.temperatures if t < lacking[0][0] for k in range(request.trials)}
                left.append(replace(request, cached=frozenset(passed | self._verdicts[item].keys())))
        return left

    def _wave(self, item: Item) -> tuple[list[Condition], list[Condition]]:
        request = self._requests[item]
        return next_wave(self._verdicts[item], request.temperatures, request.trials, self._settled)
