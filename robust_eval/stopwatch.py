"""How long each stage of a run took."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Collects ``seconds``: stage name to wall-clock seconds."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure the block under this name."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = round(time.perf_counter() - start, 3)
