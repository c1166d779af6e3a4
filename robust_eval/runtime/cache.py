"""What is kept between runs in the user's cache folder: a convenience, without which a run takes longer and no more."""

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
    """The user's cache folder; where the user has no home, a folder that there can never be."""
    nowhere = Path(os.devnull, "robust_eval")
    try:
        folder = Path(platformdirs.user_cache_dir("robust_eval"))
    except RuntimeError:  # so newer versions say that there is no home; older ones call it ~
        return nowhere
    return folder if folder.is_absolute() else nowhere


def kept(file: Path) -> str | None:
    """What a file of the cache says; None where there is none, or none that can be read."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def keep(file: Path, text: str) -> None:
    """Write a file of the cache, whole or not at all; where that is not possible, it is done without."""
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
    """A folder of the cache that ``make`` makes where it is not there and ``whole``.

    Where it cannot be kept, it is made in a temporary folder that is removed when this process ends.
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
    """Where a folder of the cache is or will be: there, unless it could not be kept there in this process."""
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
    """Say it, once in a process."""
    if not _said:
        reason = os.strerror(problem.errno) if problem.errno else problem
        log.warning(
            "nothing can be kept in %s between runs (%s): each run makes it anew; XDG_CACHE_HOME names another folder",
            place,
            reason,
        )
        _said.append(place)
