"""How a score is shown to people, as its metric says it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Column:
    """A figure of every question, in the report's table of questions and among the axes of its scatter plot.

    ``numbers`` (n,) are NaN where undefined, and inf for a breaking temperature that was not found; ``levels`` are the
    values that they may have, if these are few.
    """

    name: str
    label: str
    about: str
    numbers: NDArray[np.float64]
    digits: int = 3
    levels: Sequence[float] = ()


@dataclass(frozen=True)
class PaperTable:
    """The score in the form of a paper's table; the terminal shows it below the figures."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass
class Presentation:
    """What is said of a score beside its figures.

    ``title`` is the heading of its table; ``sentence`` goes on after "12 of 20 questions were kept and asked again".
    Without ``columns`` every headline figure that is a mean over questions is one. ``axes`` are the columns of the
    scatter plot: horizontal, vertical, and colour. The first score of a run that has a sentence or axes gives them.
    """

    title: str = ""
    sentence: str = ""
    columns: Sequence[Column] | None = None
    axes: Sequence[str] = ()
    tables: Sequence[PaperTable] = field(default_factory=list)
