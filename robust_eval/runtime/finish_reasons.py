"""Finish reasons of replies: the words of all services, in five classes."""

import re

from robust_eval.runtime.files import module_data

STOP, LENGTH, FILTER, TOOL, ERROR = "stop", "length", "filter", "tool", "error"


def _bare(spelling: str) -> str:
    """Return the letters of a finish reason's spelling without the prefix of its enumeration."""
    letters = re.sub("[^a-z0-9]", "", spelling.casefold())
    return letters.removeprefix("finishreason").removeprefix("stopreason") or letters


_ENDS = {_bare(spelling): end for end, spellings in module_data(__file__).items() for spelling in spellings}


def end_of(reason: object) -> str | None:
    """Return the finish reason ``stop``, ``length``, ``filter``, ``tool`` or ``error`` for a server's word in any
    spelling, which a colon and details may follow (Gemini); None for an unknown word.
    """
    if not isinstance(reason, str) or len(reason) > 100:
        return None
    return _ENDS.get(_bare(reason)) or _ENDS.get(_bare(reason.partition(":")[0]))
