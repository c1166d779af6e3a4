"""Overrides of the command line, and their checks before anything is loaded."""

import copy
import itertools
import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import cache
from itertools import chain
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple

import hydra
import numpy as np
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override, Quote, QuotedString
from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, open_dict
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from robust_eval.config.checks import leave_out_unchosen, to_config
from robust_eval.config.composition_errors import composition_error, no_option, no_setting, not_chosen
from robust_eval.config.config import Config
from robust_eval.config.groups import CONF, option_folders, options, own_folder
from robust_eval.config.schema import SCHEMAS, Schema, register
from robust_eval.dataset.file_formats import KINDS
from robust_eval.dataset.jsonl import is_native
from robust_eval.error import UserError
from robust_eval.question import Question
from robust_eval.runtime.registry import COMBINABLE_GROUPS
from robust_eval.runtime.text import enumerated, nearest

_CLOSING = {"[": "]", "{": "}", "'": "'", '"': '"'}
"""Closing sign of a value that begins so, in Hydra's grammar."""
_COMPOSING = RLock()
"""Lock that lets one thread at a time compose a configuration: Hydra's state belongs to the process."""


class Checked(NamedTuple):
    """Checked command line: overrides and what they compose.

    ``overrides`` has shorthands expanded. ``config`` is the configuration of the last job, ``composed`` the same as
    Hydra composed it, and ``with_hydra`` includes Hydra's settings. ``swept`` holds the overrides that differ between
    the ``jobs`` of a sweep, their number.
    """

    overrides: list[str]
    config: Config
    composed: DictConfig
    with_hydra: DictConfig
    swept: list[str]
    jobs: int


def checked_overrides(overrides: Sequence[str]) -> Checked:
    """Compose and check the configuration of these overrides, before anything is loaded or written.

    The name of an option may be omitted if only one chosen option has the setting: ``sampler.trials=20`` is
    ``sampler.temperature_sweep.trials=20``. So may quotes (:func:`as_meant`). Each value of a sweep is checked by
    itself. Options may be in the user's folders (``hydra.searchpath``). A file of questions, or a folder of such files,
    is an option of ``dataset``. Raises UserError with the mistake and the nearest valid name.
    """
    parsed = OverridesParser.create().parse_overrides(_of_group([as_meant(without_slash(line)) for line in overrides]))
    with _hydra(CONF):
        for override in parsed:
            _refuse_kind(override)
        choices = [override for override in parsed if _chooses(override)]
        not_hydra = [override for override in parsed if not _is_hydra(override)]
        searchpath = [str(override.input_line) for override in parsed if _is_searchpath(override)]
        for override in choices:
            if override.key_or_group == "dataset" and not override.is_delete():
                for value in _values(override):
                    offer(value.text if isinstance(value, QuotedString) else str(value), _folders(parsed))
        chosen = cache(lambda: _compose([*searchpath, *(_lines_of_jobs(override)[0] for override in choices)]))
        expanded = {id(override): _expanded(override, chosen) for override in not_hydra if override not in choices}
        lines_of_jobs = [_lines_of_jobs(override, expanded.get(id(override))) for override in not_hydra]
        hydra_lines = [str(override.input_line) for override in parsed if _is_hydra(override)]
        for variant in _variants(lines_of_jobs):
            with_hydra = _compose([*hydra_lines, *variant], chosen)
            composed = _without_hydra(with_hydra)
            config = to_config(composed)
    lines = [expanded.get(id(override), str(override.input_line)) for override in parsed]
    swept = [
        line
        for line, override in zip(lines, parsed, strict=True)
        if override.is_sweep_override() and not _is_hydra(override)
    ]
    return Checked(lines, config, composed, with_hydra, swept, math.prod(map(len, lines_of_jobs)))


def several_values(checked: Checked) -> UserError:
    """Return the error for a sweep without ``-m``."""
    key, _, values = checked.swept[0].partition("=")
    both = f", or choose them together, {key}=[{values}]" if key in COMBINABLE_GROUPS else ""
    return UserError(f"{checked.swept[0]} has several values, which makes this a sweep: add -m{both}")


def composed_run(overrides: Sequence[str]) -> tuple[Config, DictConfig]:
    """Return the configuration of one run from its overrides, as objects and as Hydra composed it.

    Raises UserError as :func:`checked_overrides` does, for a sweep, and for overrides of the command line alone.
    """
    for line in overrides:
        key = line.partition("=")[0].lstrip("+~")
        if key in ("dry_run", "cancel_batches", "repeat") or (key.startswith("hydra.") and key != "hydra.searchpath"):
            raise UserError(f"{line}: {key} works on the command line only, not in a call from Python")
    checked = checked_overrides(overrides)
    if checked.swept:
        raise UserError(f"{checked.swept[0]} has several values: a call runs one experiment, so call once for each")
    return checked.config, checked.composed


