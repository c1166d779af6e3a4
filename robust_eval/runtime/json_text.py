"""JSON that somebody else wrote."""

import json
from typing import Any


def parsed_json(text: str | bytes, **settings: Any) -> Any:
    """Parse JSON with these settings of ``json.loads``; ValueError where it is not JSON, or is nested too deeply."""
    try:
        return json.loads(text, **settings)
    except RecursionError:
        raise json.JSONDecodeError("nested too deep", text if isinstance(text, str) else "", 0) from None
