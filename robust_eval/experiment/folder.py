"""The folder of a run, which one run has to itself."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import Timeout
from omegaconf import DictConfig

from robust_eval.config.repeatable import repeatable
from robust_eval.error import UserError
from robust_eval.runtime.process import process_lock
from robust_eval.tracking.run_folder import CONFIG, LOG


@contextmanager
def owned(folder: Path, composed: DictConfig) -> Iterator[None]:
    """Lock the folder of a run.

    A folder in which nothing but the log was written is removed afterwards, with the folder of its day if that is empty
    then. Raises UserError where another run is in the folder, or was there with another configuration.
    """
    lock = process_lock(folder.with_name(f"{folder.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout as problem:
        raise UserError(f"a run is going on in {folder}; give this one another folder (hydra.run.dir)") from problem
    try:
        file = folder / CONFIG
        if file.is_file() and file.read_text(encoding="utf-8") != repeatable(composed):
            raise UserError(f"{folder} holds a run with another configuration; give this one another (hydra.run.dir)")
        yield
    finally:
        if {path.name for path in folder.iterdir()} <= {LOG}:
            (folder / LOG).unlink(missing_ok=True)
            with suppress(OSError):
                folder.rmdir()
        Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()
        if not folder.exists() and folder.parent.parent == Path(composed.paths.mlruns) / "runs":
            with suppress(OSError):  # other runs lie there
                folder.parent.rmdir()
