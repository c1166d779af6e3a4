"""What a command shows at a terminal: our bars, and none of the libraries that it uses."""

import os
import pty
import re
import subprocess
import sys
import termios
from pathlib import Path

from experiments import RUN_WITHOUT_FIGURES

from robust_eval.config.groups import PROJECT

STAGES = {
    "greedy answers",
    "sampled answers (temperature_sweep)",
    "sampled answers (perturbation)",
    "rewrites, attempt 1",
}
RUN = [
    *("sampler=[temperature_sweep,perturbation]", "metric=[frs,agreement]", "rewriter=llm", "grader=cosine"),
    *("aggregator=clusters", "dataset.limit=1", "sampler.temperature_sweep.selection=none"),
    *("sampler.temperature_sweep.trials=1", "sampler.perturbation.rewrites=1", "rewriter.max_new_tokens=16"),
    "rewriter.attempts=1",
]
"""Of all that draws bars, here or in a library: answers, rewrites, embeddings, clusters."""
FOREIGN = re.compile(r"it/s|s/it|\d%\||[▏▎▍▌▋▊▉█]|Loading|Batches|Download|Fetching|Warning|Traceback")
"""What tqdm draws, what libraries call their bars, and what else is none of ours."""


def at_terminal(*words: str, folder: Path) -> tuple[int, str]:
    """The exit status of a command at a terminal of its own, and all that it has written there."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, 120))  # a terminal without columns has no bars
    inherited = {name: value for name, value in os.environ.items() if name != "TQDM_DISABLE"}
    surroundings = inherited | {"TERM": "xterm-256color", "PYTHONPATH": str(PROJECT)}
    process = subprocess.Popen(
        [sys.executable, *words], cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, env=surroundings
    )
    os.close(theirs)
    written = b""
    while True:
        try:
            written += os.read(ours, 65_536)
        except OSError:  # so Linux says that nobody has the terminal open any more
            break
    os.close(ours)
    return process.wait(), re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.decode())


def test_only_our_bars_are_drawn(tmp_path: Path):
    own = ["tracking=none", f"paths.mlruns={tmp_path}", f"hydra.run.dir={tmp_path}/run"]
    status, written = at_terminal("-c", RUN_WITHOUT_FIGURES, *RUN, *own, folder=PROJECT)
    assert status == 0, written
    lines = re.split(r"[\r\n]+", written)
    bars = {line.partition(" ━")[0].partition(" ╸")[0].strip() for line in lines if re.search(r"\d+/\d+", line)}
    assert bars == STAGES
    assert [line for line in lines if FOREIGN.search(line)] == []
