"""Answers that stand for all that begin alike and have one verdict, with what those weigh at every temperature."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np

from robust_eval.model.base import Floats

Token = TypeVar("Token")
NEGLIGIBLE = 1e-4
"""The weight below which answers do not get a row of their own."""


@dataclass(frozen=True)
class AnswerMass:
    """Answers that are right, or wrong, together; ``weight`` (T,) is the probability of all of them."""

    right: bool
    weight: Floats


@dataclass(frozen=True)
class EnumeratedAnswers(AnswerMass, Generic[Token]):
    """All answers that begin alike and are right (or wrong) after one token more.

    ``tokens`` are those of the likeliest, which stands for all of them, ``logprobs`` (tokens, T) their
    log-probabilities.
    """

    tokens: tuple[Token, ...]
    finish_reason: str
    logprobs: Floats


Mass = TypeVar("Mass", bound=AnswerMass)


def normalize_to_accuracy(answers: Sequence[Mass], accuracy: Floats) -> list[Mass]:
    """Return the answers with weights that add up to ``accuracy`` (T,) where they are right, and to the rest elsewhere.

    What is negligible at some temperature counts there with the most probable answer that is right, or wrong, as it is.
    """
    found = []
    for is_right, goal in ((True, accuracy), (False, 1 - accuracy)):
        side = [answer for answer in answers if answer.right == is_right]
        if not side:
            continue
        weights = np.stack([answer.weight for answer in side])
        total = weights.sum(axis=0)
        weights = np.divide(weights * goal, total, out=np.zeros_like(weights), where=total > 0)
        negligible = np.where(weights < NEGLIGIBLE, weights, 0.0)
        negligible[weights.argmax(axis=0), np.arange(len(goal))] = 0
        weights = weights - negligible
        weights[weights.argmax(axis=0), np.arange(len(goal))] += negligible.sum(axis=0)
        found += [replace(answer, weight=weight) for answer, weight in zip(side, weights, strict=True)]
    return found
