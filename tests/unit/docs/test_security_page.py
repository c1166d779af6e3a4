"""docs/development/security.md: each of its statements is proved by the test that stands here."""

import re
from pathlib import Path

from json_lines import json_lines

from robust_eval.config.groups import PROJECT

PAGE = (PROJECT / "docs" / "development" / "security.md").read_text(encoding="utf-8")
PROOFS = json_lines(Path(__file__).with_suffix(".jsonl"))
"""How each statement of the page begins, and the test of it."""


def test_every_statement_of_the_page_has_a_test_that_is_there():
    statements = [" ".join(found.split()) for found in re.findall(r"^- (.+?)$(?=\n(?:-|\n))", PAGE, re.S | re.M)]
    assert len(statements) == PAGE.count("\n- ") == len(PROOFS)
    for statement, case in zip(statements, PROOFS, strict=True):
        assert statement.startswith(case["statement"])
        file, name = case["proof"].split("::")
        assert f"\ndef {name}(" in (PROJECT / "tests" / file).read_text(encoding="utf-8"), case
