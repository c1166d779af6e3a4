"""The tokenizer of a model, found without loading the model: what reads answers may want the texts of their tokens."""

from pathlib import Path

from robust_eval.model.local.embedded import converted_folder

TOKENIZER = "tokenizer.json"


def tokenizer_file(path: str, revision: str | None, sha256: str | None) -> Path | None:
    """Return the tokenizer's file of a model that was loaded on this machine before, by the settings of ``model``.

    None where it is not there, or the tokenizer has another format.
    """
    if path.startswith("embedded:"):
        file = converted_folder(Path(path).stem, str(sha256)) / TOKENIZER
    elif Path(path).is_dir():
        file = Path(path, TOKENIZER)
    else:
        from huggingface_hub import try_to_load_from_cache

        cached = try_to_load_from_cache(path, TOKENIZER, revision=revision)
        file = Path(cached) if isinstance(cached, str) else Path()
    return file if file.is_file() else None
