"""Cache folder of the user, and the measured choices in it. It saves time: every run works without it."""

import atexit
import functools
import logging
import os
import platform
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import platformdirs

log = logging.getLogger(__name__)

_temporary_folders: dict[Path, Path] = {}
_warned: list[Path] = []


def cache_folder() -> Path:
    """Return the user's cache folder; for a user without a home, a folder that cannot exist."""
    nowhere = Path(os.devnull, "robust_eval")
    try:
        folder = Path(platformdirs.user_cache_dir("robust_eval"))
    except RuntimeError:  # of newer versions without a home; older ones return ~
        return nowhere
    return folder if folder.is_absolute() else nowhere


def read_cached(file: Path) -> str | None:
    """Return the text of a cache file; None if it is missing or unreadable."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def write_cached(file: Path, text: str) -> None:
    """Write a file of the cache atomically; a failure is logged once and otherwise ignored."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, partial = tempfile.mkstemp(dir=file.parent)
        try:
            with open(descriptor, "w", encoding="utf-8") as stream:
                stream.write(text)
            os.replace(partial, file)
        except BaseException:
            os.unlink(partial)
            raise
    except OSError as problem:
        _warn_once(file.parent, problem)


def cached_folder(
    folder: Path, create: Callable[[Path], None], is_complete: Callable[[Path], bool] = os.path.isdir
) -> Path:
    """Return a folder of the cache, which ``create`` fills unless it exists and ``is_complete``.

    Without a writable cache, the folder is temporary and removed when this process ends.
    """
    folder = folder_location(folder)
    if not is_complete(folder):
        try:
            _create(folder, create, is_complete)
        except OSError as problem:
            _warn_once(folder.parent, problem)
            _temporary_folders[folder] = folder = _temporary() / folder.name
            _create(folder, create, is_complete)
    return folder


def folder_location(folder: Path) -> Path:
    """Return the path of a folder of the cache, or of its temporary substitute."""
    return _temporary_folders.get(folder, folder)


def _create(folder: Path, create: Callable[[Path], None], is_complete: Callable[[Path], bool]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as partial:
        new_folder = Path(partial, folder.name)
        create(new_folder)
        try:
            os.replace(new_folder, folder)
        except OSError:
            if not is_complete(folder):  # else another process was faster
                shutil.rmtree(folder)
                os.replace(new_folder, folder)


@functools.cache
def _temporary() -> Path:
    folder = tempfile.mkdtemp(prefix="robust_eval-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _warn_once(folder: Path, problem: OSError) -> None:
    """Log that the cache cannot be used, once in a process."""
    if not _warned:
        reason = os.strerror(problem.errno) if problem.errno else problem
        log.warning(
            "%s cannot be written (%s), so each run repeats the work; set XDG_CACHE_HOME to another folder",
            folder,
            reason,
        )
        _warned.append(folder)


def get_or_measure(choice: str, circumstances: str, measure: Callable[[], str], usable: Callable[[str], bool]) -> str:
    """Return the cached choice on this machine under the same ``circumstances``; if there is none, or it is not
    ``usable``, that of ``measure``.

    Different ways of computing differ in the last digits. The same seed must give the same answers, so the choice is
    reused.
    """
    cached = cached_choice(choice, circumstances)
    if cached is not None and usable(cached):
        return cached
    chosen = measure()
    store_choice(choice, circumstances, chosen)
    return chosen


def store_choice(choice: str, circumstances: str, chosen: str) -> None:
    """Write a measured choice to the cache."""
    write_cached(_cache_file(choice, circumstances), chosen)


def cached_choice(choice: str, circumstances: str) -> str | None:
    """Return the cached choice of a measurement; None without one."""
    return read_cached(_cache_file(choice, circumstances))


def _cache_file(choice: str, circumstances: str) -> Path:
    return cache_folder() / choice / f"{platform.node()} {platform.machine()} {circumstances}"
