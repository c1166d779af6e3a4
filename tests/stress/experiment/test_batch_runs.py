"""A run that sends batches and is killed goes on with them: nothing is asked twice, and the table is the same."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from batch_server import BatchServer, batch_server
from shell import Shell

MOMENTS = [("create", 1), ("download", 1)]
"""The service has done something for the so-many-th time in a run, which is killed before it hears of it."""


@pytest.fixture
def server() -> Iterator[BatchServer]:
    with batch_server() as started:
        yield started


class Killer:
    """Kills a run at one of the moments."""

    def __init__(self, kind: str, number: int) -> None:
        self.process: int | None = None
        self._kind, self._left = kind, number

    def __call__(self, kind: str) -> None:
        if kind == self._kind and self.process is not None:
            self._left -= 1
            if not self._left:
                os.kill(self.process, signal.SIGKILL)

    def begin(self, process: int) -> None:
        self.process = process


def test_a_run_killed_when_its_batch_is_made_and_when_it_has_come_ends_with_the_same_table_and_asks_nothing_twice(
    shell: Shell, server: BatchServer, tmp_path: Path
):
    def run(killer: Killer | None, folder: str, *more: str) -> int:
        server.done = killer or (lambda kind: None)
        settings = [
            *("experiment=certainty", "dataset.limit=5", "sampler.trials=4", "tracking=none"),
            *("model=openai_compatible", f"model.base_url={server.url}", "model.model=m", "model.api_key_env=null"),
            *("model.poll_seconds=0.06", f"paths.mlruns={tmp_path / folder}", f"hydra.run.dir={tmp_path / folder}/run"),
        ]
        ended = shell.python(
            ["run.py", *settings, *more],
            meanwhile=killer.begin if killer else lambda _: None,
            figures=False,
            XDG_CACHE_HOME=str(tmp_path / "cache"),
        )
        assert killer or not ended.returncode, ended.stderr
        return ended.returncode

    run(None, "without")
    server.looks = 3
    for kind, number in MOMENTS:
        assert run(Killer(kind, number), "batches", "model.batch=true") == -signal.SIGKILL, kind
    assert list(server.lines.values()) == [1] * 5  # what is likeliest
    run(None, "batches", "model.batch=true")

    expected, found = (pq.read_table(tmp_path / name / "run" / "graded.parquet") for name in ("without", "batches"))
    assert found.num_rows == 25
    assert found == expected
    assert list(server.lines.values()) == [1] * 10  # a line of the second stage asks for four answers
    assert len(server.batches) == server.calls["upload"] == 2  # a stage has one, also where no reply had come
