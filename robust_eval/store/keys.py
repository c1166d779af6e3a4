"""The names under which answers, accuracy curves and descriptions of models are stored."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from robust_eval.model.base import FURTHER_DRAWS, Choices, Item, Matcher, Request


def answers_keys(identity: Mapping[str, Any], requests: Sequence[Request]) -> dict[Item, bytes]:
    """Return the key of the answers to each of several requests."""
    return {request.item: answers_key(identity, request) for request in requests}


def answers_key(identity: Mapping[str, Any], request: Request) -> bytes:
    """Return the key of the answers to a request: all that determines them but temperatures and trials.

    Every trial has random numbers of its own, so answers to more trials can be added under one key. What counts as
    right is part of the key only where answers end when they are right, or are enumerated.
    """
    enumeration, served = request.enumeration, "server" in identity
    judge = judge_of(request) if enumeration is not None or not request.whole else None
    return _digest(
        {
            "model": identity,
            "prompt": asdict(request.prompt),
            "question_id": request.question_id,
            "rewrite": request.rewrite,
            "seed": request.seed,
            "max_new_tokens": request.max_new_tokens,
            "top_logprobs": request.top_logprobs,
            "judge": judge and judge.identity,
            "first_line": request.first_line,
            "thought": request.thought and asdict(request.thought),
            "enumeration": enumeration and [enumeration.nodes, enumeration.temperatures, request.temperatures],
            **({"precision": enumeration.precision} if enumeration and enumeration.precision else {}),
            **({"draws": [enumeration.draws, FURTHER_DRAWS]} if enumeration and served else {}),
        }
    )


def curve_key(answers: bytes) -> bytes:
    """Return the key of the accuracy curve of enumerated answers that have the key ``answers``."""
    return _digest({"curve": answers.hex()})


def description_key(identity: Mapping[str, Any]) -> bytes:
    """Return the key of the description of a model."""
    return _digest({"description": identity})


def judge_of(request: Request) -> Choices | Matcher | None:
    """Return what tells right from wrong answers to this request."""
    return (request.enumeration and request.enumeration.choices) or request.matcher


def _digest(asked: Mapping[str, Any]) -> bytes:
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).digest()
