"""The user's cache folder. It saves time and nothing else: every run works without it."""

import atexit
import functools
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import platformdirs

log = logging.getLogger(__name__)

_elsewhere: dict[Path, Path] = {}
_said: list[Path] = []


def cache_folder() -> Path:
    """Return the user's cache folder; where the user has no home, a folder that cannot exist."""
    nowhere = Path(os.devnull, "robust_eval")
    try:
        folder = Path(platformdirs.user_cache_dir("robust_eval"))
    except RuntimeError:  # so newer versions say that there is no home; older ones call it ~
        return nowhere
    return folder if folder.is_absolute() else nowhere


def kept(file: Path) -> str | None:
    """Read a file of the cache; None where it does not exist or cannot be read."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def keep(file: Path, text: str) -> None:
    """Write a file of the cache, whole or not at all. Where that fails, log it once and go on."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, partial = tempfile.mkstemp(dir=file.parent)
        try:
            with open(descriptor, "w", encoding="utf-8") as opened:
                opened.write(text)
            os.replace(partial, file)
        except BaseException:
            os.unlink(partial)
            raise
    except OSError as problem:
        _go_without(file.parent, problem)


def kept_folder(folder: Path, make: Callable[[Path], None], whole: Callable[[Path], bool] = os.path.isdir) -> Path:
    """Return a folder of the cache, which ``make`` creates unless it exists and is ``whole``.

    Where it cannot be kept, it is created in a temporary folder that is removed when this process ends.
    """
    folder = place(folder)
    if not whole(folder):
        try:
            _make(folder, make, whole)
        except OSError as problem:
            _go_without(folder.parent, problem)
            _elsewhere[folder] = folder = _temporary() / folder.name
            _make(folder, make, whole)
    return folder


def place(folder: Path) -> Path:
    """Return where a folder of the cache lies: in the cache, or in a temporary folder where it could not be kept."""
    return _elsewhere.get(folder, folder)


def _make(folder: Path, make: Callable[[Path], None], whole: Callable[[Path], bool]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as partial:
        made = Path(partial, folder.name)
        make(made)
        try:
            os.replace(made, folder)
        except OSError:
            if not whole(folder):  # else another process was faster
                shutil.rmtree(folder)
                os.replace(made, folder)


@functools.cache
def _temporary() -> Path:
    folder = tempfile.mkdtemp(prefix="robust_eval-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _go_without(place: Path, problem: OSError) -> None:
    """Log that the cache cannot be used, once in a process."""
    if not _said:
        reason = os.strerror(problem.errno) if problem.errno else problem
        log.warning(
            "nothing can be kept in %s between runs (%s): each run makes it anew; XDG_CACHE_HOME names another folder",
            place,
            reason,
        )
        _said.append(place)
