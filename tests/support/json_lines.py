"""Cases of a test in a data file: an object a line."""

import json
from pathlib import Path
from typing import Any


def json_lines(file: Path) -> list[dict[str, Any]]:
    """Return the objects of a file; a case may hold any line break that JSON escapes."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line.strip()]


def cases(test_file: str, test: str) -> list[Any]:
    """Return the cases of a test for parametrize from the data file beside the tests, which has the tests' name.

    A case is an object a line: the name of its test and the values of the test's parameters in their order.
    """
    table = [case for case in json_lines(Path(test_file).with_suffix(".jsonl")) if case.pop("test") == test]
    if not table:
        raise ValueError(f"{test_file} has no cases of {test} in its data file.")
    values = [tuple(case.values()) for case in table]
    return [value[0] if len(value) == 1 else value for value in values]
