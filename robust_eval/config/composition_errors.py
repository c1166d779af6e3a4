"""Sentences for what Hydra and OmegaConf refuse: the setting, its value, and what it takes."""

import difflib
import re
import types
import typing
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from enum import Enum

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    InterpolationKeyError,
    InterpolationResolutionError,
    InterpolationValidationError,
    MissingMandatoryValue,
    OmegaConfBaseException,
    UnsupportedInterpolationType,
)

from robust_eval.error import first_line

_PLAIN = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
_SEVERAL = {int: "whole numbers", float: "numbers", bool: "values true or false", str: "texts"}


def composition_error(problem: Exception, chosen: DictConfig | None = None) -> str:
    """Return one sentence about what cannot be composed; ``chosen`` has the settings of the options that are chosen."""
    if isinstance(problem, OmegaConfBaseException):
        return _refused(problem)
    if isinstance(problem, yaml.MarkedYAMLError) and problem.problem_mark is not None:
        place = problem.problem_mark
        return f"{place.name}, line {place.line + 1}: {problem.problem}"
    if isinstance(problem, UnicodeDecodeError):
        return f"a file of options is not UTF-8: {problem.reason} at byte {problem.start}"
    said = str(problem)
    cause = problem.__cause__ or problem.__context__
    if not isinstance(cause, OmegaConfBaseException):
        cause = None
    if key := re.match(r"Could not override '([^']+)'", said):
        return _no_such(key[1], chosen) or (_refused(cause) if cause else first_line(problem))
    if override := re.match(r"Error merging override (.*)", said, re.DOTALL):
        name, _, value = override[1].lstrip("+~").partition("=")
        if cause is None:
            return f"{override[1]}: {first_line(problem)}"
        if name.startswith(f"{cause.full_key}."):
            return no_setting(name, name.rpartition(".")[2], [], str(cause.full_key))
        return _refused(cause, value)
    if cause and (file := re.match(r"In '(\w+)/([^']+)'", said)):
        return f"{file[1]}={file[2]}: {_refused(cause)}"
    if file := re.match(r"In '(\w+)/([^']+)': Could not override '([^']+)'. No match", said):
        return f"{file[1]}={file[2]}: its defaults override {file[3]}, which is no group of options"
    if line := re.match(r"(?:Ambiguous value for argument|Sweep parameters) '([^']+)'", said):
        return f"{line[1]} has several values: name one"
    if key := re.match(r"Could not append to config. An item is already at '([^']+)'", said):
        return f"{key[1]} has a value: write {key[1]}=…, without the +"
    if key := re.match(r"Multiple values for ([^.]+)\.", said):
        return f"{key[1]} is chosen already: write {key[1]}=…, without the +"
    if key := re.match(r"Could not delete (?:from config. )?'([^']+)'", said):
        return f"~{key[1]}: there is nothing of this name to leave out"
    return first_line(problem)


def no_setting(key: str, name: str, known: Sequence[str], where: str) -> str:
    """Say that a setting does not exist, and which settings do."""
    there = f"{where} has" if where else "there are"
    return f"there is no setting {key}{nearest(name, known, where)}; {there} {', '.join(known) or 'no settings'}"


