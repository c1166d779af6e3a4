"""Repetition of an earlier run from its folder (``repeat=FOLDER``), which somebody else may have written."""

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf

from robust_eval.config.groups import CONF
from robust_eval.config.overrides import as_meant, as_override
from robust_eval.config.schema import SCHEMAS, configuration_file
from robust_eval.error import UserError
from robust_eval.model.served.openai import OpenAI
from robust_eval.runtime.registry import COMBINABLE_GROUPS
from robust_eval.tracking.flat_settings import flat
from robust_eval.tracking.run_folder import ANSWERS, CONFIG, read_configuration

_FOLDER = "repeated_folder.txt"
"""File in the folder of a copied configuration, with the folder of the original."""
ADDRESSES = {
    "trust_remote_code": False,
    "api_key_env": OpenAI.api_key_env,
    "base_url": OpenAI.base_url,
    "model_args": None,
    "address": None,
    "uri": None,
}
"""Settings that run foreign code or are addresses of servers, with their trusted values."""
READ = (
    *("path", "hub", "subsets", "split", "revision", "file", "originals", "prompts", "challenges"),
    *("cross_encoder", "sentences", "question_types", "labels"),
)
"""Settings that name inputs: files, and models and data sets of a hub."""
_OF_MODELS = ("aggregator.model", "grader.model")
"""Settings that name inputs if their value is a text."""
_STORE = "${paths.mlruns}/store"
"""Default store of answers."""
_BUILTIN = re.compile(r"builtin:[\w-][\w.-]*")


def repeating_overrides(overrides: Sequence[str], copy: Path) -> list[str]:
    """Write a checked copy of an earlier run's configuration into the folder ``copy``; return the other overrides.

    Hydra does not read the original folder, whose files could name a logger or launcher to run. Raises UserError where
    the folder holds no finished run, its configuration holds anything but settings, or a setting needs the consent of
    the command line (:func:`_refuse_untrusted`).
    """
    *_, named = (line.partition("=")[2] for line in overrides if line.startswith("repeat="))
    folder = Path(named).resolve()
    for name in (CONFIG, ANSWERS):
        if not (folder / name).is_file():
            lacking = f"the folder has no {name} of a finished run" if folder.is_dir() else "there is no such folder"
            raise UserError(f"repeat={named}: {lacking}; name a folder such as mlruns/runs/DATE/TIME")
    schemas, settings = _settings(folder / CONFIG)
    other_overrides = [_full(line, settings) for line in overrides if not line.startswith("repeat=")]
    values = {_key(line): line.partition("=")[2] for line in other_overrides}
    _refuse_untrusted(folder, schemas, settings, values.keys(), Path(values.get("paths.mlruns", "mlruns").strip("'\"")))
    (copy / CONFIG).write_text(configuration_file(schemas, settings), encoding="utf-8")
    (copy / _FOLDER).write_text(str(folder), encoding="utf-8")
    return other_overrides


def repeated_run(sources: Iterable[Any]) -> Path | None:
    """Return the folder of the repeated run if one of Hydra's configuration ``sources`` is a copy of it; else None."""
    copies = [Path(source.path) / _FOLDER for source in sources if source.schema == "file"]
    return next((Path(copy.read_text(encoding="utf-8")) for copy in copies if copy.is_file()), None)


def candidate_overrides(folder: Path, lines: Sequence[str], mlruns: Path, copy: Path) -> list[str]:
    """Write a checked copy of a baseline's configuration into the folder ``copy``; return the overrides of a candidate
    with the changes of ``lines``.

    The candidate has its own store and tracker in ``mlruns``. A chosen option (``model=NAME``) replaces all settings of
    the baseline's option. Raises UserError as :func:`repeating_overrides` does.
    """
    defaults = [line for line in ("store=sqlite", "tracking=mlflow") if _key(line) not in set(map(_key, lines))]
    overrides = [*defaults, *lines]
    chosen = {_key(line) for line in overrides} & SCHEMAS.keys()
    all_schemas, settings = _settings(folder / CONFIG)
    settings = {name: value for name, value in settings.items() if name not in chosen}
    settings |= {"paths": {"mlruns": str(mlruns.resolve())}, "target_half_width": None}
    overrides = [f"+{line.lstrip('+')}" if _key(line) in chosen else _full(line, settings) for line in overrides]
    schemas = [(path, name) for path, name in all_schemas if path.partition(".")[0] not in chosen]
    _refuse_untrusted(folder.resolve(), schemas, settings, {_key(line) for line in overrides}, mlruns)
    (copy / CONFIG).write_text(configuration_file(schemas, settings), encoding="utf-8")
    return overrides


def _key(line: str) -> str:
    """Return the setting, or the group, of an override."""
    return line.partition("=")[0].lstrip("+")


