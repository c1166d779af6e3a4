"""When a run begins to leave something behind: a mistake that is found before anything was asked is no run."""

from collections.abc import Callable

from robust_eval.record.tracking import Run


class Beginning:
    """The moment at which a model is first asked, or at which the first answers are found in the store.

    Until then a run has nothing in the tracker and nothing in its folder. What it is to leave there by then waits.
    """

    def __init__(self, start: Callable[[], Run]) -> None:
        self._start = start
        self._record: Run | None = None
        self._waiting: list[Callable[[Run], object]] = []

    def __call__(self) -> Run:
        """The run begins, unless it has: the record of it is started, and what has waited is done."""
        if self._record is None:
            self._record = self._start()
            for leave in self._waiting:
                leave(self._record)
            self._waiting.clear()
        return self._record

    def then(self, leave: Callable[[Run], object]) -> None:
        """Do this when the run begins; at once where it has begun."""
        if self._record is None:
            self._waiting.append(leave)
        else:
            leave(self._record)
