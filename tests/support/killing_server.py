"""A server that kills the run that asks it, at moments that are chosen by what it has answered."""

import json
import os
import pickle
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from experiments import composed
from open_store import stored_answers, wait_until
from scripted_server import Answer, Body, Scripted
from shell import Shell

from robust_eval.config.checks import to_config

RUN = """
import pickle
from pathlib import Path
from robust_eval.experiment.run import run
run(*pickle.loads(Path("settings").read_bytes()), Path("run"))
"""
"""A run whose settings are composed: that takes most of the time of one."""


@dataclass
class KillingServer:
    """Answers as ``answer`` does, and counts what it has answered that ``asks`` for an answer to a question.

    Whoever asks it sends one request after another (``model.max_concurrency=1``): of several that a killed process
    has sent, the server may take in one when the process is long dead.
    """

    answer: Answer
    asks: Callable[[Body], bool]
    store: Path
    """Where the killed runs keep their answers."""
    answered: Counter[str] = field(default_factory=Counter)
    """How often the same request was answered."""
    _left: int | None = None
    _due: int = 0
    _waits: bool = True
    _victim: int = 0
    _begun: threading.Event = field(default_factory=threading.Event)
    _killed: threading.Event = field(default_factory=threading.Event)
    _one: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, body: Body) -> Scripted:
        if not self.asks(body):
            return self.answer(body)
        with self._one:
            if self._left is None or self._left > 0:
                self._left = None if self._left is None else self._left - 1
                self.answered[json.dumps(body, sort_keys=True)] += 1
                return self.answer(body)
            if not self._killed.is_set():
                assert self._begun.wait(60)
                try:
                    if self._waits:
                        wait_until(partial(stored_answers, self.store), self._due)
                finally:
                    os.kill(self._victim, signal.SIGKILL)
                    self._killed.set()
        return 503, {}, {"error": {"message": "too late", "code": None}}

    def kills(
        self, shell: Shell, place: Path, lines: Sequence[str], moments: Iterable[tuple[int, bool]]
    ) -> Iterator[int]:
        """Have a run killed again and again while it waits for an answer, after so many others of its life, and yield
        how many of these are lost: they were answered, and not stored when it was killed. None is where the kill waits
        until all are stored, which a moment says as well.
        """
        (place / "run").mkdir(exist_ok=True)
        settings = composed(*lines, "model.max_concurrency=1")
        (place / "settings").write_bytes(pickle.dumps((to_config(settings), settings)))
        for after, waits in moments:
            yield self._kills(shell, place, after, waits)

    def _kills(self, shell: Shell, place: Path, after: int, waits: bool) -> int:
        before = stored_answers(self.store)
        self._left, self._waits, self._due = after, waits, before + after
        self._begun.clear()
        self._killed.clear()
        ended = shell.python(["-c", RUN], place, self._meet, figures=False)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        self._left = None
        return before + after - stored_answers(self.store)

    def _meet(self, process: int) -> None:
        self._victim = process
        self._begun.set()