def _full(line: str, settings: Mapping[str, Any]) -> str:
    """Return an override with the name of its option, which it may omit if the settings hold only one."""
    if _key(line) == "experiment":
        raise UserError(f"the earlier run determines the experiment: remove {line}")
    line = as_meant(line)
    group, dot, rest = line.partition("=")[0].partition(".")
    options = settings.get(group) if group in COMBINABLE_GROUPS and dot else None
    if isinstance(options, dict) and len(options) == 1 and rest.partition(".")[0] not in options:
        return line.replace(f"{group}.", f"{group}.{next(iter(options))}.", 1)
    return line


def _settings(file: Path) -> tuple[list[tuple[str, str]], dict[str, Any]]:
    """Read the schemas and the settings of a run to repeat; UserError for an interpolation or the key of an object."""
    settings = read_configuration(file)
    schemas = list(_schemas(settings.pop("defaults", None), file))
    settings.pop("hydra", None)
    for key, value in flat(settings).items():
        if any(part.startswith("_") and part.endswith("_") for part in key.split(".")):
            raise UserError(f"{file} contains {key}, which no run writes into its configuration: remove it")
        if "${" in str(value):
            raise UserError(
                f"{file}: {key} contains an interpolation (${{…}}), which no run writes there: replace it with a value"
            )
    return schemas, settings


def _schemas(defaults: object, file: Path) -> Iterator[tuple[str, str]]:
    """Yield the path of each part of the configuration and the name of its schema, from the defaults list of a run."""
    known = {f"{group}/{name}" for group, names in SCHEMAS.items() for name in names}
    for entry in defaults if isinstance(defaults, list) else []:
        if isinstance(entry, str) and entry.startswith("/schema/"):
            name, _, path = entry.removeprefix("/schema/").partition("@")
            if name not in known:
                raise UserError(f"{file} names {entry}, which is not part of this version of robust_eval")
            yield path, name


def _refuse_untrusted(
    folder: Path, schemas: Iterable[tuple[str, str]], settings: dict[str, Any], consented: Collection[str], mlruns: Path
) -> None:
    """Raise UserError unless the command line has ``consented`` to all settings that are not trusted in a repeated
    run's folder: code to run, addresses, inputs and outputs.

    Default values need no consent, nor do the inputs of a run under ``mlruns``, the user's folder. The store follows
    ``paths.mlruns``; a mapping on the command line replaces that of the folder.
    """
    mlruns, its_mlruns, store = mlruns.resolve(), flat(settings).get("paths.mlruns"), settings.get("store")
    if isinstance(store, dict) and store.get("folder") == f"{its_mlruns}/store":
        store["folder"] = _STORE
    is_own, known = folder.is_relative_to(mlruns), _known_values()
    providers = {f"{path}.model" for path, name in schemas if name == "model/inspect"}

    def is_trusted(key: str, value: object) -> bool:
        """Return True for a setting that needs no consent on the command line."""
        name = key.rpartition(".")[2]
        if key in providers:
            return False
        if name in ADDRESSES:
            return value in (None, ADDRESSES[name])
        if key == "paths.mlruns":
            return isinstance(value, str) and Path(value).resolve() == mlruns
        if key == "store.folder":
            return value == _STORE
        if name in READ or (key in _OF_MODELS and isinstance(value, str)):
            return is_own or value is None or str(value) in known or bool(_BUILTIN.fullmatch(str(value)))
        return True

    untrusted = {}
    for key, value in {"paths.mlruns": its_mlruns, **dict(_nodes(settings))}.items():
        if key not in consented and not is_trusted(key, value):
            untrusted[key] = value
        elif key in consented and key.rpartition(".")[2] in ADDRESSES and isinstance(value, dict):
            value.clear()
    if untrusted:
        lines = " ".join(
            shlex.quote(as_override(key, value) if isinstance(value, dict | list) else f"{key}={value}")
            for key, value in untrusted.items()
        )
        raise UserError(
            f"{folder / CONFIG} sets code to run, files to read, or destinations of prompts, keys, results or files, "
            f"which only the command line may set: if you want this, add {lines}"
        )


def _nodes(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield key and value of every setting and mapping of settings, but not the contents of an address."""
    for name, value in tree.items():
        yield f"{prefix}{name}", value
        if isinstance(value, dict) and name not in ADDRESSES:
            yield from _nodes(value, f"{prefix}{name}.")


def _known_values() -> set[str]:
    """Return the values that need no consent: those in the option files of this package, and the defaults of its
    classes.
    """
    classes = (OmegaConf.structured(schema) for schemas in SCHEMAS.values() for schema in schemas.values())
    defaults = (OmegaConf.to_container(each, resolve=False) for each in classes)
    files = (yaml.safe_load(file.read_text(encoding="utf-8")) for file in CONF.glob("*/*.yaml"))
    return {str(value) for option in (*files, *defaults) for value in flat(option or {}).values()}
