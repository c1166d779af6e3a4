"""How often Python looks for garbage.

Loading libraries makes 400,000 objects that all stay. Looking through them again and again, and once more at the end,
takes a quarter of a run that finds its answers in the store.
"""

import atexit
import gc

_USUAL = gc.get_threshold()
_SELDOM = 200_000
"""Objects that are made before garbage is looked for: what two or three runs of a sweep leave behind, or 50 MB."""


def collect_seldom() -> None:
    """For a process that is about to load libraries, and may be done soon after."""
    gc.set_threshold(_SELDOM)
    atexit.register(gc.freeze)  # leaves nothing to look through when the process ends


def collect_as_usual() -> None:
    """For the long haul: garbage may hold the tensors of a model."""
    gc.set_threshold(*_USUAL)
