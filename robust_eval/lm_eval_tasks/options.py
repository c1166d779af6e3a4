"""What a task of lm-eval asks, as its metadata say it under ``robust_eval``."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from robust_eval.error import UserError
from robust_eval.prompt.templates import FEW_SHOT

GRID = (0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0)
"""The paper's temperatures; of models that take none above 1, name those that they take."""


@dataclass(frozen=True)
class Options:
    """The options of both tasks, so that one object serves the group; UserError for a value that is none."""

    dataset: str = "facts"
    """One of ours by its name, or the path of a file."""
    trials: int | None = None
    """Replies at each temperature; None: as many as the method has."""
    temperatures: tuple[float, ...] = field(default=GRID)
    """The grid of breaking temperatures, all above 0."""
    temperature: float = 1.0
    """At which certainty is measured."""
    threshold: float = 0.5
    """The accuracy below which a fact breaks."""
    prompts: str = FEW_SHOT
    """Templates of the prompts."""
    seeds: bool = False
    """Whether each trial has a seed of its own."""

    def __post_init__(self) -> None:
        for name, kind in (("dataset", str), ("prompts", str), ("seeds", bool)):
            if not isinstance(getattr(self, name), kind):
                raise _refused(name, "a text" if kind is str else "true or false", getattr(self, name))
        if self.trials is not None and (type(self.trials) is not int or self.trials < 1):
            raise _refused("trials", "a whole number of 1 or more", self.trials)
        given = self.temperatures
        if not isinstance(given, tuple | list) or not all(map(_above_zero, given)) or len({*given}) < 2:
            raise _refused("temperatures", "two or more numbers, all above 0", given)
        object.__setattr__(self, "temperatures", tuple(sorted({float(t) for t in given})))
        if not _above_zero(self.temperature):
            raise _refused("temperature", "a number above 0", self.temperature)
        if not _above_zero(self.threshold) or self.threshold > 1:
            raise _refused("threshold", "above 0 and at most 1", self.threshold)

    @classmethod
    def of(cls, given: Any, **others: Any) -> "Options":
        """Return the options that a mapping and ``others`` name; UserError for a name that is none."""
        names = [each.name for each in fields(cls)]
        whole: dict[Any, Any] = {**given, **others} if isinstance(given, Mapping) else {given: None}
        for name in whole:
            if name not in names:
                raise UserError(f"the options of robust_eval's tasks are {', '.join(names)}, and not {name!r:.40}")
        return cls(**whole)


def _above_zero(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _refused(name: str, wanted: str, value: Any) -> UserError:
    return UserError(f"{name} must be {wanted}, not {value!r:.60}")
