"""Sentences that people read, in a golden file for each surface: a case a line, with what was said of it."""

import json
import os
from pathlib import Path
from typing import Any

from json_lines import json_lines


class Golden:
    """Cases of a golden file. ``RENEW_GOLDEN=1`` before the command of the tests writes what is said now."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.cases = json_lines(file)

    def check(self, case: dict[str, Any], **said: Any) -> None:
        """Compare what was said with the file, or write it there."""
        if "RENEW_GOLDEN" not in os.environ:
            assert said == {name: case[name] for name in said}
        elif case | said != case:
            case |= said
            lines = (json.dumps(each, ensure_ascii=False) + "\n" for each in self.cases)
            self.file.write_text("".join(lines), encoding="utf-8")
