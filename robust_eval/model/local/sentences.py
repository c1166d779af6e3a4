"""Sentence-embedding models: embeddings of texts, fit of answers to questions, and entailment between texts."""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robust_eval.error import OutageError, UserError, first_line
from robust_eval.model.local.model_files import EMBEDDED, no_model, package_folder
from robust_eval.runtime.parallel import run_parts

log = logging.getLogger(__name__)

BATCH_SIZE = 256
"""Number of texts, or of pairs, in a batch."""
ENTAILMENT = "entailment"
"""Label of an inference model for a premise from which the hypothesis follows."""
Vectors = NDArray[np.float32]


class Sentences:
    """Sentence embeddings: unit vectors of texts, each distinct one embedded once; the model is loaded with the first.

    ``path`` is a folder, a hub id, or ``embedded:PACKAGE/FOLDER`` from the package index.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._vectors: dict[str, Vectors] = {}

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return sentence embeddings (texts, dimensions) of length 1; UserError if the model cannot be loaded."""
        return np.stack(self.each(texts))

    def each(self, texts: Sequence[str]) -> list[Vectors]:
        """Return the sentence embeddings of :meth:`embed` as a list, without a copy."""
        self.precompute(texts)
        return [self._vectors[text] for text in texts]

    def precompute(self, texts: Iterable[str]) -> None:
        """Embed all new texts together, which is faster than question by question."""
        new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        new.sort(key=len, reverse=True)  # those of about the same length together: a batch is as long as its longest
        self._vectors |= dict(zip(new, _in_batches("embedding", encoded, self._path, new), strict=True))


def _in_batches(stage: str, work: Callable[[str, Any], Iterable[Any]], path: str, texts: Sequence[Any]) -> list[Any]:
    """Return the results of the model at ``path`` for each text, or pair of texts; ``work`` computes them."""
    batches = [texts[start : start + BATCH_SIZE] for start in range(0, len(texts), BATCH_SIZE)]
    return list(chain.from_iterable(run_parts(stage, work, path, batches)))


def encoded(path: str, texts: Sequence[str]) -> Vectors:
    """Return sentence embeddings (texts, dimensions) of length 1, computed in this process by the model at ``path``."""
    model = sentence_transformer(path)
    vectors: Vectors = model.encode(list(texts), normalize_embeddings=True, batch_size=BATCH_SIZE)
    return vectors


@lru_cache(maxsize=2)
def sentence_transformer(path: str) -> Any:
    """Load the sentence-embedding model, once for all uses; UserError if that fails."""
    from safetensors import SafetensorError
    from sentence_transformers import SentenceTransformer

    where = resolve_model_path("sentence-embedding model", path)
    try:
        model = SentenceTransformer(where, device="cpu")
    except (OSError, ValueError, SafetensorError) as problem:
        raise OutageError(f"sentence-embedding model {path} cannot be loaded: {first_line(problem)}") from problem
    log.info("sentence-embedding model %s", path)
    return model


def fit_of_answers(path: str, pairs: Sequence[tuple[str, str]]) -> list[float]:
    """Return the fit of each answer to its question, by the cross-encoder ``path``; higher is better.

    ``pairs`` are (question, answer). UserError if the model cannot be loaded.
    """
    return _in_batches("ranking", _fit, path, pairs)


def _fit(path: str, pairs: Sequence[tuple[str, str]]) -> list[float]:
    from torch.nn import Identity

    # the model's final activation, mostly a sigmoid, keeps the order but makes large scores equal
    scores = cross_encoder(path).predict(list(pairs), activation_fn=Identity())
    return [float(score) for score in scores]


@lru_cache(maxsize=2)
def cross_encoder(path: str) -> Any:
    """Load a cross-encoder of (question, answer) pairs, once for all uses; UserError if that fails.

    ``path`` is that of :class:`Sentences`.
    """
    model = loaded_cross_encoder(path)
    if model.num_labels != 1:
        raise UserError(f"cross-encoder {path} cannot rank answers: it returns {model.num_labels} scores, not one")
    log.info("cross-encoder %s", path)
    return model


def loaded_cross_encoder(path: str) -> Any:
    """Load a cross-encoder, a model of pairs of texts; UserError if that fails."""
    from sentence_transformers import CrossEncoder

    where = resolve_model_path("cross-encoder", path)
    try:
        model = CrossEncoder(where, device="cpu")
        saved_as = model.model.config.architectures
    except Exception as problem:  # libraries raise anything for files of no model, or of another kind of model
        raise UserError(f"cross-encoder {path} cannot be loaded: {first_line(problem)}") from problem
    if type(model.model).__name__ not in (saved_as or ()):  # the layer that scores would be drawn at random
        raise UserError(f"cross-encoder {path} cannot be loaded: it is a model of another kind")
    return model


def entailed(path: str, pairs: Sequence[tuple[str, str]]) -> list[bool]:
    """Return for each (premise, hypothesis) whether entailment is the model's likeliest label.

    ``path`` is a folder, a hub id, or embedded:PACKAGE/FOLDER from the package index. UserError if the model cannot be
    loaded, or has no label for entailment.
    """
    return _in_batches("entailment", _entailed, path, pairs)


def _entailed(path: str, pairs: Sequence[tuple[str, str]]) -> list[bool]:
    from torch.nn import Identity

    model, label = inference_model(path)
    scores = model.predict(list(pairs), activation_fn=Identity())
    return [bool(number == label) for number in scores.argmax(axis=1)]


@lru_cache(maxsize=1)
def inference_model(path: str) -> tuple[Any, int]:
    """Load the entailment model with the index of its label for entailment, once; UserError if that fails."""
    model = loaded_cross_encoder(path)
    labels = {int(number): str(name) for number, name in (model.model.config.id2label or {}).items()}
    entailment_labels = [number for number, name in labels.items() if name.lower() == ENTAILMENT]
    if len(entailment_labels) != 1 or len(labels) < 2:
        raise UserError(
            f"cross-encoder {path} cannot classify entailment: its labels are {', '.join(labels.values()) or 'none'}, "
            f"but one must be {ENTAILMENT} (id2label of its config.json)"
        )
    log.info("entailment model %s", path)
    return model, entailment_labels[0]


def resolve_model_path(kind: str, path: str) -> str:
    """Return the folder, or hub id, of a sentence-embedding model; UserError, with its ``kind``, for a missing folder.

    ``path`` is that of :class:`Sentences`.
    """
    if path.startswith(EMBEDDED):
        package, _, inside = path.removeprefix(EMBEDDED).partition("/")
        return str(package_folder(package) / inside)
    if Path(path).suffix == "" and not Path(path).exists() and "/" not in path:
        raise OutageError(f"{kind} {path}: there is no such folder")
    if reason := no_model(path):
        raise OutageError(f"{kind} {path} cannot be loaded: {reason}")
    return path
