"""Compressed data for the script of a page."""

import base64
import gzip
import json
from typing import Any


def packed(data: Any) -> str:
    """Data as JSON, compressed."""
    return compressed(json.dumps(data, ensure_ascii=False, separators=(",", ":")))


def compressed(text: str) -> str:
    """Return a text for a page's script to read: gzip in base64, in which nothing can end the element that holds it."""
    return base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), 6, mtime=0)).decode("ascii")
