"""Overrides from the command line, checked before anything is loaded: one sentence with the nearest right name."""

import itertools
import math
import re
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import hydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from robust_eval.config.config import Config
from robust_eval.config.objects import nearest, no_setting, to_config
from robust_eval.config.schema import CONF
from robust_eval.config.shell_signs import hint
from robust_eval.error import UserError, first_line
from robust_eval.record.settings import SEVERAL

_CLOSING = {"[": "]", "{": "}", "'": "'", '"': '"'}
"""What ends a value that begins so, in Hydra's grammar."""


class Checked(NamedTuple):
    """A command line that was checked.

    ``overrides`` has shorthands spelt out. ``config`` is the configuration of its last job. ``swept`` holds the
    overrides that differ between the ``jobs`` of a sweep.
    """

    overrides: list[str]
    config: Config
    swept: list[str]
    jobs: int


def checked_overrides(overrides: Sequence[str]) -> Checked:
    """Compose and check the configuration that these overrides ask for, before anything is loaded or written.

    The name of an option may be left out where only one chosen option has the setting: ``sampler.trials=20`` is
    ``sampler.temperature_sweep.trials=20``. Quotes may be left out, too (:func:`as_meant`). Each value of a sweep is
    checked by itself. Options may stand in folders of one's own (``hydra.searchpath``). Raises UserError with what is
    wrong and the nearest right name, and how to quote what a shell seems to have taken away.
    """
    try:
        return _checked(overrides)
    except UserError as problem:
        if said := hint(overrides, str(problem)):
            raise UserError(f"{problem}; {said}") from problem
        raise


def _checked(overrides: Sequence[str]) -> Checked:
    parsed = OverridesParser.create().parse_overrides([_of_group(as_meant(line)) for line in overrides])
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        choices = [override for override in parsed if _chooses(override)]
        for override in choices:
            if override.value() is None and not override.is_delete():
                known = ", ".join(options(str(override.key_or_group)))
                raise UserError(f"{override.key_or_group} must be one of {known}, not null")
            if isinstance(override.value(), list) and override.key_or_group not in SEVERAL:
                raise UserError(f"{override.key_or_group} takes one option, not {override.input_line!r}")
        settings = [override for override in parsed if override not in choices and not _is_hydra(override)]
        elsewhere = [str(override.input_line) for override in parsed if _is_searchpath(override)]
        chosen = _compose([*elsewhere, *(_first(override) for override in choices)])
        expanded = {id(override): _expanded(override, chosen) for override in settings}
        single = [_first(override) for override in choices]
        single += [_first(override, expanded[id(override)]) for override in settings]
        for variant in _variants([*choices, *settings], single, expanded):
            config = to_config(_compose([*elsewhere, *variant], chosen))
    _check_writable(Path(config.paths.mlruns))
    lines = [expanded.get(id(override), str(override.input_line)) for override in parsed]
    sweeps = [override.is_sweep_override() and not _is_hydra(override) for override in parsed]
    swept = [line for line, sweep in zip(lines, sweeps, strict=True) if sweep]
    values = [len(list(o.sweep_string_iterator())) for o, sweep in zip(parsed, sweeps, strict=True) if sweep]
    return Checked(lines, config, swept, math.prod(values))


def as_meant(line: str) -> str:
    """Quote each text of an override that Hydra's grammar does not take without quotes: ``dataset.separator=;``.

    Commas separate the values of a sweep, as always. Raises UserError for what is not an override, and for a list, a
    mapping or a quoted text that is not closed.
    """
    key, equals, value = line.partition("=")
    if key and _is_read(line):
        return line
    if not key or not equals or not _is_read(f"{key}=x"):
        raise UserError(f"{line!r} is no override: write KEY=VALUE")
    return f"{key}=" + ",".join(
        part if _is_read(f"{key}={part}") else _quoted(line, key, part) for part in _parts(value)
    )


def _is_read(line: str) -> bool:
    try:
        OverridesParser.create().parse_overrides([line])
    except OverrideParseException:
        return False
    return True


def _parts(value: str) -> list[str]:
    """Split the values of a sweep at commas that do not stand in brackets."""
    parts, depth = [""], 0
    for character in value:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _quoted(line: str, key: str, text: str) -> str:
    text = text.strip()
    if text[:1] in _CLOSING:
        inside = ", and a text in it that holds other signs needs quotes" if text[0] in "[{" else ""
        whole = QuotedString(line.partition("=")[2], Quote.double).with_quotes()
        raise UserError(
            f"{line!r} cannot be read: what begins with {text[0]} must end with {_CLOSING[text[0]]}{inside}; if all of "
            f"it is one text, write {shlex.quote(f'{key}={whole}')}"
        )
    return QuotedString(text, Quote.single).with_quotes()


