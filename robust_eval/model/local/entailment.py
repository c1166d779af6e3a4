"""Whether one text says what another says, by a cross-encoder that was trained on natural language inference."""

import logging
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from robust_eval.error import UserError
from robust_eval.model.local.sentences import TOGETHER, loaded_cross_encoder
from robust_eval.runtime.parallel import run_parts

log = logging.getLogger(__name__)

ENTAILMENT = "entailment"
"""What a model of inference calls its label for a premise from which the hypothesis follows."""


class Inference(NamedTuple):
    """The model, and the number of its label for entailment."""

    model: Any
    label: int


def entailed(path: str, pairs: Sequence[tuple[str, str]]) -> list[bool]:
    """Tell of each (premise, hypothesis) whether the model finds entailment more likely than each of its other labels.

    ``path`` is a folder, a hub id, or embedded:PACKAGE/FOLDER of the package index. UserError where the model cannot be
    loaded, or knows no entailment.
    """
    parts = [pairs[start : start + TOGETHER] for start in range(0, len(pairs), TOGETHER)]
    return [found for part in run_parts("entailment", _entailed, path, parts) for found in part]


def _entailed(path: str, pairs: Sequence[tuple[str, str]]) -> list[bool]:
    from torch.nn import Identity

    found = inference_model(path)
    scores = found.model.predict(list(pairs), activation_fn=Identity())
    return [bool(number == found.label) for number in scores.argmax(axis=1)]


@lru_cache(maxsize=1)
def inference_model(path: str) -> Inference:
    """Return the model, loaded once; UserError where it cannot be, or none of its labels is entailment."""
    model = loaded_cross_encoder(path)
    labels = {int(number): str(name) for number, name in (model.model.config.id2label or {}).items()}
    found = [number for number, name in labels.items() if name.lower() == ENTAILMENT]
    if len(found) != 1 or len(labels) < 2:
        raise UserError(
            f"cross-encoder {path} cannot tell entailment: its labels are {', '.join(labels.values()) or 'none'}, and "
            f"one must be {ENTAILMENT} (id2label of its config.json)"
        )
    log.info("model of entailment %s", path)
    return Inference(model, found[0])
