"""Classifier of question types: a text encoder with a classification head."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from robust_eval.error import UserError, first_line
from robust_eval.model.local.model_files import folder_hash
from robust_eval.model.local.sentences import resolve_model_path
from robust_eval.model.local.settings import has_cuda
from robust_eval.question import QUESTION_TYPES, Question
from robust_eval.runtime.console import progress

log = logging.getLogger(__name__)

MAX_TOKENS = 128
"""Maximum tokens of a question; the longest question of TREC has 41."""
_BATCH = 64


@dataclass(frozen=True)
class TypeClassifier:
    """Classifier of question types: a model with an output for each of :data:`~robust_eval.question.QUESTION_TYPES`,
    and its tokenizer.
    """

    model: Any
    tokenizer: Any

    def inputs(self, texts: Sequence[str]) -> Any:
        """Return the tokens of these texts, on the model's device."""
        max_length = min(MAX_TOKENS, self.tokenizer.model_max_length)
        tokens = self.tokenizer(list(texts), padding=True, truncation=True, max_length=max_length, return_tensors="pt")
        return tokens.to(self.model.device)

    def predict(self, texts: Sequence[str]) -> list[str]:
        """Return the type of each question."""
        import torch

        names = list(QUESTION_TYPES)
        types = [""] * len(texts)
        by_length = sorted(range(len(texts)), key=lambda index: len(texts[index]))  # for little padding
        self.model.eval()
        with progress("question types", len(texts), "questions") as advance, torch.inference_mode():
            for start in range(0, len(texts), _BATCH):
                batch = by_length[start : start + _BATCH]
                logits = self.model(**self.inputs([texts[index] for index in batch])).logits
                for index, chosen in zip(batch, logits.argmax(-1).tolist(), strict=True):
                    types[index] = names[chosen]
                advance(len(batch), "")
        return types

    def save(self, folder: Path) -> None:
        """Write the classifier's model and tokenizer in the library's own format."""
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)


def from_encoder(encoder: str) -> TypeClassifier:
    """Return a classifier from a text encoder with a new, untrained layer, initialised at random by torch's global
    generator.

    ``encoder`` is a folder, a hub id, or ``embedded:PACKAGE/FOLDER`` of the package index. UserError if it cannot be
    loaded.
    """
    names = list(QUESTION_TYPES)
    labels = {"id2label": dict(enumerate(names)), "label2id": {name: index for index, name in enumerate(names)}}
    return _loaded("encoder", encoder, {"num_labels": len(names), **labels})


def read_classifier(folder: Path) -> TypeClassifier:
    """Return a saved classifier of question types; UserError if the folder holds none, or one of other classes."""
    classifier = _loaded("classifier of question types", str(folder), {})
    labels = [classifier.model.config.id2label[index] for index in range(classifier.model.config.num_labels)]
    if labels != list(QUESTION_TYPES):
        raise UserError(
            f"classifier of question types {folder} has the classes {', '.join(labels)}, not "
            f"{', '.join(QUESTION_TYPES)}: train one with robust-eval train-question-types"
        )
    return classifier


def _loaded(kind: str, path: str, settings: dict[str, Any]) -> TypeClassifier:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer
    from transformers.utils import logging as library_log

    location = resolve_model_path(kind, path)
    verbosity = library_log.get_verbosity()
    library_log.set_verbosity_error()  # a warning about the new layer is expected
    try:
        model = AutoModelForSequenceClassification.from_pretrained(location, **settings)
        tokenizer = AutoTokenizer.from_pretrained(location)
    except Exception as problem:  # libraries raise any exception for a file that is no model
        raise UserError(f"{kind} {path} cannot be loaded: {first_line(problem)}") from problem
    finally:
        library_log.set_verbosity(verbosity)
    if tokenizer.pad_token is None:
        raise UserError(f"{kind} {path} cannot read questions in batches: its tokenizer has no padding token")
    return TypeClassifier(model.to("cuda" if has_cuda() else "cpu"), tokenizer)


def with_types(questions: Sequence[Question], folder: str | None) -> tuple[list[Question], dict[str, Any]]:
    """Return the questions with missing types predicted by the classifier in ``folder``, and as metadata the number of
    predictions and a hash of the classifier; without a classifier the questions unchanged, and no metadata.
    """
    if folder is None:
        return list(questions), {}
    untyped = [question.text for question in questions if question.text and not question.type]
    predicted = iter(read_classifier(Path(folder)).predict(untyped))
    log.info("question types: %s predicted %d of %d", folder, len(untyped), len(questions))
    typed = [
        question if question.type or not question.text else replace(question, type=next(predicted))
        for question in questions
    ]
    return typed, {"question_types.predicted": len(untyped), "question_types.sha256": folder_hash(Path(folder))}
