"""Sentences for the errors of Hydra and OmegaConf: the setting, its value, and the fix."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    MissingMandatoryValue,
    OmegaConfBaseException,
)

from robust_eval.config.groups import options
from robust_eval.error import first_line
from robust_eval.runtime.registry import COMBINABLE_GROUPS
from robust_eval.runtime.text import enumerated, nearest

RENAMED = {
    "key_variable": "api_key_env",
    "at_once": "max_concurrency",
    "request_seconds": "timeout",
    "answer_seconds": "total_timeout",
    "answers_at_once": "batch_size",
    "max_unusable": "max_invalid_fraction",
    "ask": "early_stop",
    "whole_answers": "stop_on_match, which has the opposite meaning",
    "pressures": "pushbacks",
    "most_megabytes": "max_size_mb",
    "until": "target_half_width",
}
"""New names of settings."""
_SENTENCES = {
    r"(?:Ambiguous value for argument|Sweep parameters) '([^']+)'": "{0} has several values: name one",
    r"Could not append to config. An item is already at '([^']+)'": "{0} already has a value: write {0}=…, without +",
    r"Multiple values for ([^.]+)\.": "{0} is already chosen: write {0}=…, without +",
    r"Could not delete (?:from config. )?'([^']+)'": "~{0}: there is no setting of this name to remove",
}
"""Sentences for messages of Hydra that name one setting."""
_VALUES = {
    r"Value '(.*)' of type '\w+' could not be converted to Integer": "must be a whole number, not {0}",
    r"Value '(.*)' of type '\w+' could not be converted to Float": "must be a number, not {0}",
    r"Value '(.*)' is not a valid bool": "must be true or false, not {0}",
    r"Invalid type assigned: \w+ is not a subclass of \w+\. value: (.*)": "is a group of settings, not {0}",
    r"Cannot convert '\w+' to string: '(.*)'": "must be a string, not {0}",
    r"is not a ListConfig, list or tuple|Cannot merge DictConfig with ListConfig()": "must be a list such as [A,B]",
    r"Environment variable '(.*)' not found": "names the environment variable {0}, which is not set",
    r"env\(\) missing 1 required()": "names no environment variable: write ${{oc.env:NAME}}",
    r"Unsupported interpolation type env()": "must name an environment variable as ${{oc.env:NAME}}",
    r"Interpolation key '(.*)' not found": "refers to {0}, which does not exist",
    r"Recursive interpolation()": "must not refer to itself",
    r"Merge error: \w+ is not a subclass of \w+\. value: (.*)": "must be a mapping of settings, not {0}",
}
"""Sentences for messages of OmegaConf about a value."""
_KINDS: dict[Any, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}
"""Names of the types of settings."""
_COMMANDS = ("experiment", "dry_run", "cancel_batches", "repeat")
"""Names on the command line, besides the settings of a run."""


def composition_error(problem: Exception, chosen: DictConfig | None = None) -> str:
    """Return one sentence for an error of Hydra's composition; ``chosen`` holds the settings of the chosen options."""
    if isinstance(problem, OmegaConfBaseException):
        return _refused(problem)
    if isinstance(problem, yaml.MarkedYAMLError) and problem.problem_mark is not None:
        mark = problem.problem_mark
        return f"{mark.name}, line {mark.line + 1}: {problem.problem}"
    if isinstance(problem, UnicodeDecodeError):
        return f"a file of options is not UTF-8: {problem.reason} at byte {problem.start}"
    message, cause = str(problem), problem.__cause__ or problem.__context__
    cause = cause if isinstance(cause, OmegaConfBaseException) else None
    if key := re.match(r"Could not override '([^']+)'", message):
        return _no_such(key[1], chosen) or (_refused(cause) if cause else first_line(problem))
    if override := re.match(r"Error merging override (.*)", message, re.DOTALL):
        return _refused(cause, override[1]) if cause else f"{override[1]}: {first_line(problem)}"
    if cause and (file := re.match(r"In '(\w+)/([^']+)'", message)):
        return f"{file[1]}={file[2]}: {_refused(cause)}"
    if file := re.match(r"In '(\w+)/([^']+)': Could not override '([^']+)'. No match", message):
        return f"{file[1]}={file[2]}: its defaults override {file[3]}, which is not a group of options"
    for pattern, sentence in _SENTENCES.items():
        if match := re.match(pattern, message):
            return sentence.format(match[1])
    return first_line(problem)


