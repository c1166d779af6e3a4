"""The moment from which a run is recorded: a mistake that is found before anything is asked leaves no run."""

from collections.abc import Callable

from robust_eval.tracking.base import Run


class Beginning:
    """The moment at which a model is first asked, or at which the first answers are found in the store.

    Until then the run has nothing in the tracker and nothing in its folder. What is to be written there waits.
    """

    def __init__(self, start: Callable[[], Run]) -> None:
        self._start = start
        self._record: Run | None = None
        self._waiting: list[Callable[[Run], object]] = []

    def __call__(self) -> Run:
        """Begin the run, unless it has begun: start its record and write what has waited. Return the record."""
        if self._record is None:
            self._record = self._start()
            for leave in self._waiting:
                leave(self._record)
            self._waiting.clear()
        return self._record

    def then(self, leave: Callable[[Run], object]) -> None:
        """Call ``leave`` with the record when the run begins; at once if it has begun."""
        if self._record is None:
            self._waiting.append(leave)
        else:
            leave(self._record)
