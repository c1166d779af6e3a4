"""Hints at quotes, for command lines that a shell has changed."""

import re
import shlex
from collections.abc import Sequence

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import OverrideParseException


def hint(overrides: Sequence[str], problem: str) -> str:
    """Return how to quote what a shell may have parted or emptied, of the overrides that the ``problem`` is about.

    The text is empty where nothing of the kind can be seen.
    """
    for place, line in enumerate(overrides):
        key, equals, value = line.partition("=")
        setting = key.rpartition(".")[2]
        if value[:1] in ("[", "{", "'", '"') and (whole := _joined(overrides[place:])):
            return _quote("parted it at blanks", whole)
        before = overrides[place - 1] if place else ""
        if "=" not in line and "." in before.partition("=")[0] and repr(line) in problem:  # no name has a blank
            return _quote("parted it at a blank", f"{before} {line}")
        said = re.search(rf"\b{re.escape(setting)}\b", problem) and not problem.startswith("there is no setting")
        if equals and not value and said:
            return _quote("took the value away (; & $ and ` are signs of its own)", f"{key}=…")
        pairs = [each.removeprefix(f"{key}=") for each in overrides if each.startswith(f"{key}=")]
        if len(pairs) > 1 and said and all(re.fullmatch(r"\w+:.*", pair) for pair in pairs):
            return _quote("made several of one with braces", f"{key}={{{','.join(pairs)}}}")
    return ""


def _joined(overrides: Sequence[str]) -> str:
    """Return as many of the first overrides as make one that can be read; empty if one is enough, or all too few."""
    for last in range(1, len(overrides) + 1):
        whole = " ".join(overrides[:last])
        try:
            OverridesParser.create().parse_overrides([whole])
        except OverrideParseException:
            continue
        return whole if last > 1 else ""
    return ""


def _quote(did: str, whole: str) -> str:
    return f"if your shell {did}, quote it: {shlex.quote(whole)}"
