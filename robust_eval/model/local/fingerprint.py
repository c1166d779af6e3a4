"""Fingerprints of model files, without loading the model."""

import hashlib
import json
import re
from pathlib import Path

from robust_eval.error import UserError, first_line
from robust_eval.runtime.cache import cache_folder, read_cached, write_cached


def folder_hash(folder: Path) -> str:
    """Return the SHA-256 over the names and contents of the files in a folder.

    The digest of a file is cached until its size or time changes, because weights take seconds to read.
    """
    cache_file = cache_folder() / "hashes" / f"{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()}.json"
    stored = _stored_digests(read_cached(cache_file))
    digests = {}
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        status = file.stat()
        stamp = [status.st_size, status.st_mtime_ns, status.st_ino]
        name = file.relative_to(folder).as_posix()
        if name in stored and stored[name][0] == stamp:
            digests[name] = stored[name]
        else:
            with open(file, "rb") as content:
                digests[name] = stamp, hashlib.file_digest(content, "sha256").hexdigest()
    if digests != stored:
        write_cached(cache_file, json.dumps(digests))
    contents = {name: digest for name, (_, digest) in digests.items()}
    return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()


def _stored_digests(text: str | None) -> dict[str, tuple[list[int], str]]:
    """Return the cached stamps and digests of a folder's files, by name; none if the cache is unreadable."""
    try:
        return {name: (stamp, digest) for name, (stamp, digest) in json.loads(text or "{}").items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def no_model(path: str) -> str:
    """Return the reason why a path is no model; empty for the folder of a model or a hub id."""
    folder = Path(path)
    if not folder.exists():
        expected = "it must be the folder of a model, a hub id (OWNER/NAME), or embedded:PACKAGE/FILE"
        return "" if _HUB_ID.fullmatch(path) else f"there is no folder {path}; {expected}"
    if not folder.is_dir():
        return f"{path} is a file; it must be the folder of a model"
    if any((folder / name).is_file() for name in _CONFIGS):
        return ""
    names = sorted(entry.name for entry in folder.iterdir())
    contents = f"it holds {', '.join(names[:5])}{', …' if len(names) > 5 else ''}" if names else "it is empty"
    return (
        f"the folder {path} holds no model: {contents}, and a model has config.json, weights (*.safetensors) and a "
        "tokenizer (tokenizer.json)"
    )


_CONFIGS = ("config.json", "adapter_config.json", "modules.json")
"""Configuration files of models: of transformers, of peft, of sentence-transformers."""
_HUB_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")  # ./folder is none


def hub_commit(repository: str, revision: str | None) -> str:
    """Return the current commit of a revision of a hub model, or the cached one if the hub is unreachable.

    Raises UserError if neither has the model.
    """
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]  # of the HTTP library that it uses

    try:
        return str(HfApi().model_info(repository, revision=revision, timeout=10).sha)
    except (HTTPError, OSError, ValueError) as problem:
        reason = problem
    try:
        cached = hf_hub_download(repository, "config.json", revision=revision, local_files_only=True)
    except (OSError, ValueError) as problem:
        raise UserError(
            f"{repository} is no folder here, and cannot be loaded from the hub: {first_line(reason)}"
        ) from problem
    return Path(cached).parent.name
