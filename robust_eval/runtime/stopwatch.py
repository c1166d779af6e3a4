"""The seconds that each stage of a run takes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Measures stages; ``seconds`` maps their names to wall-clock seconds."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inner = 0.0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure the block under this name, without the stages inside it. Blocks of one name add up."""
        start = time.perf_counter()
        before, self._inner = self._inner, 0.0
        try:
            yield
        finally:
            seconds = time.perf_counter() - start
            self.seconds[name] = round(self.seconds.get(name, 0.0) + seconds - self._inner, 3)
            self._inner = before + seconds
