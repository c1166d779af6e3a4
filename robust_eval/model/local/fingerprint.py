"""What tells one set of model files from another, without loading them."""

import hashlib
import json
import re
from pathlib import Path

from robust_eval.error import UserError, first_line
from robust_eval.runtime.cache import cache_folder, read_cached, write_cached


def folder_hash(folder: Path) -> str:
    """SHA-256 over the names and contents of the files in a folder.

    Those of the contents are remembered as long as size and time of a file stay, because weights take seconds to read.
    """
    memory = cache_folder() / "hashes" / f"{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()}.json"
    known = _known(read_cached(memory))
    found = {}
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        status = file.stat()
        stamp = [status.st_size, status.st_mtime_ns, status.st_ino]
        name = file.relative_to(folder).as_posix()
        if name in known and known[name][0] == stamp:
            found[name] = known[name]
        else:
            with open(file, "rb") as content:
                found[name] = stamp, hashlib.file_digest(content, "sha256").hexdigest()
    if found != known:
        write_cached(memory, json.dumps(found))
    contents = {name: digest for name, (_, digest) in found.items()}
    return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()


def _known(text: str | None) -> dict[str, tuple[list[int], str]]:
    """Return what is remembered of the files of a folder, by name; nothing where that cannot be read."""
    try:
        return {name: (stamp, digest) for name, (stamp, digest) in json.loads(text or "{}").items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def no_model(path: str) -> str:
    """Return what is wrong with a path that cannot be that of a model; empty where it is a folder with one, or a hub
    id.
    """
    folder = Path(path)
    if not folder.exists():
        wanted = "it must be the folder of a model, a hub id (OWNER/NAME), or embedded:PACKAGE/FILE"
        return "" if _HUB_ID.fullmatch(path) else f"there is no folder {path}; {wanted}"
    if not folder.is_dir():
        return f"{path} is a file; it must be the folder of a model"
    if any((folder / name).is_file() for name in _CONFIGS):
        return ""
    names = sorted(entry.name for entry in folder.iterdir())
    there = f"it holds {', '.join(names[:5])}{', …' if len(names) > 5 else ''}" if names else "it is empty"
    return (
        f"the folder {path} holds no model: {there}, and a model has config.json, weights (*.safetensors) and a "
        "tokenizer (tokenizer.json)"
    )


_CONFIGS = ("config.json", "adapter_config.json", "modules.json")
"""What tells a folder with a model: of transformers, of peft, of sentence-transformers."""
_HUB_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")  # ./folder is none


def hub_commit(repository: str, revision: str | None) -> str:
    """Return the commit that a revision of a hub model is at: as the hub says now, or its cache where that is out of
    reach.

    Raises UserError where there is no such model in either.
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
