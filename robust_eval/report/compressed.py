"""Compressed data for the script of a page."""

import base64
import gzip
import json
from typing import Any


def packed(data: Any) -> str:
    """Return data as compressed JSON."""
    return compressed(json.dumps(data, ensure_ascii=False, separators=(",", ":")))


def compressed(text: str) -> str:
    """Return a text as gzip in base64, which cannot end the HTML element around it."""
    return base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), 6, mtime=0)).decode("ascii")
