"""Structured replies, which a server restricts to the signs of choices, such as letters.

A grammar makes the sign the whole reply. A server without grammars writes it into a JSON object.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from robust_eval.error import OutageError
from robust_eval.model.served.transport.service import ServiceResponse, UnansweredError
from robust_eval.reader.reasoning import without_reasoning

GRAMMAR, SCHEMA, UNSUPPORTED = "grammar", "schema", "unsupported"
"""Means of restriction, in order of preference, and their lack."""
SCHEMA_TOKENS = 24
"""Maximum number of tokens of the JSON object around a sign."""
_UNUSUAL = ("Q", "X")
"""Signs that no free reply to a probe's question consists of."""


def restriction(means: str, signs: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a request that restrict the reply to one of the signs.

    The fields of a grammar are those of llama.cpp, vLLM and SGLang, each of which ignores the others'.
    """
    if means == GRAMMAR:
        regex = f" ?({'|'.join(signs)})"
        grammar = f'root ::= " "? ({" | ".join(map(json.dumps, signs))})'
        return {"grammar": grammar, "structured_outputs": {"regex": regex}, "regex": regex}
    properties = {"answer": {"type": "string", "enum": list(signs)}}
    schema = {"type": "object", "properties": properties, "required": ["answer"], "additionalProperties": False}
    return {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "choice", "strict": True, "schema": schema},
        }
    }


def restricted_sign(reply: str, signs: Sequence[str]) -> str | None:
    """Return the sign that a structured reply consists of; None if it is none of them, or cut off.

    >>> restricted_sign(" B", ["A", "B"]), restricted_sign('{"answer": "A"}', ["A", "B"]), restricted_sign("Bear", "AB")
    ('B', 'A', None)
    """
    answer = (without_reasoning(reply) or "").strip()
    if answer.startswith("{"):
        try:
            answer = json.loads(answer)["answer"]
        except (ValueError, KeyError, RecursionError):
            return None
    return answer if answer in signs else None


async def find_restriction(ask: Callable[[Mapping[str, Any]], Awaitable[ServiceResponse]], server: str) -> str:
    """Return the means by which a server restricts replies, probed with two unusual letters; raises OutageError."""
    for means in (GRAMMAR, SCHEMA):
        try:
            response = await ask(restriction(means, _UNUSUAL))
        except UnansweredError as problem:
            if problem.kind not in ("wrong", "filtered"):
                raise OutageError(f"{server} failed while structured replies were probed: {problem}") from None
            continue
        if all(restricted_sign(choice.text, _UNUSUAL) for choice in response.choices):
            return means
    return UNSUPPORTED
