"""JSON of others."""

import json
from typing import Any


def parsed_json(text: str | bytes, **settings: Any) -> Any:
    """What a text of JSON says, read with these settings of ``json.loads``; ValueError where it is none, or is nested
    deeper than anything is that means something.
    """
    try:
        return json.loads(text, **settings)
    except RecursionError:
        raise json.JSONDecodeError("nested too deep", text if isinstance(text, str) else "", 0) from None