def nearest(name: str, known: Sequence[str], where: str = "") -> str:
    """Return " (did you mean NAME?)" with the known name that is most similar; an empty text where none is."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f" (did you mean {where + '.' if where else ''}{close[0]}?)" if close else ""


def _no_such(key: str, chosen: DictConfig | None) -> str:
    """Say which part of a key does not exist; nothing where all do, or nothing is known of the options."""
    if "@" in key:
        setting = key.partition("@")[2]
        return f"there is no {setting} to choose: {setting.partition('.')[0]} has an option that asks no model"
    node: object = chosen
    parts = key.split(".") if chosen is not None else []
    for depth, part in enumerate(parts):
        known = [str(name) for name in node] if isinstance(node, DictConfig) else []
        if part not in known:
            return no_setting(key, part, [name for name in known if name != "hydra"], ".".join(parts[:depth]))
        node = node[part] if isinstance(node, DictConfig) else None
    return ""


def _refused(problem: OmegaConfBaseException, written: str = "") -> str:
    """Say what OmegaConf refuses; ``written`` is the value as it stands on the command line."""
    key, said = problem.full_key or "", first_line(problem)
    where, _, name = key.rpartition(".")
    parent = problem.parent_node
    match problem:
        case MissingMandatoryValue():
            return f"{key} must be given: add {key}=…"
        case InterpolationKeyError() if missing := re.search(r"key '([^']+)' not found", said):
            return f"{key}: there is no setting {missing[1]} to take its value from"
        case UnsupportedInterpolationType():
            return f"{key}: {said.rpartition(' ')[2]} is no resolver, from which ${{…}} could take a value"
        case InterpolationValidationError() if source := re.search(r"'(\$\{[^']*\})'", said):
            return f"{key} must be {_kind(problem)}, which {source[1]} is not"
        case InterpolationResolutionError():
            if variable := re.search(r"Environment variable '([^']+)' not found", said):
                return f"{key}: the environment variable {variable[1]} is not set"
            if "Recursive" in said:
                return f"{key} takes its value from itself"
            return f"{key}: the value of ${{…}} cannot be found ({said.partition('interpolation: ')[2]})"
        case ConfigKeyError() | ConfigAttributeError() if isinstance(parent, DictConfig):
            schema = OmegaConf.get_type(parent)
            known = [each.name for each in fields(schema)] if is_dataclass(schema) else [str(each) for each in parent]
            return f"{key} must be given: add {key}=…" if name in known else no_setting(key, name, known, where)
    if "does not support deletion" in said:
        return f"{key} cannot be left out: write {key}=… to change it"
    if merged := re.search(r"is not a subclass of .*value: (.*)", said):
        return f"{key or 'the settings of an option'} must be a mapping of settings, not {merged[1]}"
    if kind := _kind(problem):
        value = problem.value if isinstance(problem.key, int) or not written else written
        shown = "null" if value is None else str(value).lower() if isinstance(value, bool) else value
        return f"{key} must be {kind}, not {'empty' if shown == '' else shown}"
    return f"{key}: {said}".removeprefix(": ")


def _kind(problem: OmegaConfBaseException) -> str:
    """Return what a setting takes, in words; nothing where its schema leaves it open."""
    parent = problem.parent_node
    schema = OmegaConf.get_type(parent) if isinstance(parent, DictConfig) else None
    name = (problem.full_key or "").rpartition(".")[2]
    if is_dataclass(schema):
        return _in_words(typing.get_type_hints(schema).get(name))
    wanted = problem.ref_type
    if isinstance(problem.key, int) and typing.get_args(wanted):
        wanted = typing.get_args(wanted)[0]
    return "" if name in ("sampler", "metric") else _in_words(wanted)


def _in_words(wanted: object) -> str:
    within = typing.get_args(wanted)
    if isinstance(wanted, types.UnionType) or typing.get_origin(wanted) is typing.Union:
        words = [_in_words(each) for each in within if each is not type(None)]
        return " or ".join([*words, *(["null"] if type(None) in within else [])]) if all(words) else ""
    if typing.get_origin(wanted) is list:
        return f"a list{f' of {_SEVERAL[within[0]]}' if within[0] in _SEVERAL else ''}, in brackets [ ]"
    if typing.get_origin(wanted) is dict or wanted is dict:
        return "a mapping, in braces { }"
    if isinstance(wanted, type) and issubclass(wanted, Enum):
        return f"one of {', '.join(each.name for each in wanted)}"
    if is_dataclass(wanted):
        return f"a mapping of {', '.join(each.name for each in fields(wanted))}"
    return _PLAIN.get(wanted, "") if isinstance(wanted, type) else ""
