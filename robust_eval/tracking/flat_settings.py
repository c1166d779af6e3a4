"""Flat settings of a run, from its configuration file and its metadata."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robust_eval.runtime.registry import COMBINABLE_GROUPS
from robust_eval.tracking.run_folder import read_configuration

AUTO = "auto"
"""Value of a setting that is resolved at the start of the run."""


def read_settings(file: Path) -> dict[str, Any]:
    """Read flat settings from a file that :func:`robust_eval.config.schema.repeatable` made."""
    settings = read_configuration(file)
    return flat({name: value for name, value in settings.items() if name not in ("defaults", "hydra")})


def flat(tree: Any, prefix: str = "") -> dict[str, Any]:
    """Flatten nested mappings, with keys joined by dots: ``{"a": {"b": 1}}`` becomes ``{"a.b": 1}``.

    An empty mapping is a value: a metric without settings keeps its name.
    """
    if not isinstance(tree, Mapping) or (prefix and not tree):
        return {prefix.removesuffix("."): tree}
    return {key: value for name, child in tree.items() for key, value in flat(child, f"{prefix}{name}.").items()}


_DATA_GROUPS = ("dataset", "rewriter", "grader", "aggregator", "answers", "question_types", "undefined")
"""Groups of resolved values that are not the model's."""


def decided(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flat settings without those that are resolved at the start of the run."""
    return {name: value for name, value in settings.items() if not _is_undecided(value)}


def _is_undecided(value: object) -> bool:
    return value is None or value == AUTO


def resolved_values(settings: Mapping[str, Any], description: Mapping[str, object]) -> dict[str, Any]:
    """Return the resolved values of the model and the data under the names of settings, except values that equal their
    setting.

    A value that differs from an explicit setting has its name with ``.found``.

    >>> resolved_values({"model.dtype": "auto", "model.stop": "x"}, {"identity.dtype": "float32", "identity.stop": "x"})
    {'model.dtype': 'float32'}
    """
    values: dict[str, Any] = {}
    for key, value in flat(dict(description)).items():
        kind, _, rest = key.partition(".")
        name = rest if kind in ("loaded", "identity") else key
        name = name if name.partition(".")[0] in _DATA_GROUPS else f"model.{name}"
        if not _is_undecided(settings.get(name)) and str(settings[name]) != str(value):
            name = f"{name}.found"
        if str(settings.get(name)) != str(value):
            values[name] = value
    return {name: value for name, value in settings.items() if _is_undecided(value)} | values


def effective(description: Mapping[str, object]) -> dict[str, object]:
    """Return the identity of the model under the names of its flat settings, and the fingerprint of the data."""
    model = {name: value for name, value in description.items() if name.startswith("identity.")}
    settings: dict[str, object] = {f"model.{name.removeprefix('identity.')}": value for name, value in model.items()}
    return settings | {"dataset.fingerprint": description.get("loaded.dataset.fingerprint", "")}


def setting_value(name: str, value: Any) -> str:
    """Return the value of a run's setting in words: None is "all" for a limit, and "none" for others."""
    return str(value) if value is not None else "all" if name.endswith(".limit") else "none"


_PATH_SETTINGS = ("paths.", "store.", "tracking.")
"""Prefixes of settings of locations, which change no result."""


def settings_that_count(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flat settings that determine a run's results, with the selected samplers and metrics."""
    chosen = {
        group: "+".join(dict.fromkeys(name.split(".")[1] for name in settings if name.startswith(f"{group}.")))
        for group in COMBINABLE_GROUPS
    }
    relevant = {name: value for name, value in settings.items() if not name.startswith(_PATH_SETTINGS)}
    return chosen | relevant
