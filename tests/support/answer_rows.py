"""Rows of answer tables, of which a test names what it is about."""

from typing import Any


def answer_row(question_id: str, **columns: Any) -> dict[str, Any]:
    """Return a row of a reply to a question as it stands, at t = 1, with other values in some columns."""
    same = {"rewrite": 0, "temperature": 1.0, "trial": 0, "text": "", "outcome": "ok", "weight": 1.0}
    return {"question_id": question_id} | same | columns
