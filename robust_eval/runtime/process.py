"""The process of a command: signals, exit statuses, locks, open files, versions, and the seconds of its stages."""

import io
import os
import platform
import shlex
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import NoReturn

from filelock import FileLock
from rich.text import Text

import robust_eval
from robust_eval.error import UserError
from robust_eval.runtime.console import Console
from robust_eval.runtime.text import printable, printable_lines

AGAIN = 0.05
"""Seconds after which an interrupt comes again that Python has thrown away."""


class Terminated(KeyboardInterrupt):
    """SIGTERM was received; it stops a command as Ctrl-C does."""


@contextmanager
def command(mistake: int = 1, failure: int = 1) -> Iterator[None]:
    """Wrap all that a command does, and set its exit status.

    A UserError exits with the status ``mistake`` and one sentence, Ctrl-C with 130, SIGTERM with 143, any other
    exception with the status ``failure`` and a traceback.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _terminate)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that knows ASCII alone shows κ as \u03ba
    try:
        with no_interrupt_lost():
            yield
    except KeyboardInterrupt as problem:
        sys.exit(128 + (signal.SIGTERM if isinstance(problem, Terminated) else signal.SIGINT))
    except Exception as problem:
        say(problem)
        sys.exit(mistake if isinstance(problem, UserError) else failure)


@contextmanager
def no_interrupt_lost() -> Iterator[None]:
    """Send Ctrl-C and SIGTERM again, a moment later, where Python ignores them.

    Python ignores every exception that is raised in a ``__del__`` method or in the callback of a weak reference.
    """

    def hook(thrown: "sys.UnraisableHookArgs") -> None:
        if isinstance(thrown.exc_value, KeyboardInterrupt):
            number = signal.SIGTERM if isinstance(thrown.exc_value, Terminated) else signal.SIGINT
            main = threading.main_thread().ident
            threading.Timer(AGAIN, signal.pthread_kill, [main, number]).start()  # wakes it where it waits as well
        else:
            before(thrown)

    before, sys.unraisablehook = sys.unraisablehook, hook
    try:
        yield
    finally:
        sys.unraisablehook = before


def say(problem: Exception) -> None:
    """Print what is wrong to standard error: the sentence of a UserError, the traceback of any other exception."""
    if isinstance(problem, UserError):
        words = printable(str(problem))
    else:
        words = printable_lines("".join(traceback.format_exception(problem)))
    Console(stderr=True).print(Text.assemble(("error:", "bold red"), f" {words}"))


def _terminate(*_: object) -> NoReturn:
    raise Terminated


_KEPT: dict[tuple[int, Path], FileLock] = {}


def kept_lock(file: Path) -> FileLock:
    """Return the lock of a file. A process has one lock for a file, which lives until the process ends.

    A lock that is dropped runs ``FileLock.__del__``, in which Python ignores exceptions: Ctrl-C at that moment would be
    lost. A fork cannot use the lock that it inherits, so each process has its own.
    """
    name = os.getpid(), file.absolute()
    if name not in _KEPT:
        _KEPT[name] = FileLock(name[1])
    return _KEPT[name]


SPARE = 32
"""Open files of a run that are no connections: the store, locks, tables, the tracker's database."""


def allow_connections(number: int, setting: str) -> None:
    """Raise the limit until so many connections, which ``setting`` asks for, may be open at once; UserError where the
    system sets a lower one.
    """
    try:
        import resource

        others = len(os.listdir("/dev/fd")) + SPARE
    except (ImportError, OSError):  # Windows has no such limit, and a container may hide what is open
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = number + others
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return
    if hard != resource.RLIM_INFINITY and needed > hard:
        most = hard - others
        lower = f"{setting}={most}, or " if most > 0 else ""
        raise UserError(
            f"{setting}={number} needs about {needed} open files, but the hard limit is {hard} (ulimit -Hn): "
            f"set {lower}a higher limit"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "scipy", "pyarrow", "hydra-core", "omegaconf", "mlflow")


def environment() -> dict[str, str]:
    """Return the versions of Python and of packages that matter, the machine, the visible GPUs, and the git commit."""
    return {
        "version.robust_eval": robust_eval.__version__,
        "version.python": platform.python_version(),
        **_versions(),
        "machine": f"{platform.system()} {platform.machine()}",
        "devices": os.environ.get("CUDA_VISIBLE_DEVICES", "all"),
        "git.commit": _own_commit(),
    }


@cache
def _versions() -> dict[str, str]:
    """Return the versions of :data:`PACKAGES`, read once: of a package that changes later, this process has the old."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[f"version.{package}"] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[f"version.{package}"] = "not installed"
    return versions


@cache
def _own_commit() -> str:
    """Return the commit of this code, asked for once: what is edited later, this process has not loaded."""
    return git_commit(Path(__file__).parent)


def git_commit(folder: Path) -> str:
    """Return the commit of the checkout that a folder belongs to, with "+changes" where tracked files differ.

    "none" where there is no checkout, or only one that somebody keeps around an installed package.
    """
    try:
        if not _git(folder, "ls-files", "."):
            return "none"
        commit = _git(folder, "rev-parse", "HEAD")
        return commit + ("+changes" if _git(folder, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return "none"


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def origin(run_id: str | None) -> dict[str, str]:
    """Return the command of this process, the time, the id of the run, and the versions; unknown ones are left out."""
    versions = {name: value for name, value in environment().items() if value not in ("none", "not installed")}
    found = {"command": typed_command(), "time": f"{datetime.now().astimezone():%d %B %Y, %H:%M %Z}"}
    return found | ({} if run_id is None else {"run id": run_id}) | versions


def typed_command() -> str:
    """Return the command that started this process, with programs called by their names."""
    first, *words = sys.orig_argv
    named = [Path(word).name if Path(word).is_absolute() else word for word in words[:1]]
    program = [] if named and not named[0].startswith("-") and not named[0].endswith(".py") else [Path(first).name]
    return shlex.join([*program, *named, *words[1:]])


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
