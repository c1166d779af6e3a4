"""Registry of components: ``@robust_eval.register("metric", "always_right")`` makes a class an option."""

import logging
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.metadata import entry_points
from inspect import isfunction, signature
from typing import TypeVar

from robust_eval.error import UserError, first_line
from robust_eval.runtime.text import enumerated

log = logging.getLogger(__name__)

Part = TypeVar("Part", bound=type)

REQUIRED = {
    "model": ("ModelConfig", ("name", "identity", "load")),
    "dataset": ("Selection", ("source", "read")),
    "sampler": ("Sampler", ("axis", "repetitions", "requests", "temperatures", "prompts", "max_new_tokens")),
    "grader": ("Grader", ("right",)),
    "metric": ("Metric", ("axis", "score")),
}
"""Groups of the registry, each with the base class of its options and the members that a subclass must define."""
COMBINABLE_GROUPS = ("sampler", "metric")
"""Groups of which a run takes several options at once, each under its own name."""
RESERVED = {"sampler": ("greedy",), "metric": ("greedy", "profile", "corrected", "unanswerable")}
"""Names in the results of every run, which no option of these groups may have."""
REGISTRY: dict[str, dict[str, type]] = {group: {} for group in REQUIRED}
"""Registered classes of each group, by the names of their options."""


def register(group: str, name: str) -> Callable[[Part], Part]:
    """Return a decorator that registers a dataclass as the option ``GROUP=NAME``; its fields are the settings.

    The same class may be registered again, for example by a cell of a notebook that runs twice. Raises UserError for an
    unknown group; for a class that is not a dataclass, is not a subclass of its group's base class, lacks a required
    member, or has one with other parameters; and for a name that is not an identifier, is reserved, or belongs to
    another class.

    >>> from dataclasses import dataclass
    >>> from robust_eval import Grader
    >>> @register("grader", "exact")
    ... @dataclass
    ... class Exact(Grader):
    ...     def right(self, replies):
    ...         return [reply.exact for reply in replies]
    """
    if group not in REGISTRY:
        raise UserError(f"register({group!r}, {name!r}): the group must be {enumerated(REGISTRY)}")
    return lambda part: _registered(group, name, part)


@cache
def load_plugins() -> None:
    """Register the classes of all entry points, once in a process.

    An entry point of the group ``robust_eval.metrics`` called ``always_right`` becomes ``metric=always_right``. A
    broken one is left out with a warning, because it would stop every run, also those that do not use it.
    """
    installed = entry_points()
    for group in REGISTRY:
        for entry in installed.select(group=f"robust_eval.{group}s"):
            source = f"the package {entry.dist.name}" if entry.dist else entry.value
            try:
                register(group, entry.name)(entry.load())
            except UserError as problem:
                log.warning("%s is left out: %s", source, problem)
            except (Exception, SystemExit) as problem:  # of foreign code at its import
                reason = f"{type(problem).__name__}: {first_line(problem)}"
                log.warning("%s=%s of %s cannot be loaded, and is left out: %s", group, entry.name, source, reason)


def refuse_reserved(group: str, name: str) -> None:
    """Raise UserError for the name of an option that the results of a run use for something else."""
    if name in RESERVED.get(group, ()):
        raise UserError(f"{group}={name}: every run reserves the name {name} for its own results: choose another name")


def _registered(group: str, name: str, part: Part) -> Part:
    option = f"{group}={name}"
    if not name.isidentifier():
        raise UserError(f"{option}: the name of an option must be one word of letters, digits and _")
    refuse_reserved(group, name)
    if not isinstance(part, type) or not is_dataclass(part):
        raise UserError(f"{option}: {_qualname(part)} must be a dataclass, whose fields are its settings")
    name_of_base, members = REQUIRED[group]
    bases = (
        each for each in part.__mro__ if each.__name__ == name_of_base and each.__module__.startswith("robust_eval.")
    )
    base = next(bases, None)  # by its name: the layers above are not imported here
    if base is None:
        raise UserError(f"{option}: {_qualname(part)} must be a subclass of robust_eval.{name_of_base}")
    settings = {field.name for field in fields(part)}
    for member in members:
        if member not in settings and getattr(part, member, None) is getattr(base, member, None):
            raise UserError(f"{option}: {_qualname(part)} has no {member}, which a {group} needs")
        _check_parameters(option, part, base, member)
    registered = REGISTRY[group].setdefault(name, part)
    if _qualname(registered) != _qualname(part):
        raise UserError(f"{option} is already {_qualname(registered)}: register {_qualname(part)} under another name")
    REGISTRY[group][name] = part
    return part


def _check_parameters(option: str, part: type, base: type, member: str) -> None:
    """Raise UserError if a method cannot be called with the arguments of its base class."""
    method, expected = getattr(part, member, None), getattr(base, member, None)
    if not isfunction(method) or not isfunction(expected):
        return
    names = list(signature(expected).parameters)
    try:
        signature(method).bind(*names)
    except TypeError as problem:
        raise UserError(
            f"{option}: {_qualname(part)}.{member} must take {enumerated(names, 'and')}: {problem}"
        ) from problem


def _qualname(part: object) -> str:
    return f"{part.__module__}.{part.__qualname__}" if isinstance(part, type) else repr(part)
