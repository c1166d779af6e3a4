"""The settings of a run, read from what it wrote down."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robust_eval.tracking.run_folder import read_configuration

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


_OWN_GROUPS = ("dataset", "rewriter", "grader", "aggregator", "answers", "question_types", "undefined")
"""Of what was found, the parts that are not the model's."""


def decided(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings but for those that are decided when the run begins."""
    return {name: value for name, value in settings.items() if not _open(value)}


def _open(value: object) -> bool:
    return value is None or value == AUTO


def found_besides(settings: Mapping[str, Any], description: Mapping[str, object]) -> dict[str, Any]:
    """Return what was found of the model and the data, under the names of settings, and nothing that these say already.

    What was found in place of a setting that is no ``auto`` has the name of it and ``.found``.

    >>> found_besides({"model.dtype": "auto", "model.stop": "x"}, {"identity.dtype": "float32", "identity.stop": "x"})
    {'model.dtype': 'float32'}
    """
    found: dict[str, Any] = {}
    for name, value in flat(dict(description)).items():
        kind, _, rest = name.partition(".")
        own = rest if kind in ("loaded", "identity") else name
        group = own.partition(".")[0]
        own = own if group in _OWN_GROUPS else f"model.{own}"
        if not _open(settings.get(own)) and str(settings[own]) != str(value):
            own = f"{own}.found"
        if str(settings.get(own)) != str(value):
            found[own] = value
    left = {name: value for name, value in settings.items() if _open(value)}
    return left | found


def effective(description: Mapping[str, object]) -> dict[str, object]:
    """Return what the model was that was asked, under the names of its settings, and the fingerprint of the data."""
    model = {name: value for name, value in description.items() if name.startswith("identity.")}
    found: dict[str, object] = {f"model.{name.removeprefix('identity.')}": value for name, value in model.items()}
    return found | {"dataset.fingerprint": description.get("loaded.dataset.fingerprint", "")}
