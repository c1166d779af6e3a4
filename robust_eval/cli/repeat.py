"""Run an earlier run again from its folder (``repeat=FOLDER``). Somebody else may have written the folder."""

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
from robust_eval.tracking.flat_settings import SEVERAL, flat
from robust_eval.tracking.run_folder import ANSWERS, CONFIG, read_configuration

_FOLDER = "repeated_folder.txt"
"""Beside the copy of a configuration: which folder it is from."""
ADDRESSES = {
    "trust_remote_code": False,
    "api_key_env": OpenAI.api_key_env,
    "base_url": OpenAI.base_url,
    "model_args": None,
    "address": None,
    "uri": None,
}
"""Settings that run code of others, or are addresses of servers, with the values that need no consent."""
READ = (
    *("path", "hub", "subsets", "split", "revision", "file", "originals", "prompts", "challenges"),
    *("cross_encoder", "sentences", "question_types", "labels"),
)
"""Settings that name inputs: files, and models and data sets of a hub."""
_OF_MODELS = ("aggregator.model", "grader.model")
"""The same, where the value is a text: elsewhere a model is an option, and what a server calls it."""
_STORE = "${paths.mlruns}/store"
"""Default store of answers."""
_BUILTIN = re.compile(r"builtin:[\w-][\w.-]*")


def repeating_overrides(overrides: Sequence[str], place: Path) -> list[str]:
    """Write a checked copy of an earlier run's configuration into ``place``; return the other overrides.

    Hydra is not given the folder itself, because it would run what a file there says (a logger or a launcher). Raises
    UserError where the folder holds no finished run, where its configuration holds anything but settings, and where it
    has a setting that must be repeated on the command line (:func:`_refuse_places`).
    """
    *_, named = (line.partition("=")[2] for line in overrides if line.startswith("repeat="))
    folder = Path(named).resolve()
    for name in (CONFIG, ANSWERS):
        if not (folder / name).is_file():
            lacking = f"no {name} of a finished run in it" if folder.is_dir() else "no such folder"
            raise UserError(f"repeat={named}: there is {lacking}; name a folder such as mlruns/runs/DATE/TIME")
    schemas, whole = _settings(folder / CONFIG)
    overrides_besides = [_full(line, whole) for line in overrides if not line.startswith("repeat=")]
    set_keys = {_key(line): line.partition("=")[2] for line in overrides_besides}
    _refuse_places(folder, schemas, whole, set_keys.keys(), Path(set_keys.get("paths.mlruns", "mlruns").strip("'\"")))
    (place / CONFIG).write_text(configuration_file(schemas, whole), encoding="utf-8")
    (place / _FOLDER).write_text(str(folder), encoding="utf-8")
    return overrides_besides


def repeated_run(sources: Iterable[Any]) -> Path | None:
    """Return the folder of the earlier run, if Hydra read a copy that :func:`repeating_overrides` made; else None.

    ``sources`` are the places where Hydra looks for configurations.
    """
    copies = [Path(source.path) / _FOLDER for source in sources if source.schema == "file"]
    return next((Path(copy.read_text(encoding="utf-8")) for copy in copies if copy.is_file()), None)


def candidate_overrides(folder: Path, lines: Sequence[str], mlruns: Path, place: Path) -> list[str]:
    """Write a checked copy of a baseline's configuration into ``place``; return the overrides that make a candidate's
    of it, as ``lines`` say.

    The candidate has a store and a tracker of its own, in ``mlruns``. Where an option is chosen (``model=NAME``), none
    of the settings of the baseline's option are left. Raises UserError as :func:`repeating_overrides` does.
    """
    said = [*(line for line in ("store=sqlite", "tracking=mlflow") if not _chosen(line, lines)), *lines]
    chosen = {_key(line) for line in said} & SCHEMAS.keys()
    schemas, whole = _settings(folder / CONFIG)
    kept = {name: value for name, value in whole.items() if name not in chosen}
    kept |= {"paths": {"mlruns": str(mlruns.resolve())}, "target_half_width": None}
    said = [f"+{line.lstrip('+')}" if _key(line) in chosen else _full(line, kept) for line in said]
    left = [(path, name) for path, name in schemas if path.partition(".")[0] not in chosen]
    _refuse_places(folder.resolve(), left, kept, {_key(line) for line in said}, mlruns)
    (place / CONFIG).write_text(configuration_file(left, kept), encoding="utf-8")
    return said


def _key(line: str) -> str:
    """Return the setting, or the group, of an override."""
    return line.partition("=")[0].lstrip("+")


