"""Enumerated answers, each of which represents all with its prefix and verdict, with weights by temperature."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np

from robust_eval.model.base import Floats

Token = TypeVar("Token")
NEGLIGIBLE = 1e-4
"""Weight below which answers are merged into others."""


@dataclass(frozen=True)
class AnswerMass:
    """Answers with one verdict; ``weight`` (T,) is their total probability."""

    right: bool
    weight: Floats


@dataclass(frozen=True)
class EnumeratedAnswers(AnswerMass, Generic[Token]):
    """All answers with a common prefix that are right (or wrong) after one more token.

    ``tokens`` are those of the likeliest, which represents all of them, ``logprobs`` (tokens, T) their
    log-probabilities.
    """

    tokens: tuple[Token, ...]
    finish_reason: str
    logprobs: Floats


Mass = TypeVar("Mass", bound=AnswerMass)


def normalize_to_accuracy(answers: Sequence[Mass], accuracy: Floats) -> list[Mass]:
    """Return the answers with weights that add up to ``accuracy`` (T,) for right ones, and to the rest for wrong ones.

    A negligible weight at a temperature is added to the most probable answer with the same verdict.
    """
    normalized = []
    for is_right, target in ((True, accuracy), (False, 1 - accuracy)):
        side = [answer for answer in answers if answer.right == is_right]
        if not side:
            continue
        weights = np.stack([answer.weight for answer in side])
        total = weights.sum(axis=0)
        weights = np.divide(weights * target, total, out=np.zeros_like(weights), where=total > 0)
        negligible = np.where(weights < NEGLIGIBLE, weights, 0.0)
        negligible[weights.argmax(axis=0), np.arange(len(target))] = 0
        weights = weights - negligible
        weights[weights.argmax(axis=0), np.arange(len(target))] += negligible.sum(axis=0)
        normalized += [replace(answer, weight=weight) for answer, weight in zip(side, weights, strict=True)]
    return normalized