def named_questions(dataset: str, limit: int | None = None) -> tuple[str, list[Question]]:
    """Return the name and the first ``limit`` questions of a data set, for tasks of other harnesses.

    ``dataset`` is the name of an option, or the path of a file. UserError if it cannot be read.
    """
    register()
    lines = [as_override("dataset", dataset), *([] if limit is None else [as_override("dataset.limit", limit)])]
    config, _ = composed_run(lines)
    return config.dataset.name, list(config.dataset.load())


def composed_in(folder: Path, overrides: Sequence[str]) -> tuple[Config, DictConfig]:
    """Return the configuration of one run from ``config.yaml`` in a folder and these overrides."""
    folders = ",".join(f"'file://{each.resolve()}'" for each in option_folders())
    with _hydra(folder):
        searchpath = f"hydra.searchpath=[{folders}]"
        composed = _without_hydra(_compose([searchpath, *overrides], lambda: _compose([searchpath])))
        return to_config(composed), composed


def composed_choices(choices: Sequence[str]) -> DictConfig:
    """Return the unchecked configuration of chosen options, for help and completion."""
    with _hydra(CONF):
        return hydra.compose("config", with_own_options(choices))


def as_override(key: str, value: object) -> str:
    """Write a setting as an override: a text in quotes, a list in brackets, a mapping in braces.

    >>> as_override("dataset.columns", {"question": "prompt", "choices": ["a", "b"]})
    "dataset.columns={question:'prompt',choices:['a','b']}"
    """
    return f"{key}={_written(key, value)}"


def _written(key: str, value: object) -> str:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str | Path):
        return QuotedString(str(value), Quote.single).with_quotes()
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{name}:{_written(key, each)}" for name, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(_written(key, each) for each in value) + "]"
    raise UserError(f"{key} must be a string, a number, a list or a mapping, not {type(value).__name__}")


def with_own_options(overrides: Sequence[str], folder: Path | None = None) -> list[str]:
    """Add the folder of the user's options, by default ``./conf`` if it holds any, unless the overrides name folders
    themselves (``hydra.searchpath``).
    """
    added = own_folder() if folder is None else folder
    if added is None or any(line.startswith("hydra.searchpath=") for line in overrides):
        return list(overrides)
    if not added.is_dir():
        raise UserError(f"--config-dir: there is no folder {added}")
    address = QuotedString(f"file://{added.resolve()}", Quote.single).with_quotes()
    return [*overrides, f"hydra.searchpath=[{address}]"]


def as_meant(line: str) -> str:
    """Quote each text of an override that Hydra's grammar requires in quotes: ``dataset.separator=;``.

    ``~/`` at the start of a value is the home folder, as in a shell. Commas separate the values of a sweep. Raises
    UserError for a text that is no override, and for an open list, mapping or quoted text.
    """
    line = re.sub("(?<=[=,])~/", lambda _: f"{Path.home()}/", line)
    key, equals, value = line.partition("=")
    if key and _is_valid(line):
        return line
    if not key or not equals or not _is_valid(f"{key}=x"):
        raise UserError(f"{line!r} is not an override: write KEY=VALUE")
    return f"{key}=" + ",".join(
        part if _is_valid(f"{key}={part}") else _quoted(line, key, part) for part in _parts(value)
    )


def _is_valid(line: str) -> bool:
    try:
        OverridesParser.create().parse_overrides([line])
    except OverrideParseException:
        return False
    return True


def _parts(value: str) -> list[str]:
    """Split the value of an override in a sweep at commas outside brackets."""
    values, depth = [""], 0
    for character in value:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth <= 0:
            values.append("")
        else:
            values[-1] += character
    return values


def _quoted(line: str, key: str, text: str) -> str:
    text = text.strip()
    if text[:1] in _CLOSING:
        if text[-1] in ":,":
            whole = shlex.quote(f"{line} …{_CLOSING[text[0]]}")
            raise UserError(f"the shell split {line!r} at a space: put the whole setting in quotes, {whole}")
        inside = ", and strings with special characters inside need quotes" if text[0] in "[{" else ""
        quoted = QuotedString(line.partition("=")[2], Quote.double).with_quotes()
        raise UserError(
            f"{line!r} cannot be read: a value that starts with {text[0]} must end with "
            f"{_CLOSING[text[0]]}{inside}; if it is a single string, write {shlex.quote(f'{key}={quoted}')}"
        )
    return QuotedString(text, Quote.single).with_quotes()


