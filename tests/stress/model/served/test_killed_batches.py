"""2,000 answers that come in batches with every fault of the interface, to a run that is killed twenty times."""

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from batch_server import BatchServer, batch_server
from shell import Shell

KILLS = 20
SETTINGS = [
    *("model=openai_compatible", "model.model=m", "model.key_variable=null", "model.poll_seconds=0.5"),
    *("experiment=frs", "sampler.selection=none", "dataset.limit=100", "sampler.trials=4", "tracking=none"),
    *("sampler.temperatures=[0.25,0.5,1.0,1.5,2.0]", "model.retries=30"),
]


@pytest.fixture
def server() -> Iterator[BatchServer]:
    with batch_server() as started:
        yield started


def run(shell: Shell, server: BatchServer, place: Path, *more: str, kill_at: int | None = None) -> int:
    """Exit status of a run, which is killed a moment after the service has been asked so many times."""

    def kill(process: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # it was finished before
            while kill_at is not None:
                if server.calls.total() >= kill_at:
                    time.sleep(generator.uniform(0, 0.1))
                    os.kill(process, signal.SIGKILL)
                    return
                os.kill(process, 0)
                time.sleep(0.001)

    generator = random.Random(kill_at)
    place.mkdir(exist_ok=True)
    words = ["run.py", f"model.base_url={server.url}", *SETTINGS, f"paths.mlruns={place}", *more]
    ended = shell.python(words, meanwhile=kill, figures=False, XDG_CACHE_HOME=str(place.parent / "cache"))
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
    return ended.returncode


def answers(place: Path, name: str) -> object:
    (file,) = place.rglob(f"{name}.parquet")
    return pq.read_table(file)


def test_a_run_killed_twenty_times_beside_every_fault_ends_with_the_tables_of_one_without_batches(
    shell: Shell, server: BatchServer, tmp_path: Path
):
    assert run(shell, server, tmp_path / "single") == 0
    server.looks = 6
    plans = ["dirty", "token_limit", "expired", "partly_failed", "cancelled", "empty", "dirty", "expired", "completed"]
    server.plans = [*plans, *plans]
    server.faults["upload"] = ["lost", "broken", None, "busy", None, "broken", None, "lost"]
    server.faults["create"] = ["busy", "broken", None, "lost", None, "broken", "lost"]
    server.faults["list"] = ["lost", None, "busy"]
    server.faults["look"] = ["lost", "busy", None, None, *["lost"] * 40, None, None, "busy"]
    server.faults["download"] = ["half", "busy", None, "lost", None, "half"]
    generator = random.Random(3)
    kills = 0
    while kills < KILLS:
        code = run(
            shell,
            server,
            tmp_path / "batches",
            "model.batch=true",
            kill_at=server.calls.total() + generator.randint(1, 5),
        )
        assert code == -signal.SIGKILL, f"the run ended after {kills} kills"
        kills += 1
    assert run(shell, server, tmp_path / "batches", "model.batch=true") == 0
    for name in ("answers", "graded"):
        assert answers(tmp_path / "batches", name) == answers(tmp_path / "single", name), name

    marks = [batch["metadata"]["robust_eval"] for batch in server.batches.values()]
    assert len(set(marks)) == len(marks)  # none was made twice although replies were lost
    dirty = sum(batch["request_counts"]["total"] for batch in server.batches.values() if batch["plan"] == "dirty")
    assert server.lines.total() - len(server.lines) <= dirty / 3 + 2  # only what came in a broken line is asked again
    assert all(not left for left in server.faults.values())
    assert len(server.lines) == 100 * 5 + 100
