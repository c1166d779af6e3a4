"""JSON that somebody else wrote."""

import json
from typing import Any

PARSED = 96 * 2**20
"""Bytes that the values of any JSON text may take."""
PARSED_EACH = 12
"""Bytes that each byte of it may take beyond these; those of tables of questions and of log-probabilities take less."""
_COSTS = {"[": 64, "{": 184, ",": 58, ":": 50}
"""Bytes that a list, a mapping, an entry and its name take, without their texts."""


def parsed_json(text: str | bytes, **settings: Any) -> Any:
    """Parse JSON with these settings of ``json.loads``; ValueError where it is not JSON, is nested too deeply, or holds
    so many values that it takes far more memory than a text of its size does.
    """
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text), "surrogatepass")
    values = sum(text.count(sign) * cost for sign, cost in _COSTS.items()) if len(text) > 2**20 else 0
    if values > PARSED + PARSED_EACH * len(text):
        raise json.JSONDecodeError("more values than a text of its size has", "", 0)
    try:
        return json.loads(text, **settings)
    except RecursionError:
        raise json.JSONDecodeError("nested too deep", "", 0) from None