def jobs(overrides: Sequence[str]) -> Iterator[tuple[list[str], Config]]:
    """Yield each job of a sweep: the overrides that distinguish it, and its configuration. A run is one job.

    ``overrides`` are checked ones (:func:`checked_overrides`).
    """
    all_overrides = OverridesParser.create().parse_overrides(list(overrides))
    parsed = [each for each in all_overrides if not _is_hydra(each)]
    searchpath = [str(each.input_line) for each in all_overrides if _is_searchpath(each)]
    with _hydra(CONF):
        for lines in itertools.product(*map(_lines_of_jobs, parsed)):
            differing = [line for line, each in zip(lines, parsed, strict=True) if each.is_sweep_override()]
            yield differing, to_config(_without_hydra(_compose([*searchpath, *lines])))


@contextmanager
def _hydra(folder: Path) -> Iterator[None]:
    """Initialise Hydra with a folder of options; other threads wait."""
    with _COMPOSING, hydra.initialize_config_dir(str(folder), job_name="run", version_base="1.3"):
        yield


def _compose(overrides: Sequence[str], chosen: Callable[[], DictConfig] | None = None) -> DictConfig:
    """Compose the configuration from overrides; ``chosen`` gives the settings of the chosen options for errors."""
    try:
        composed = hydra.compose("config", list(overrides), return_hydra_config=True)
    except MissingConfigException as problem:
        raise UserError(_unknown_option(str(problem), overrides)) from problem
    except (ConfigCompositionException, OmegaConfBaseException) as problem:
        raise UserError(composition_error(problem, chosen and chosen())) from problem
    except (HydraException, ValueError, YAMLError) as problem:
        raise UserError(composition_error(problem)) from problem
    for path in leave_out_unchosen(composed):
        group, _, name = path.partition(".")
        for key in (line.partition("=")[0].lstrip("+") for line in overrides):
            if key == path or key.startswith(f"{path}."):
                raise UserError(not_chosen(key, group, name, [str(each) for each in composed[group]]))
    return composed


def _without_hydra(with_hydra: DictConfig) -> DictConfig:
    """Return a copy of a composed configuration without Hydra's own settings."""
    composed = copy.deepcopy(with_hydra)
    with open_dict(composed):
        del composed["hydra"]
    return composed


def _of_group(lines: Sequence[str]) -> list[str]:
    """Make the override ``rewriter.model=NAME``, and ``grader.model=NAME`` of a judge, choose an option of the group
    model, unless it is ``null``.
    """
    keys = ["rewriter.model", *(["grader.model"] if "grader=judge" in lines else [])]
    lines_of_group = []
    for line in lines:
        key, _, value = line.lstrip("+").partition("=")
        lines_of_group.append(f"model@{key}={value}" if key in keys and value != "null" else line)
    return lines_of_group


def _chooses(override: Override) -> bool:
    """Return True if an override chooses an option of a group instead of setting a value."""
    return not _is_hydra(override) and (CONF / str(override.key_or_group)).is_dir()


def _is_hydra(override: Override) -> bool:
    return str(override.key_or_group).split("/")[0].split(".")[0] == "hydra"


def _is_searchpath(override: Override) -> bool:
    """Return True if an override names further folders of options."""
    return str(override.key_or_group) == "hydra.searchpath"


def _folders(overrides: Sequence[Override]) -> list[Path]:
    """Return the folders of options that overrides choose from: that of the package, and those of a search path."""
    values = [each.value() for each in overrides if _is_searchpath(each)]
    addresses = [str(address) for value in values if isinstance(value, list) for address in value]
    return [CONF, *(Path(address.removeprefix("file://")) for address in addresses)]


def _refuse_kind(override: Override) -> None:
    """Raise UserError for an override that Hydra reads and robust_eval does not support."""
    line, key, value = str(override.input_line), str(override.key_or_group), override.value()
    if key in ("hydra", "schema"):
        raise UserError(no_setting(key, key, [entry.name for entry in fields(Schema)], ""))
    if isinstance(value, Glob) or override.is_interval_sweep():
        raise UserError(f"{line}: a sweep needs explicit values, {key}=A,B, or range(FIRST,LAST)")
    if _is_searchpath(override):
        if not isinstance(value, list):
            raise UserError(f"{key} must be a list of folders, such as [file:///home/me/conf], not {value}")
        if missing := [each for each in _folders([override])[1:] if ":" not in str(each) and not each.is_dir()]:
            raise UserError(f"{key}: there is no folder {missing[0]}")
    if override.is_delete() and not _is_hydra(override):
        group, _, name = key.partition(".")
        if group not in COMBINABLE_GROUPS or not name or "." in name:
            raise UserError(f"{line}: a setting cannot be removed: change it with {key}=…")
    elif _chooses(override):
        if value is None:
            raise UserError(f"{key} must be {enumerated(options(key))}, not null")
        if isinstance(value, list) and key not in COMBINABLE_GROUPS:
            raise UserError(f"{key} takes one option, not {line!r}")
        for name in chain(*(each if isinstance(each, list) else [each] for each in _values(override))):
            if not isinstance(name, str | QuotedString | dict):
                raise UserError(no_option(key, str(name)))


