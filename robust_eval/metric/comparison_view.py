"""How a comparison shows a figure, as its metric declares it: how it is drawn, and what its table has beside it."""

import re
from dataclasses import dataclass, fields
from typing import Any

LONGEST = 120
"""Characters of a text of a declaration: it stands along the axis of a drawing and at the head of a column."""
LINE, STEPS, DATASETS = "line", "steps", "datasets"
KINDS = (LINE, STEPS, DATASETS)
"""How figures are drawn beside those of other runs: as a line through their points; as a survival curve, in steps that
begin at 1; as a point for each data set. Lines and steps go along the temperature or, of a figure with a number in its
name, along that number.
"""


@dataclass(frozen=True)
class ComparisonView:
    """How a figure is shown beside those of other runs: drawn and, with a number in its name, in a table by data set.

    >>> ComparisonView(vertical="share of right answers").kind
    'line'
    """

    kind: str = LINE
    """One of :data:`KINDS`."""
    caption: str = ""
    """What stands above the drawing, before the data set; without it the label and what lies across."""
    vertical: str = ""
    """What stands along the vertical axis; without it the label with the unit."""
    number: str = ""
    """What the number in its name is; without it the letters before it ("mine.k{}": k)."""
    file: str = ""
    """What the files of the drawing are called; without it by its own name."""
    table: str = ""
    """What stands above the table, before "by data set"; without it its heading."""
    heading: str = ""
    """What stands at the head of its columns, before the data set; without it the label."""
    companion: str = ""
    """The name of the figure that the table has beside it, to be read together with it."""
    note: str = ""
    """What follows the table: a sentence or two."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, not {self.kind}")
        if not re.fullmatch(r"[a-z0-9_]*", self.file):
            raise ValueError(f"file must consist of small letters, digits and _, not {self.file}")
        refuse_long(self)


def refuse_long(declaration: Any) -> None:
    """ValueError where a text of a declaration has several lines, or more characters than it may have."""
    for each in fields(declaration):
        text, most = getattr(declaration, each.name), LONGEST if each.name != "note" else 2 * LONGEST
        if isinstance(text, str) and (len(text) > most or len(text.splitlines()) > 1):
            raise ValueError(f"{each.name} must be one line of at most {most} characters")
