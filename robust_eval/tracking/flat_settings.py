"""Settings of a run, read from its configuration file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robust_eval.tracking.run_folder import read_configuration

SEVERAL = ("sampler", "metric")
"""Groups that take several options at once, each under its own name."""

AUTO = "auto"
"""Value of a setting that is resolved at the start of the run."""


def read_settings(file: Path) -> dict[str, Any]:
    """Read the settings from a file that :func:`robust_eval.config.schema.repeatable` made, flat."""
    whole = read_configuration(file)
    return flat({name: value for name, value in whole.items() if name not in ("defaults", "hydra")})


def flat(tree: Any, prefix: str = "") -> dict[str, Any]:
    """Flatten nested mappings, with keys joined by dots: ``{"a": {"b": 1}}`` becomes ``{"a.b": 1}``."""
    if not isinstance(tree, Mapping):
        return {prefix.removesuffix("."): tree}
    return {key: value for name, child in tree.items() for key, value in flat(child, f"{prefix}{name}.").items()}


_DATA_GROUPS = ("dataset", "rewriter", "grader", "aggregator", "answers", "question_types", "undefined")
"""Groups of resolved values that are not the model's."""


def decided(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without those that are resolved at the start of the run."""
    return {name: value for name, value in settings.items() if not _open(value)}


def _open(value: object) -> bool:
    return value is None or value == AUTO


def resolved_values(settings: Mapping[str, Any], description: Mapping[str, object]) -> dict[str, Any]:
    """Return the resolved values of the model and the data under the names of settings, without those that equal
    settings.

    A value that differs from an explicit setting has its name with ``.found``.

    >>> resolved_values({"model.dtype": "auto", "model.stop": "x"}, {"identity.dtype": "float32", "identity.stop": "x"})
    {'model.dtype': 'float32'}
    """
    values: dict[str, Any] = {}
    for name, value in flat(dict(description)).items():
        kind, _, rest = name.partition(".")
        name_ = rest if kind in ("loaded", "identity") else name
        group = name_.partition(".")[0]
        name_ = name_ if group in _DATA_GROUPS else f"model.{name_}"
        if not _open(settings.get(name_)) and str(settings[name_]) != str(value):
            name_ = f"{name_}.found"
        if str(settings.get(name_)) != str(value):
            values[name_] = value
    undecided_settings = {name: value for name, value in settings.items() if _open(value)}
    return undecided_settings | values


def effective(description: Mapping[str, object]) -> dict[str, object]:
    """Return the identity of the model under the names of its settings, and the fingerprint of the data."""
    model = {name: value for name, value in description.items() if name.startswith("identity.")}
    settings: dict[str, object] = {f"model.{name.removeprefix('identity.')}": value for name, value in model.items()}
    return settings | {"dataset.fingerprint": description.get("loaded.dataset.fingerprint", "")}
