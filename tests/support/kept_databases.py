"""Databases of MLflow that are copies of one, because MLflow takes a second to make one."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from robust_eval.tracking import mlflow_tracker


@contextmanager
def kept_databases(folder: Path) -> Iterator[None]:
    """Whoever makes a database meanwhile has a copy of the one in ``folder``, which all processes that test share."""
    make, kept = mlflow_tracker._make_database, folder / "kept.db"

    def copied(file: Path) -> None:
        if file.exists():
            return
        own = file.with_name(f"{file.name}.{os.getpid()}")
        if kept.exists():
            shutil.copyfile(kept, own)
        else:
            make(own)
            shutil.copyfile(own, partial := kept.with_name(f"{kept.name}.{os.getpid()}"))
            os.replace(partial, kept)
        os.replace(own, file)

    mlflow_tracker._make_database = copied
    try:
        yield
    finally:
        mlflow_tracker._make_database = make
