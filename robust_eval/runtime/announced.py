"""Classes that a package or a script of one's own announces as options: ``@robust_eval.metric("always_right")``."""

import sys
from collections.abc import Callable
from dataclasses import is_dataclass
from types import ModuleType
from typing import TypeVar

from robust_eval.error import UserError

Part = TypeVar("Part", bound=type)

NEEDED = {
    "model": ("name", "identity", "load"),
    "dataset": ("name", "load"),
    "sampler": ("requests", "candidates", "select"),
    "grader": ("grade",),
    "metric": ("axis", "needs_clusters", "top_logprobs", "check", "score"),
}
"""The groups in which a class can be announced, and what it needs there at least."""
ANNOUNCED: dict[str, dict[str, type]] = {group: {} for group in NEEDED}
"""Each group with the classes announced in it, by the name of their option."""


def announce(group: str, name: str, part: Part) -> Part:
    """Make a class known as the option ``GROUP=NAME``, and return it; its fields are the settings of the option.

    The same class may be announced again, as it is where a cell of a notebook is run again. Raises UserError where it
    is no dataclass, lacks what a class of its group needs, or where its name is no word or is another class's.
    """
    option = f"{group}={name}"
    if not name.isidentifier():
        raise UserError(f"{option}: the name of an option is one word of letters, digits and _")
    if not isinstance(part, type) or not is_dataclass(part):
        raise UserError(f"{option}: {_called(part)} must be a dataclass, whose fields are its settings")
    if missing := [needed for needed in NEEDED[group] if not hasattr(part, needed) and needed not in _fields(part)]:
        raise UserError(f"{option}: {_called(part)} has no {missing[0]}, which a {group} needs")
    known = ANNOUNCED[group].setdefault(name, part)
    if _called(known) != _called(part):
        raise UserError(f"{option} is {_called(known)} already, and cannot be {_called(part)} as well")
    ANNOUNCED[group][name] = part
    return part


class Announcing(ModuleType):
    """A package that is called as well: ``@robust_eval.metric("always_right")`` announces a metric."""

    def __call__(self, name: str) -> Callable[[Part], Part]:
        group = self.__name__.rpartition(".")[2]
        return lambda part: announce(group, name, part)


def announces(package: str) -> None:
    """Let a package of this name be called as the decorator that announces classes of its group.

    The names that read best in ``robust_eval`` are those of packages, and Python sets them when it imports these.
    """
    sys.modules[package].__class__ = Announcing


def _called(part: object) -> str:
    return f"{part.__module__}.{part.__qualname__}" if isinstance(part, type) else repr(part)


def _fields(part: type) -> set[str]:
    return set(getattr(part, "__dataclass_fields__", {}))
