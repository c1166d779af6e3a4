"""Figures that an earlier run has drawn from the same findings with the same code."""

import hashlib
import json
from collections.abc import Sequence
from functools import cache
from importlib import metadata
from pathlib import Path

import pyarrow as pa

import robust_eval
from robust_eval.report.findings import Findings
from robust_eval.runtime.cache import keep, kept
from robust_eval.runtime.files import parsed_json


class DrawnBefore:
    """The figures of these ``names``, drawn from the findings of a run.

    ``notes`` is a folder with a file for each set of figures that was drawn: where they lie, and the digests of their
    files, so that none is taken that was changed or removed since.
    """

    def __init__(self, run: Findings, names: Sequence[str], notes: Path) -> None:
        self._files = [f"{name}{suffix}" for name in names for suffix in (".png", ".svg")]
        self._note = notes / f"{_fingerprint(run, names)}.json"

    def copied(self, folder: Path) -> bool:
        """Copy the figures into ``folder`` if an earlier run has them, and tell whether it has."""
        try:
            note = parsed_json(kept(self._note) or "{}")
            there, digests = Path(note["folder"]), dict(note["files"])
            contents = {name: (there / name).read_bytes() for name in self._files}
        except (OSError, ValueError, TypeError, KeyError):
            return False
        if digests != {name: _digest(content) for name, content in contents.items()}:
            return False
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            (folder / name).write_bytes(content)
        return True

    def keep(self, folder: Path) -> None:
        """Note that the figures lie in ``folder``."""
        digests = {name: _digest((folder / name).read_bytes()) for name in self._files}
        keep(self._note, json.dumps({"folder": str(folder.absolute()), "files": digests}))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _fingerprint(run: Findings, names: Sequence[str]) -> str:
    """Return the digest of all that the figures depend on: findings, this package, matplotlib."""
    digest = hashlib.sha256(_code())
    settings = {name: value for name, value in run.settings.items() if name.startswith("metric.")}
    for part in (names, run.values, run.curves, settings, run.declared):
        digest.update(repr(part).encode("utf-8", "backslashreplace"))
    for name, table in run.tables.items():
        digest.update(name.encode("utf-8", "backslashreplace"))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        digest.update(sink.getvalue())
    return digest.hexdigest()


@cache
def _code() -> bytes:
    """Return the digest of the source of this package and the version of matplotlib."""
    digest = hashlib.sha256(metadata.version("matplotlib").encode())
    for file in sorted(Path(robust_eval.__file__).parent.rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.digest()
