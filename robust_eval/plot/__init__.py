"""One figure, one function: each draws into the axes that it is given, and returns them.

Modules are imported when they are first used, ``plot.frs`` for instance: matplotlib takes half a second, which nobody
need spend who draws nothing.
"""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    try:
        return import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as problem:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from problem
