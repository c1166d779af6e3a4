"""Models of GGUF files, converted to transformers' format once; the conversion is cached.

transformers reads weights and vocabulary. A GGUF file does not hold everything that a folder does, and transformers
drops some of the rest without a word. Each such loss is mended here, or the file is refused.
"""

import logging
import shutil
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from robust_eval.error import UserError, first_line
from robust_eval.model.local.model_files import EMBEDDED, file_hash, package_folder, package_location
from robust_eval.runtime.cache import cache_folder, cached_folder, folder_location

log = logging.getLogger(__name__)

CONVERSION = 1
"""Version of :func:`_convert`; a higher one renews earlier conversions."""

_DIGIT_SPLITS = ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone")
"""Values of tokenizer.ggml.pre that split numbers into digits, then text as GPT-2 does."""
_GPT2_SPLITS = ("gpt-2", "phi-2", "mpt", "olmo", "jais")
"""Values of tokenizer.ggml.pre that split text as GPT-2 does, as transformers does with a value unknown to it."""
_WHOLE_WORDS = ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "tekken")
"""Values of tokenizer.ggml.pre whose words are looked up before merges, and whose texts begin with the BOS token."""
_ROPE_FACTORS = "rope_freqs.weight"
"""Tensor of the divisors of the rotary frequencies of Llama 3.1 and later."""
_LLAMA3_ROPE = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
"""Parameters of these divisors besides their maximum; a GGUF file does not hold them."""
_END_TOKENS = ("eos", "eot", "eom")
_PROBE = "In 1969, 12345 people;  3.14 %\n\nZürich, don't: 東京 मुंबई 😀 x**2"
"""Text that a tokenizer must return as it was."""


def gguf_prompt_style(path: str) -> str:
    """Return ``chat`` for a GGUF file with a chat template, or one that cannot be read; else ``plain``."""
    try:
        metadata, _ = _metadata(path)
    except UserError:
        return "chat"  # loading it explains the problem
    return "chat" if "tokenizer.chat_template" in metadata else "plain"


def converted_model(path: str, sha256: str | None = None) -> Path:
    """Return the folder of a GGUF file (or embedded:PACKAGE/FILE) converted to transformers' format.

    Its name holds the file's checksum. UserError if the checksum is not ``sha256``, or the file cannot be converted.
    """
    gguf = _embedded_file(path, sha256) if path.startswith(EMBEDDED) else Path(path)
    digest = _checked_hash(gguf, sha256)
    folder = _place(gguf.stem, digest)
    try:
        return cached_folder(folder, lambda target: _convert(gguf, target), _is_whole)
    except OSError as problem:
        raise UserError(
            f"the converted model cannot be written to {folder.parent} or {tempfile.gettempdir()} ({problem}): "
            "set XDG_CACHE_HOME or TMPDIR to a writable folder"
        ) from problem


def converted_folder(name: str, sha256: str) -> Path:
    """Return the folder of the converted model of a GGUF file, by its name (without suffix) and checksum."""
    return folder_location(_place(name, sha256))


def _place(name: str, sha256: str) -> Path:
    return cache_folder() / "models" / f"{name}-{sha256[:16]}-{CONVERSION}"


def _is_whole(folder: Path) -> bool:
    """Return whether a model converted from GGUF is complete; an empty file was never written."""
    try:
        sizes = [file.stat().st_size for file in folder.iterdir()]
    except OSError:
        return False
    return bool(sizes) and all(sizes)


def _checked_hash(file: Path, sha256: str | None) -> str:
    digest = file_hash(file)
    if sha256 is not None and digest != sha256:
        raise UserError(f"{file} is not the expected file: its sha256 is {digest}, not {sha256}; install it again")
    return digest


def _embedded_file(path: str, sha256: str | None) -> Path:
    """Return the GGUF file of an embedded package; one divided among packages is joined once, in the cache."""
    package, _, name = path.removeprefix(EMBEDDED).partition("/")
    file = package_folder(package) / name
    if file.is_file():
        return file
    module = package.replace("-", "_")
    folder = cache_folder() / "packages" / module
    return cached_folder(folder, lambda target: _join(module, target / name, sha256)) / name


def _join(module: str, file: Path, sha256: str | None) -> None:
    file.parent.mkdir()
    with open(file, "wb") as joined:
        for number in count(1):
            if (location := package_location(f"{module}_part{number}")) is None:
                break
            with open(location / "data" / f"{file.name}.part{number - 1:02}", "rb") as piece:
                shutil.copyfileobj(piece, joined)
    _checked_hash(file, sha256)