def _lines_of_jobs(override: Override, line: str | None = None) -> list[str]:
    """Return an override with each of its values in a sweep; one line without a sweep."""
    line = str(override.input_line) if line is None else line
    if not override.is_sweep_override():
        return [line]
    return [f"{line.partition('=')[0]}={value}" for value in override.sweep_string_iterator()]


def _variants(lines_of_jobs: Sequence[Sequence[str]]) -> Iterator[list[str]]:
    """Yield the overrides of the first job, then these with each other value of each sweep."""
    first = [lines[0] for lines in lines_of_jobs]
    yield first
    for place, lines in enumerate(lines_of_jobs):
        for line in lines[1:]:
            yield [*first[:place], line, *first[place + 1 :]]


def _values(override: Override) -> Iterator[Any]:
    """Yield the values of an override, each of a sweep."""
    yield from override.sweep_iterator() if override.is_sweep_override() else [override.value()]


def _expanded(override: Override, chosen: Callable[[], DictConfig]) -> str:
    """Insert the omitted name of an option. Composing ``chosen`` takes a tenth of a second, so only where needed."""
    line = str(override.input_line)
    group, _, rest = str(override.key_or_group).partition(".")
    setting = rest.split(".")[0]
    if group in COMBINABLE_GROUPS and rest and setting not in SCHEMAS[group] and setting not in chosen()[group]:
        options = chosen()[group]
        having = list(options) if len(options) == 1 else [name for name in options if setting in options[name]]
        if len(having) == 1:
            return line.replace(f"{group}.", f"{group}.{having[0]}.", 1)
    return line


def _unknown_option(message: str, overrides: Sequence[str]) -> str:
    """Turn Hydra's message about a missing option, which an override names, into a sentence with the nearest one."""
    missing = re.search(r"Could not (?:find|load) '([^']+)'", message)
    if not missing:
        return message.strip().splitlines()[0]
    path = missing.group(1)
    if path.startswith("hydra/"):
        group, _, name = path.rpartition("/")
        return no_option(group, name, re.findall(r"^\t(\S+)$", message, re.MULTILINE))
    group, _, name = path.partition("/")
    if group == "schema":
        return f"no class is registered for {name.replace('/', '=')}: add it to robust_eval/config/schema.py"
    override = next((line for line in overrides if line.endswith(f"={name}") and line.startswith(f"{group}@")), group)
    return no_option(group, name, setting=override.partition("=")[0].removeprefix(f"{group}@"))


def offer(value: str, folders: Sequence[Path]) -> None:
    """Make a file, or a folder of files, an option of the group ``dataset``, if an override's ``value`` is its path.

    The option is ``dataset=local``, or ``dataset=jsonl`` for a file in our layout, with the path, and with the file's
    name as its name. An option of the same name in the ``folders`` takes precedence. UserError if the value must be a
    path, and there is no such file.
    """
    names = [file.stem for folder in folders for file in Path(folder, "dataset").glob("*.yaml")]
    path = Path(value)
    if value in names:
        return
    if path.exists():
        reader = "jsonl" if path.suffix.lower() == ".jsonl" and path.is_file() and is_native(path) else "local"
        *parents, last = filter(None, f"dataset/{value}".split("/"))
        ConfigStore.instance().store(
            group="/".join(parents),
            name=last,
            node={
                "defaults": [f"/dataset/{reader}@_here_", "_self_"],
                "path": value,
                "name": path.resolve().name if path.is_dir() else path.stem,
            },
        )
    elif path.suffix.lower() in KINDS:
        siblings = path.parent.iterdir() if path.parent.is_dir() else ()
        names += [str(file) for file in siblings if file.suffix.lower() in KINDS]
        raise UserError(f"there is no file or data set {value}{nearest(value, names)}")


def without_slash(line: str) -> str:
    """Return the override ``dataset=folder/`` without its final slash, which would hide the option from Hydra."""
    return line.rstrip("/") if line.startswith("dataset=") else line
