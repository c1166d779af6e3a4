"""Records of a data set on the Hugging Face hub, through ``datasets``."""

import logging
import re
from collections.abc import Iterator
from functools import cache

from robust_eval.dataset.record import Record
from robust_eval.error import UserError, first_line
from robust_eval.runtime.files import UNPACKED

log = logging.getLogger(__name__)

PARQUET = "refs/convert/parquet"
"""The branch on which the hub keeps every data set as Parquet files, SUBSET/SPLIT/*.parquet: none needs a program of
its own to be read, which ``datasets`` refuses from version 4 on."""
_COMMIT = re.compile(r"[0-9a-f]{40}")
_ROWS = 1_000


@cache
def commit(name: str, revision: str) -> str:
    """Return the commit that a branch or tag stands for now; the name as it is where the hub cannot be asked."""
    if _COMMIT.fullmatch(revision):
        return revision
    import httpx2
    from huggingface_hub import HfApi

    try:
        return HfApi().dataset_info(name, revision=revision).sha or revision
    except (OSError, ValueError, httpx2.HTTPError) as problem:
        log.warning("it is not known which commit %s of %s is: %s", revision, name, first_line(problem))
        return revision


def read_hub(name: str, subset: str, split: str, revision: str) -> Iterator[Record]:
    """Yield the records of a subset and split; UserError where the hub does not have them, or cannot be reached."""
    import datasets
    import httpx2

    found = commit(name, revision)
    try:
        if revision == PARQUET:
            files = {split: f"{subset}/{split}/*.parquet"}
            data = datasets.load_dataset(name, data_files=files, split=split, revision=found)
        else:
            data = datasets.load_dataset(name, subset, split=split, revision=found)
    except (OSError, ValueError, RuntimeError, httpx2.HTTPError, datasets.exceptions.DatasetsError) as problem:
        raise UserError(
            f"{name} ({subset}, {split}, {revision}) cannot be loaded from the hub: {first_line(problem)}; a copy on "
            "this machine is named with dataset.path=…"
        ) from problem
    for batch in data.with_format("arrow").iter(batch_size=_ROWS):
        if batch.nbytes > UNPACKED:
            raise UserError(
                f"{name}: {_ROWS:,} records take {batch.nbytes / 2**20:,.0f} MiB, and no more than "
                f"{UNPACKED / 2**20:.0f} MiB are read at once"
            )
        yield from batch.to_pylist()
