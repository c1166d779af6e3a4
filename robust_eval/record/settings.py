"""The settings of a run, read from what it wrote down."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robust_eval.record.run_folder import read_configuration

SEVERAL = ("sampler", "metric")
"""Groups that take several options at once, each under its own name."""

AUTO = "auto"
"""The value of a setting for which something is found when the run begins."""


def read_settings(file: Path) -> dict[str, Any]:
    """Read the settings from a file that :func:`robust_eval.config.repeatable.repeatable` made, flat."""
    whole = read_configuration(file)
    return flat({name: value for name, value in whole.items() if name not in ("defaults", "hydra")})


def flat(tree: Any, prefix: str = "") -> dict[str, Any]:
    """Flatten nested mappings, with keys joined by dots: ``{"a": {"b": 1}}`` becomes ``{"a.b": 1}``."""
    if not isinstance(tree, Mapping):
        return {prefix.removesuffix("."): tree}
    return {key: value for name, child in tree.items() for key, value in flat(child, f"{prefix}{name}.").items()}
