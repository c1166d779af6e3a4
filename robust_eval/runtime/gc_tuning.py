"""How often Python collects garbage.

Importing libraries creates 400,000 objects that all stay. To look through them again and again, and once more at exit,
takes a quarter of the time of a run that finds its answers in the store.
"""

import atexit
import gc
import sys

_SELDOM = 200_000
"""Objects that are made before garbage is looked for: what two or three runs of a sweep leave behind, or 50 MB."""
_before: tuple[int, int, int] | None = None


def collect_seldom() -> None:
    """Collect seldom: for a process that is about to import libraries and may end soon."""
    global _before
    _before = gc.get_threshold()
    gc.set_threshold(_SELDOM)
    atexit.register(_leave_it)


def _leave_it() -> None:
    """Leave nothing to look through when the process ends.

    Where Triton is loaded, as torch for GPUs does, all is looked through: Triton's binding prints what is left.
    """
    if "triton" not in sys.modules:
        gc.freeze()


def collect_as_usual() -> None:
    """Collect as often again as before :func:`collect_seldom`: garbage may hold the tensors of a model."""
    if _before is not None:
        gc.set_threshold(*_before)