def no_setting(key: str, name: str, settings: Sequence[str], where: str) -> str:
    """Return the error that a setting does not exist, with the existing ones; for a renamed one, its new name."""
    if (renamed := RENAMED.get(name, "")).partition(",")[0] in settings:
        return f"{key} is now {key.removesuffix(name)}{renamed}"
    holder = f"{where} has" if where else "settings are"
    settings = settings if where else [*settings, *_COMMANDS]
    return f"there is no setting {key}{nearest(name, settings, where)}; {holder} {', '.join(settings) or 'no settings'}"


def not_chosen(key: str, group: str, name: str, chosen: Sequence[str]) -> str:
    """Return the error that a setting belongs to an option of a group that is not among the ``chosen`` ones."""
    return f"{key} cannot be set, because {group}={name} is not chosen: set {group}=[{','.join([*chosen, name])}]"


def _no_such(key: str, chosen: DictConfig | None) -> str:
    """Return an error sentence on the missing part of a key; empty if the key exists, or the options are unknown."""
    if "@" in key:
        return "the chosen rewriter uses no model: to set rewriter.model, also set rewriter=llm"
    node: object = chosen
    path = key.split(".") if chosen is not None else []
    for depth, part in enumerate(path):
        names = [str(name) for name in node] if isinstance(node, DictConfig) else []
        where = ".".join(path[:depth])
        if part not in names:
            if where.endswith(".model") and not names:
                return f"{key} can be set only after a model is chosen: add {where}=NAME"
            if where in COMBINABLE_GROUPS and part in options(where):
                return not_chosen(key, where, part, names)
            one_deep = path[depth:] == [part] and (not where or where in COMBINABLE_GROUPS)
            if one_deep and (keys := list(_keys(node, part, f"{where}." if where else ""))):
                return f"there is no setting {key}: write {enumerated(keys)}"
            return no_setting(key, part, [name for name in names if name != "hydra"], where)
        node = node[part] if isinstance(node, DictConfig) else None
    return ""


def _keys(node: object, name: str, path: str) -> Iterator[str]:
    """Yield the keys of all settings of this name inside a node of the configuration."""
    for each, child in node.items_ex(resolve=False) if isinstance(node, DictConfig) else ():
        if each == name:
            yield f"{path}{name}"
        elif each != "hydra":
            yield from _keys(child, name, f"{path}{each!s}.")


def _refused(problem: OmegaConfBaseException, override: str = "") -> str:
    """Return a sentence on the setting that OmegaConf refuses, with its message about the value or the override."""
    key, parent = problem.full_key or "", problem.parent_node
    where, _, name = key.rpartition(".")
    changed, _, value = override.partition("=")
    types = {each.name: each.type for each in fields(problem.object_type)} if is_dataclass(problem.object_type) else {}
    if key and changed.startswith(f"{key}."):
        suggestion = nearest(changed.removeprefix(f"{key}."), list(types), where)
        return f"{key} is a single value, not a group of settings: there is no {changed}{suggestion}"
    if "is not Optional" in str(problem):
        return f"{key} must be {_KINDS.get(types.get(name), 'set')}, not null"
    if isinstance(problem, ConfigKeyError | ConfigAttributeError) and isinstance(parent, DictConfig):
        schema = OmegaConf.get_type(parent)
        names = [each.name for each in fields(schema)] if is_dataclass(schema) else [str(each) for each in parent]
        if name not in names:
            return no_setting(key, name, names, where)
    if isinstance(problem, MissingMandatoryValue | ConfigKeyError | ConfigAttributeError):
        return f"{key} must be given: add {key}=…"
    for pattern, sentence in _VALUES.items():
        if match := re.search(pattern, str(problem)):
            refused = f", not {value}" if value and not match[1] else ""
            return f"{key} {sentence.format(*match.groups())}{refused}".lstrip()
    return f"{key}: {first_line(problem)}".removeprefix(": ")


def no_option(group: str, name: str, names: Sequence[str] | None = None, setting: str = "") -> str:
    """Return the sentence that a group has no such option, with its options; ``setting`` chooses one of the group."""
    names = options(group) if names is None else names
    return f"there is no {setting or group}={name}{nearest(name, names)}; options are {', '.join(names)}"
