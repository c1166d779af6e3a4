"""Classifier of question types, a text encoder with a classification head, and its training on TREC."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from robust_eval.error import UserError, first_line
from robust_eval.model.local.model_files import folder_hash
from robust_eval.model.local.sentences import resolve_model_path
from robust_eval.model.local.settings import has_cuda
from robust_eval.question import QUESTION_TYPES, Question
from robust_eval.runtime.console import Console, progress
from robust_eval.runtime.files import text_lines

log = logging.getLogger(__name__)

MAX_TOKENS = 128
"""Maximum tokens of a question; the longest question of TREC has 41."""
_BATCH = 64
SORTED_TOGETHER = 8
"""Number of batches whose questions are sorted by length together, which saves padding."""
_WANTED = "a coarse class, a colon, a fine class, a space and a question, as in DESC:manner How did serfdom develop ?"


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

    ``encoder`` is a folder, a hub id, or ``embedded:PACKAGE/FOLDER`` from the package index. UserError if it cannot be
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


def read_trec(file: Path) -> tuple[list[str], list[str]]:
    """Return the training questions in a ``.label`` file of TREC (Latin-1), a question a line, and their coarse types.

    Raises UserError where the file cannot be read, has no questions, or has a line of another form.
    """
    texts, types = [], []
    for number, line in text_lines(file, "latin-1"):
        if not line.strip():
            continue
        label, _, question = line.rstrip("\r\n").partition(" ")
        coarse, colon, fine = label.partition(":")
        if not (colon and fine and question.strip()):
            raise UserError(f"{file}, line {number}: a line must be {_WANTED}, not {line[:60]!r}")
        if coarse not in QUESTION_TYPES:
            raise UserError(f"{file}, line {number}: {coarse!r} must be one of the classes {', '.join(QUESTION_TYPES)}")
        texts.append(question.strip())
        types.append(coarse)
    if not texts:
        raise UserError(f"{file} has no questions; each line must be {_WANTED}")
    return texts, types


def fine_tune(
    classifier: TypeClassifier,
    texts: list[str],
    types: list[str],
    learning_rate: float,
    batch_size: int,
    epochs: int,
    seed: int,
) -> None:
    """Train the classifier of question types with AdamW, a learning rate that falls linearly to 0, and gradients
    clipped at norm 1.
    """
    import torch

    model, names = classifier.model, list(QUESTION_TYPES)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [each for each in parameters if each.ndim > 1], "weight_decay": 0.01},
        {"params": [each for each in parameters if each.ndim <= 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=learning_rate, fused=True)
    steps = epochs * -(-len(texts) // batch_size)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    lengths, generator = np.array([len(text) for text in texts]), np.random.default_rng(seed)
    model.train()
    for epoch in range(1, epochs + 1):
        total = 0.0
        for batch in batches(lengths, batch_size, generator):
            targets = torch.tensor([names.index(types[place]) for place in batch], device=model.device)
            logits = model(**classifier.inputs([texts[place] for place in batch])).logits
            loss = torch.nn.functional.cross_entropy(logits, targets)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            schedule.step()
            total += loss.item() * len(batch)
        Console().print(f"epoch {epoch} of {epochs}: mean loss {total / len(texts):.4f}")


def batches(lengths: np.ndarray, size: int, generator: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield batches for the training of a classifier: the places of all questions once, in random batches of questions
    of similar length.
    """
    order = generator.permutation(len(lengths))
    stretch = size * SORTED_TOGETHER
    pieces = [order[start : start + stretch] for start in range(0, len(order), stretch)]
    order = np.concatenate([piece[np.argsort(lengths[piece], kind="stable")] for piece in pieces])
    made = [order[start : start + size] for start in range(0, len(order), size)]
    for place in generator.permutation(len(made)):
        yield made[place]
