"""Data sets on the Hugging Face hub: their records, and the commit of a branch or tag."""

import logging
import re
from collections.abc import Iterator
from functools import cache

from robust_eval.dataset.record import Record
from robust_eval.error import UserError, first_line
from robust_eval.runtime.files import UNPACKED

log = logging.getLogger(__name__)

PARQUET = "refs/convert/parquet"
"""Branch of a data set's repository on the hub with its Parquet files, SUBSET/SPLIT/*.parquet. They need no loading
script, which ``datasets`` refuses from version 4 on."""
_COMMIT = re.compile(r"[0-9a-f]{40}")
_ROWS = 1_000


@cache
def commit(name: str, revision: str) -> str:
    """Return the current commit of a branch or tag on the hub; the name itself if the hub cannot be reached."""
    if _COMMIT.fullmatch(revision):
        return revision
    import httpx2
    from huggingface_hub import HfApi

    try:
        return HfApi().dataset_info(name, revision=revision).sha or revision
    except (OSError, ValueError, httpx2.HTTPError) as problem:
        log.warning("the commit of %s (%s) is unknown: %s", name, revision, first_line(problem))
        return revision


def read_hub(name: str, subset: str, split: str, revision: str) -> Iterator[Record]:
    """Yield the hub's records of a subset and split; UserError if the hub does not have them, or cannot be reached."""
    import datasets
    import httpx2

    commit_hash = commit(name, revision)
    try:
        if revision == PARQUET:
            files = {split: f"{subset}/{split}/*.parquet"}
            data = datasets.load_dataset(name, data_files=files, split=split, revision=commit_hash)
        else:
            data = datasets.load_dataset(name, subset, split=split, revision=commit_hash)
    except (OSError, ValueError, RuntimeError, httpx2.HTTPError, datasets.exceptions.DatasetsError) as problem:
        raise UserError(
            f"{name} ({subset}, {split}, {revision}) cannot be loaded from the hub: {first_line(problem)}; set "
            "dataset.path to a local copy"
        ) from problem
    for batch in data.with_format("arrow").iter(batch_size=_ROWS):
        if batch.nbytes > UNPACKED:
            raise UserError(
                f"{name}: {_ROWS:,} records take {batch.nbytes / 2**20:,.0f} MiB, and the maximum is "
                f"{UNPACKED / 2**20:.0f} MiB"
            )
        yield from batch.to_pylist()
