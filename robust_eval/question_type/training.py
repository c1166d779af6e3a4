"""Fine-tuning of a text encoder on questions whose types are known."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robust_eval.question import QUESTION_TYPES, Question
from robust_eval.question_type.classifier import TypeClassifier, from_encoder
from robust_eval.runtime.progress import progress

log = logging.getLogger(__name__)

_ALIKE = 8
"""Batches whose questions are sorted by length together, so that little is padded."""


@dataclass(frozen=True)
class Settings:
    """How an encoder is trained; the learning rate falls linearly to 0."""

    learning_rate: float
    batch_size: int
    epochs: int
    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        if not 0 < self.learning_rate < 1:
            raise ValueError(f"the learning rate must lie between 0 and 1, not {self.learning_rate}")
        if self.batch_size < 1:
            raise ValueError(f"the batch size must be at least 1, not {self.batch_size}")
        if self.epochs < 1:
            raise ValueError(f"the epochs must be at least 1, not {self.epochs}")


def fine_tune(
    encoder: str, questions: Sequence[Question], settings: Settings, seed: int
) -> tuple[TypeClassifier, list[float]]:
    """Train ``encoder`` to tell the types of questions; also the mean cross-entropy (nats) of each epoch.

    AdamW, gradients clipped at norm 1, no decay of biases and normalisations: what the transformers library's Trainer
    does where nothing else is said, as for the paper. The same seed gives the same classifier on the same machine.
    UserError where the encoder cannot be loaded (:func:`~robust_eval.question_type.classifier.from_encoder`).
    """
    import torch

    with torch.random.fork_rng():  # of the new layer and of dropout; nobody else's numbers change
        torch.manual_seed(seed)
        classifier = from_encoder(encoder)
        return classifier, _trained(classifier, questions, settings, seed)


def _trained(classifier: TypeClassifier, questions: Sequence[Question], settings: Settings, seed: int) -> list[float]:
    import torch

    model = classifier.model
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [each for each in parameters if each.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": [each for each in parameters if each.ndim <= 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=settings.learning_rate, fused=True)
    steps = settings.epochs * -(-len(questions) // settings.batch_size)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    names = list(QUESTION_TYPES)
    lengths = np.array([len(question.text) for question in questions])
    generator = np.random.default_rng(seed)
    losses = []
    model.train()
    with progress("training", steps, "batches") as advance:
        for epoch in range(1, settings.epochs + 1):
            total = 0.0
            for places in batches(lengths, settings.batch_size, generator):
                batch = [questions[place] for place in places]
                types = torch.tensor([names.index(question.type) for question in batch], device=model.device)
                logits = model(**classifier.inputs([question.text for question in batch])).logits
                loss = torch.nn.functional.cross_entropy(logits, types)
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                torch.nn.utils.clip_grad_norm_(parameters, 1.0)
                optimizer.step()
                schedule.step()
                total += loss.item() * len(batch)
                advance(1, f"epoch {epoch} of {settings.epochs}, loss {loss.item():.3f}")
            losses.append(total / len(questions))
            log.info("epoch %d of %d: mean loss %.4f", epoch, settings.epochs, losses[-1])
    return losses


def batches(lengths: NDArray[np.int_], batch_size: int, generator: np.random.Generator) -> Iterator[NDArray[np.int_]]:
    """Yield the places of all questions once, in batches at random, of questions that are about as long
    as one another.
    """
    order = generator.permutation(len(lengths))
    stretch = batch_size * _ALIKE
    pieces = [order[start : start + stretch] for start in range(0, len(order), stretch)]
    order = np.concatenate([piece[np.argsort(lengths[piece], kind="stable")] for piece in pieces])
    made = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    for place in generator.permutation(len(made)):
        yield made[place]
