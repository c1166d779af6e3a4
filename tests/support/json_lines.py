"""Cases of a test in a data file: an object a line."""

import json
from pathlib import Path
from typing import Any


def json_lines(file: Path) -> list[dict[str, Any]]:
    """Return the objects of a file; a case may hold any line break that JSON escapes."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line.strip()]
