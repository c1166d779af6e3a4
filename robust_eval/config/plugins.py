"""Parts that installed packages register by entry points: ``robust_eval.metrics``, ``robust_eval.models`` and so on."""

import logging
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from robust_eval.error import UserError, first_line
from robust_eval.runtime.registry import REGISTRY, register

log = logging.getLogger(__name__)


@cache
def load_plugins() -> None:
    """Register the classes of all entry points, once in a process.

    An entry point of the group ``robust_eval.metrics`` called ``always_right`` becomes ``metric=always_right``. One
    that cannot be loaded is left out, and a warning says why: it would stop every run, also those that do not use it.
    """
    installed = entry_points()
    for group in REGISTRY:
        for entry in installed.select(group=f"robust_eval.{group}s"):
            _load(group, entry)


def _load(group: str, entry: EntryPoint) -> None:
    try:
        register(group, entry.name)(entry.load())
    except UserError as problem:
        log.warning("%s is left out: %s", _origin(entry), problem)
    except (Exception, SystemExit) as problem:  # whatever the code of others raises when it is imported
        log.warning(
            "%s=%s of %s cannot be loaded, and is left out: %s: %s",
            group,
            entry.name,
            _origin(entry),
            type(problem).__name__,
            first_line(problem),
        )


def _origin(entry: EntryPoint) -> str:
    return f"the package {entry.dist.name}" if entry.dist else entry.value
