"""Run an earlier run again from its folder (``repeat=FOLDER``). Somebody else may have written the folder."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from robust_eval.config.overrides import as_meant
from robust_eval.config.repeatable import configuration_file
from robust_eval.config.schema import CONF, SCHEMAS
from robust_eval.error import UserError
from robust_eval.model.served.openai import OpenAI
from robust_eval.record.run_folder import ANSWERS, CONFIG, read_configuration
from robust_eval.record.settings import SEVERAL, flat

_FOLDER = "repeated_folder.txt"
"""Beside the copy of a configuration: which folder it is from."""
_TRUSTED = {
    "trust_remote_code": False,
    "key_variable": OpenAI.key_variable,
    "base_url": OpenAI.base_url,
    "model_args": None,
    "uri": None,
}
"""Settings that run code of others, or say where prompts, keys and results go, with the values that need no consent."""


def repeating_arguments(overrides: Sequence[str], place: Path) -> list[str]:
    """Write a checked copy of an earlier run's configuration into ``place``; return the arguments for Hydra to use it.

    Hydra is not given the folder itself, because it would run what a file there says (a logger or a launcher). Raises
    UserError where the folder holds no finished run, where its configuration holds anything but settings, and where it
    has a setting that must be repeated on the command line: code of a model that would run, an address that would
    receive prompts and a key, a folder elsewhere that would be written to.
    """
    *_, named = (line.partition("=")[2] for line in overrides if line.startswith("repeat="))
    others = [as_meant(line) for line in overrides if not line.startswith("repeat=")]
    folder = Path(named).resolve()
    for name in (CONFIG, ANSWERS):
        if not (folder / name).is_file():
            lacking = f"no {name} of a finished run in it" if folder.is_dir() else "no such folder"
            raise UserError(f"repeat={named}: there is {lacking}; name a folder such as mlruns/runs/DATE/TIME")
    whole = read_configuration(folder / CONFIG)
    _refuse_interpolations(whole, folder / CONFIG)
    schemas = list(_schemas(whole.pop("defaults", None), folder / CONFIG))
    whole.pop("hydra", None)
    _refuse_unless_said(folder, flat(whole), {line.partition("=")[0].lstrip("+") for line in others})
    (place / CONFIG).write_text(configuration_file(schemas, whole), encoding="utf-8")
    (place / _FOLDER).write_text(str(folder), encoding="utf-8")
    return ["--config-path", str(place), "--config-name", "config", f"hydra.searchpath=[file://{CONF}]", *others]


def repeated_run(sources: Iterable[Any]) -> Path | None:
    """Return the folder of the earlier run, if Hydra read a copy that :func:`repeating_arguments` made; else None.

    ``sources`` are the places where Hydra looks for configurations.
    """
    copies = [Path(source.path) / _FOLDER for source in sources if source.schema == "file"]
    return next((Path(copy.read_text(encoding="utf-8")) for copy in copies if copy.is_file()), None)


def candidate_overrides(folder: Path, lines: Sequence[str], mlruns: Path, place: Path) -> list[str]:
    """Write a checked copy of a baseline's configuration into ``place``; return the overrides that make a candidate's
    of it, as ``lines`` say.

    The candidate has a store and a tracker of its own, in ``mlruns``. Where an option is chosen (``model=NAME``), none
    of the settings of the baseline's option are left. Raises UserError as :func:`repeating_arguments` does.
    """
    said = [*(line for line in ("store=sqlite", "tracking=mlflow") if not _chosen(line, lines)), *lines]
    chosen = {line.partition("=")[0].lstrip("+") for line in said} & SCHEMAS.keys()
    whole = read_configuration(folder / CONFIG)
    _refuse_interpolations(whole, folder / CONFIG)
    schemas = [
        (path, name)
        for path, name in _schemas(whole.pop("defaults", None), folder / CONFIG)
        if path.partition(".")[0] not in chosen
    ]
    kept = {name: value for name, value in whole.items() if name not in chosen and name != "hydra"}
    kept |= {"paths": {"mlruns": str(mlruns.resolve())}, "until": None}
    trusted = {line.partition("=")[0].lstrip("+") for line in lines} | {"paths.mlruns"}
    _refuse_unless_said(folder, flat(kept), trusted)
    (place / CONFIG).write_text(configuration_file(schemas, kept), encoding="utf-8")
    return [
        f"+{line.lstrip('+')}" if line.partition("=")[0].lstrip("+") in chosen else _full(line, kept) for line in said
    ]


def _chosen(default: str, lines: Sequence[str]) -> bool:
    """Tell whether lines choose an option of the group of a default."""
    return any(line.lstrip("+").startswith(f"{default.partition('=')[0]}=") for line in lines)


def _full(line: str, settings: Mapping[str, Any]) -> str:
    """Return an override with the name of the option that it may leave out, where the settings hold one alone."""
    line = as_meant(line)
    group, dot, rest = line.partition("=")[0].partition(".")
    options = settings.get(group) if group in SEVERAL and dot else None
    if isinstance(options, dict) and len(options) == 1 and rest.partition(".")[0] not in options:
        return line.replace(f"{group}.", f"{group}.{next(iter(options))}.", 1)
    return line


def _refuse_interpolations(whole: Mapping[str, Any], file: Path) -> None:
    """Raise UserError where a setting would be filled in from elsewhere, such as the environment."""
    for key, value in flat(whole).items():
        if not key.startswith("hydra.") and "${" in str(value):
            raise UserError(
                f"{file}: {key} holds an interpolation (${{…}}), which a configuration written by a run has not"
            )


def _schemas(defaults: object, file: Path) -> Iterator[tuple[str, str]]:
    """Yield the path of each part of the configuration and the name of its schema, from the defaults list of a run."""
    known = {f"{group}/{name}" for group, names in SCHEMAS.items() for name in names}
    for entry in defaults if isinstance(defaults, list) else []:
        if isinstance(entry, str) and entry.startswith("/schema/"):
            name, _, path = entry.removeprefix("/schema/").partition("@")
            if name not in known:
                raise UserError(f"{file} names {entry}, which is no part of this robust_eval")
            yield path, name


def _refuse_unless_said(folder: Path, settings: Mapping[str, Any], said: set[str]) -> None:
    """Raise UserError unless the command line itself has the settings that no folder is trusted with."""
    wanted = {}
    for key, value in settings.items():
        name = key.rpartition(".")[2]
        if name in _TRUSTED and value is not None and value != _TRUSTED[name]:
            wanted[key] = value
    mlruns = settings.get("paths.mlruns")
    if not isinstance(mlruns, str) or not folder.is_relative_to(Path(mlruns).resolve()):
        wanted["paths.mlruns"] = mlruns
    if missing := {key: value for key, value in wanted.items() if key not in said}:
        lines = " ".join(shlex.quote(f"{key}={value}") for key, value in missing.items())
        raise UserError(
            f"repeat={folder}: its {CONFIG} says which code runs, where prompts, keys or results go, or where files "
            f"are written, and no folder is trusted with that: if it is what you want, add to the command line {lines}"
        )
