"""Models of sentences: texts as vectors, near to one another where they mean the same, and answers beside questions."""

import logging
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robust_eval.error import OutageError, UserError, first_line
from robust_eval.model.local.embedded import package_folder
from robust_eval.model.local.fingerprint import no_model
from robust_eval.runtime.parallel import run_parts

log = logging.getLogger(__name__)

EMBEDDED = "embedded:"
"""Prefix of a path inside a package of the package index: embedded:PACKAGE/FOLDER."""
TOGETHER = 256
"""Texts that are embedded, and pairs that are ranked, at once."""
Vectors = NDArray[np.float32]


class Sentences:
    """Unit vectors of texts; each distinct text is embedded once. The model is loaded when the first is asked for.

    ``path`` is a folder, a hub id, or ``embedded:PACKAGE/FOLDER`` of the package index.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._known: dict[str, Vectors] = {}

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return (texts, dimensions) vectors of length 1; UserError where the model cannot be loaded."""
        return np.stack(self.each(texts))

    def each(self, texts: Sequence[str]) -> list[Vectors]:
        """Return the vectors of :meth:`embed` one by one, which takes no memory."""
        self.learn(texts)
        return [self._known[text] for text in texts]

    def learn(self, texts: Iterable[str]) -> None:
        """Embed those of the texts that are new, all at once: that is faster than one question's at a time."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        new.sort(key=len, reverse=True)  # those of about the same length together: a batch is as long as its longest
        parts = [new[start : start + TOGETHER] for start in range(0, len(new), TOGETHER)]
        for part, vectors in zip(parts, run_parts("embedding", encoded, self._path, parts), strict=True):
            self._known |= dict(zip(part, vectors, strict=True))


def encoded(path: str, texts: Sequence[str]) -> Vectors:
    """Return (texts, dimensions) vectors of length 1, computed in this process by the model at ``path``."""
    model = sentence_transformer(path)
    vectors: Vectors = model.encode(list(texts), normalize_embeddings=True, batch_size=TOGETHER)
    return vectors


@lru_cache(maxsize=2)
def sentence_transformer(path: str) -> Any:
    """Return the model itself, loaded once for all that use it; UserError where it cannot be."""
    from safetensors import SafetensorError
    from sentence_transformers import SentenceTransformer

    where = located("sentence model", path)
    try:
        model = SentenceTransformer(where, device="cpu")
    except (OSError, ValueError, SafetensorError) as problem:
        raise OutageError(f"sentence model {path} cannot be loaded: {first_line(problem)}") from problem
    log.info("sentence model %s", path)
    return model


def fit_of_answers(path: str, pairs: Sequence[tuple[str, str]]) -> list[float]:
    """Return how well each answer fits its question, by the cross-encoder ``path``; the higher, the better.

    ``pairs`` are (question, answer). UserError where the model cannot be loaded.
    """
    parts = [pairs[start : start + TOGETHER] for start in range(0, len(pairs), TOGETHER)]
    return [score for scores in run_parts("ranking", _fit, path, parts) for score in scores]


def _fit(path: str, pairs: Sequence[tuple[str, str]]) -> list[float]:
    from torch.nn import Identity

    # what the model would put on top, mostly a sigmoid, keeps the order but makes large scores equal
    scores = cross_encoder(path).predict(list(pairs), activation_fn=Identity())
    return [float(score) for score in scores]


@lru_cache(maxsize=2)
def cross_encoder(path: str) -> Any:
    """Return a model that reads a question and an answer together, loaded once for all that use it; UserError where it
    cannot.

    ``path`` is what it is of :class:`Sentences`.
    """
    model = loaded_cross_encoder(path)
    if model.num_labels != 1:
        raise UserError(f"cross-encoder {path} cannot rank answers: it gives each {model.num_labels} scores, not one")
    log.info("cross-encoder %s", path)
    return model


def loaded_cross_encoder(path: str) -> Any:
    """Return a model that reads two texts together; UserError where it cannot be loaded."""
    from sentence_transformers import CrossEncoder

    where = located("cross-encoder", path)
    try:
        model = CrossEncoder(where, device="cpu")
        saved_as = model.model.config.architectures
    except Exception as problem:  # of files that are no model, or none of this kind, libraries raise what they like
        raise UserError(f"cross-encoder {path} cannot be loaded: {first_line(problem)}") from problem
    if type(model.model).__name__ not in (saved_as or ()):  # the layer that scores would be drawn at random
        raise UserError(f"cross-encoder {path} cannot be loaded: it is a model of another kind")
    return model


def located(kind: str, path: str) -> str:
    """Return the folder, or the hub id, of a model; UserError, which calls it a ``kind``, for a folder that is not
    there.

    ``path`` is what it is of :class:`Sentences`.
    """
    if path.startswith(EMBEDDED):
        package, _, inside = path.removeprefix(EMBEDDED).partition("/")
        return str(package_folder(package) / inside)
    if Path(path).suffix == "" and not Path(path).exists() and "/" not in path:
        raise OutageError(f"{kind} {path}: there is no such folder")
    if reason := no_model(path):
        raise OutageError(f"{kind} {path} cannot be loaded: {reason}")
    return path