def jobs(overrides: Sequence[str]) -> Iterator[tuple[list[str], Config]]:
    """Yield each job of a sweep: the overrides that tell it from the others, and its configuration. A run is one job.

    ``overrides`` are those that :func:`checked_overrides` has checked.
    """
    whole = OverridesParser.create().parse_overrides(list(overrides))
    parsed = [each for each in whole if not _is_hydra(each)]
    elsewhere = [str(each.input_line) for each in whole if _is_searchpath(each)]
    values = [
        [f"{each.key_or_group}={value}" for value in each.sweep_string_iterator()]
        if each.is_sweep_override()
        else [str(each.input_line)]
        for each in parsed
    ]
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        for lines in itertools.product(*values):
            telling = [line for line, each in zip(lines, parsed, strict=True) if each.is_sweep_override()]
            yield telling, to_config(_compose([*elsewhere, *lines]))


def _compose(overrides: Sequence[str], chosen: DictConfig | None = None) -> DictConfig:
    try:
        return hydra.compose("config", list(overrides))
    except MissingConfigException as problem:
        raise UserError(_unknown_option(str(problem))) from problem
    except (ConfigCompositionException, OmegaConfBaseException) as problem:
        if "sampler/exact" in str(problem):  # which sets the number format of the model
            raise UserError(
                "sampler=exact reads all probabilities of a model, and so needs one that is loaded here: choose "
                "another model, or another sampler"
            ) from problem
        raise UserError(_wrong_override(problem, chosen)) from problem
    except (HydraException, ValueError) as problem:
        raise UserError(first_line(problem)) from problem


def _of_group(line: str) -> str:
    """Make ``rewriter.model=NAME`` choose an option of the group model; ``null`` is not one of them."""
    plain = line.lstrip("+")
    return f"model@{plain}" if plain.startswith("rewriter.model=") and plain != "rewriter.model=null" else line


def _chooses(override: Override) -> bool:
    """Return whether an override chooses an option of a group instead of setting a value."""
    return not _is_hydra(override) and (CONF / str(override.key_or_group)).is_dir()


def _is_hydra(override: Override) -> bool:
    return str(override.key_or_group).split("/")[0].split(".")[0] == "hydra"


def _is_searchpath(override: Override) -> bool:
    """Return whether an override names other folders that hold options."""
    return str(override.key_or_group) == "hydra.searchpath"


def _first(override: Override, line: str | None = None) -> str:
    """Return the override itself, or the one that the first job of a sweep has."""
    text = line if line is not None else str(override.input_line)
    if not override.is_sweep_override():
        return text
    return f"{text.split('=', 1)[0]}={next(iter(override.sweep_string_iterator()))}"


def _variants(overrides: Sequence[Override], single: list[str], expanded: dict[int, str]) -> Iterator[list[str]]:
    """Yield the overrides of the first job, and then those overrides with each other value of each sweep."""
    yield single
    for index, override in enumerate(overrides):
        if override.is_sweep_override():
            key = expanded.get(id(override), str(override.input_line)).split("=", 1)[0]
            for value in list(override.sweep_string_iterator())[1:]:
                yield [*single[:index], f"{key}={value}", *single[index + 1 :]]


def _expanded(override: Override, chosen: DictConfig) -> str:
    line = str(override.input_line)
    group, _, rest = str(override.key_or_group).partition(".")
    setting = rest.split(".")[0]
    if group in SEVERAL and rest and setting not in chosen[group]:
        options = list(chosen[group])
        having = options if len(options) == 1 else [name for name in options if setting in chosen[group][name]]
        if len(having) == 1:
            return line.replace(f"{group}.", f"{group}.{having[0]}.", 1)
    return line


def _unknown_option(message: str) -> str:
    """Turn Hydra's message about an option that does not exist into a sentence that names the nearest one."""
    missing = re.search(r"Could not (?:find|load) '([^']+)'", message)
    if not missing:
        return message.strip().splitlines()[0]
    group, _, name = missing.group(1).rpartition("/")
    return no_option(group, name)


def no_option(group: str, name: str) -> str:
    """Say that a group has no such option, and which options it has."""
    known = options(group)
    return f"there is no {group}={name}{nearest(name, known)}; there are {', '.join(known)}"


def options(group: str) -> list[str]:
    """Return the names of the options of a group, sorted."""
    return sorted(file.stem for file in (CONF / group).glob("*.yaml"))


def _wrong_override(problem: Exception, chosen: DictConfig | None) -> str:
    """Turn Hydra's message about an unknown key or a value of the wrong type into a sentence."""
    key = re.search(r"Could not override '([^']+)'", str(problem))
    if key and "@" in key.group(1):
        setting = key.group(1).partition("@")[2]
        return f"there is no {setting} to choose: {setting.partition('.')[0]} has an option that asks no model"
    if key and chosen is not None:
        node: Any = chosen
        parts = key.group(1).split(".")
        for depth, part in enumerate(parts):
            known = [str(name) for name in node] if isinstance(node, DictConfig) else []
            if part not in known:
                return no_setting(key.group(1), part, known, ".".join(parts[:depth]))
            node = node[part]
    cause = problem.__cause__
    named = re.search(r"override (\S+)", str(problem))
    what = f"{named.group(1)}: " if named else ""
    return what + first_line(cause if cause is not None else problem)


def _check_writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as problem:
        raise UserError(
            f"paths.mlruns: nothing can be written to {folder} ({problem.strerror}); choose another folder"
        ) from problem