def _chosen(default: str, lines: Sequence[str]) -> bool:
    """Return True if lines choose an option of the group of a default."""
    return any(line.lstrip("+").startswith(f"{default.partition('=')[0]}=") for line in lines)


def _full(line: str, settings: Mapping[str, Any]) -> str:
    """Return an override with the name of the option that it may leave out, where the settings hold one alone."""
    line = as_meant(line)
    group, dot, rest = line.partition("=")[0].partition(".")
    options = settings.get(group) if group in SEVERAL and dot else None
    if isinstance(options, dict) and len(options) == 1 and rest.partition(".")[0] not in options:
        return line.replace(f"{group}.", f"{group}.{next(iter(options))}.", 1)
    return line


def _settings(file: Path) -> tuple[list[tuple[str, str]], dict[str, Any]]:
    """Read the schemas and the settings of a run. UserError where a setting would be filled in from elsewhere, such as
    the environment, or would make an object.
    """
    whole = read_configuration(file)
    schemas = list(_schemas(whole.pop("defaults", None), file))
    whole.pop("hydra", None)
    for key, value in flat(whole).items():
        if any(part.startswith("_") and part.endswith("_") for part in key.split(".")):
            raise UserError(f"{file} holds {key}, which no run writes into its configuration")
        if "${" in str(value):
            raise UserError(
                f"{file}: {key} holds an interpolation (${{…}}), which no run writes into its configuration"
            )
    return schemas, whole


def _schemas(defaults: object, file: Path) -> Iterator[tuple[str, str]]:
    """Yield the path of each part of the configuration and the name of its schema, from the defaults list of a run."""
    known = {f"{group}/{name}" for group, names in SCHEMAS.items() for name in names}
    for entry in defaults if isinstance(defaults, list) else []:
        if isinstance(entry, str) and entry.startswith("/schema/"):
            name, _, path = entry.removeprefix("/schema/").partition("@")
            if name not in known:
                raise UserError(f"{file} names {entry}, which is not part of this robust_eval")
            yield path, name


def _refuse_places(
    folder: Path, schemas: Iterable[tuple[str, str]], whole: dict[str, Any], said: Collection[str], mlruns: Path
) -> None:
    """Raise UserError unless the command line has the settings that no folder is trusted with: code that would run,
    addresses, and what is read and written.

    It need not have what the command would do anyway, nor what a run under ``mlruns`` reads: that is one's own. The
    store goes with ``paths.mlruns``, and of a mapping that the command line has nothing is left.
    """
    mlruns, theirs, store = mlruns.resolve(), flat(whole).get("paths.mlruns"), whole.get("store")
    if isinstance(store, dict) and store.get("folder") == f"{theirs}/store":
        store["folder"] = _STORE
    own, known = folder.is_relative_to(mlruns), _known()
    providers = {f"{path}.model" for path, name in schemas if name == "model/inspect"}

    def is_trusted(key: str, value: object) -> bool:
        """Return True for a value that cannot run code, send anything away, or name what is read or written."""
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
            return own or value is None or str(value) in known or bool(_BUILTIN.fullmatch(str(value)))
        return True

    wanted = {}
    for key, value in {"paths.mlruns": theirs, **dict(_nodes(whole))}.items():
        if key not in said and not is_trusted(key, value):
            wanted[key] = value
        elif key in said and key.rpartition(".")[2] in ADDRESSES and isinstance(value, dict):
            value.clear()
    if wanted:
        lines = " ".join(
            shlex.quote(as_override(key, value) if isinstance(value, dict | list) else f"{key}={value}")
            for key, value in wanted.items()
        )
        raise UserError(
            f"{folder / CONFIG} sets code to run, files to read, or where prompts, keys, results or files go, which is "
            f"accepted from the command line alone: if it is what you want, add {lines}"
        )


def _nodes(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield key and value of every setting, also of those that hold others; of an address not what is in it."""
    for name, value in tree.items():
        yield f"{prefix}{name}", value
        if isinstance(value, dict) and name not in ADDRESSES:
            yield from _nodes(value, f"{prefix}{name}.")


def _known() -> set[str]:
    """Return all values of the options of this package, those that their classes have by default among them."""
    classes = (OmegaConf.structured(schema) for schemas in SCHEMAS.values() for schema in schemas.values())
    defaults = (OmegaConf.to_container(each, resolve=False) for each in classes)
    files = (yaml.safe_load(file.read_text(encoding="utf-8")) for file in CONF.glob("*/*.yaml"))
    return {str(value) for option in (*files, *defaults) for value in flat(option or {}).values()}