@cache
def _metadata(path: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the metadata of a GGUF file and the names of its tensors; UserError if it is none."""
    from transformers.integrations.gguf import read_gguf_metadata

    try:
        metadata, tensors = read_gguf_metadata(path)
    except (OSError, ValueError, IndexError, KeyError, struct.error) as problem:
        raise UserError(f"{path} cannot be read as a GGUF file: {first_line(problem)}") from problem
    return metadata, tensors


def _convert(gguf: Path, target: Path) -> None:
    metadata, tensors = _metadata(str(gguf))
    _check_metadata(gguf, metadata, tensors)
    log.info("converting %s once", gguf.name)
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    with _read_once():
        try:
            model = AutoModelForCausalLM.from_pretrained(
                str(gguf.parent),
                gguf_file=gguf.name,
                dtype=torch.float32,
                quantization_config=GgufConfig(dequantize=True),
            )
            tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
        except (ImportError, ValueError, KeyError, IndexError, RuntimeError, struct.error) as problem:
            raise UserError(f"{gguf} cannot be converted: {first_line(problem)}") from problem
        if _ROPE_FACTORS in tensors:
            _mend_positions(model, gguf)
    _mend_tokenizer(tokenizer, metadata)
    if tokenizer.decode(tokenizer(_PROBE, add_special_tokens=False).input_ids) != _PROBE:
        raise _lossy(gguf, "its tokenizer alters text in transformers")
    _set_end_tokens(model, metadata)
    try:
        model.save_pretrained(target)
    except SafetensorError as problem:  # so it says that a disk is full
        raise OSError(str(problem)) from problem
    tokenizer.save_pretrained(target)


_SCALING = "transformers drops its RoPE scaling"


def _lossy(gguf: Path, loss: str) -> UserError:
    return UserError(
        f"{gguf} cannot be loaded without loss: {loss}; set model.path to the folder of the original model, or serve "
        "the file with llama.cpp (model=openai_compatible)"
    )


def _check_metadata(gguf: Path, metadata: dict[str, Any], tensors: tuple[str, ...]) -> None:
    """Raise UserError if transformers would drop a part of the model of a GGUF file."""
    architecture = metadata["general.architecture"]
    kind, split = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
    if metadata.get("split.count", 1) > 1:
        raise UserError(f"{gguf} is a part of a model: merge its parts with llama-gguf-split --merge")
    scaled = metadata.get(f"{architecture}.rope.scaling.type", "none") != "none"
    factors = [name for name in tensors if "rope_f" in name and (name != _ROPE_FACTORS or architecture != "llama")]
    if architecture != "gpt-oss" and (scaled or factors):
        raise _lossy(gguf, _SCALING)
    if kind == "gpt2":
        from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

        if split not in (*GGUF_PRE_TOKENIZER_SPLITS, *_DIGIT_SPLITS, *_GPT2_SPLITS):
            raise _lossy(gguf, f"transformers does not know how its tokenizer splits text (tokenizer.ggml.pre={split})")
    elif kind == "llama" and not architecture.startswith("gemma"):
        if not metadata.get("tokenizer.ggml.add_space_prefix", True):
            raise _lossy(gguf, "transformers puts a space before each text (tokenizer.ggml.add_space_prefix=false)")
    elif kind not in ("llama", "gemma4"):
        raise _lossy(gguf, f"its type of tokenizer is not supported (tokenizer.ggml.model={kind})")


def _mend_tokenizer(tokenizer: Any, metadata: dict[str, Any]) -> None:
    """Set the properties of the tokenizer that transformers does not read from the GGUF file."""
    from tokenizers import pre_tokenizers

    split = metadata.get("tokenizer.ggml.pre")
    if metadata["tokenizer.ggml.model"] != "gpt2":
        return
    if split in _DIGIT_SPLITS:
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )
    elif split in _WHOLE_WORDS:
        tokenizer.backend_tokenizer.model.ignore_merges = True
        tokenizer.add_bos_token = metadata.get("tokenizer.ggml.add_bos_token", True)


def _mend_positions(model: Any, gguf: Path) -> None:
    """Scale rotary frequencies as Llama 3.1 does; UserError if that does not give the divisors of the GGUF file."""
    import torch
    from gguf import GGUFReader
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    (divisors,) = [tensor.data for tensor in GGUFReader(str(gguf)).tensors if tensor.name == _ROPE_FACTORS]
    before = model.model.rotary_emb.inv_freq
    scaling = {"rope_type": "llama3", "factor": float(divisors.max()), **_LLAMA3_ROPE}
    model.config.rope_parameters = {**model.config.rope_parameters, **scaling}
    after, _ = ROPE_INIT_FUNCTIONS["llama3"](model.config, "cpu")
    if not torch.allclose(before / after, torch.from_numpy(divisors.copy()), rtol=1e-4):
        raise _lossy(gguf, _SCALING)


def _set_end_tokens(model: Any, metadata: dict[str, Any]) -> None:
    """Let an answer end at each token that the GGUF file names as an end: of the text, of a turn, of a message."""
    named = [metadata.get(f"tokenizer.ggml.{name}_token_id") for name in _END_TOKENS]
    ends = list(dict.fromkeys(token for token in named if token is not None))
    if len(ends) > 1:
        model.generation_config.eos_token_id = ends


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
