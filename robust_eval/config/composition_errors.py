"""Sentences for the errors of Hydra and OmegaConf: the setting, its value, and the fix."""

import difflib
import re
from collections.abc import Sequence
from dataclasses import fields, is_dataclass

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    MissingMandatoryValue,
    OmegaConfBaseException,
)

from robust_eval.error import first_line

RENAMED = {
    "key_variable": "api_key_env",
    "at_once": "max_concurrency",
    "request_seconds": "timeout",
    "answer_seconds": "total_timeout",
    "answers_at_once": "batch_size",
    "max_unusable": "max_invalid_fraction",
    "ask": "early_stop",
    "whole_answers": "stop_on_match, true where whole_answers was false",
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
}
"""Sentences for messages of OmegaConf about a value."""


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
        return _refused(cause) if cause else f"{override[1]}: {first_line(problem)}"
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
    return f"there is no setting {key}{nearest(name, settings, where)}; {holder} {', '.join(settings) or 'no settings'}"


def nearest(name: str, names: Sequence[str], where: str = "") -> str:
    """Return " (did you mean NAME?)" with the most similar of the names; empty if none is similar."""
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f" (did you mean {where + '.' if where else ''}{close[0]}?)" if close else ""


def _no_such(key: str, chosen: DictConfig | None) -> str:
    """Return an error sentence on the missing part of a key; empty if the key exists, or the options are unknown."""
    if "@" in key:
        setting = key.partition("@")[2]
        return f"there is no {setting} to choose: the chosen {setting.partition('.')[0]} has no model"
    node: object = chosen
    path = key.split(".") if chosen is not None else []
    for depth, part in enumerate(path):
        names = [str(name) for name in node] if isinstance(node, DictConfig) else []
        if part not in names:
            return no_setting(key, part, [name for name in names if name != "hydra"], ".".join(path[:depth]))
        node = node[part] if isinstance(node, DictConfig) else None
    return ""


def _refused(problem: OmegaConfBaseException) -> str:
    """Return a sentence on the setting that OmegaConf refuses, with its message about the value."""
    key, parent = problem.full_key or "", problem.parent_node
    where, _, name = key.rpartition(".")
    if isinstance(problem, ConfigKeyError | ConfigAttributeError) and isinstance(parent, DictConfig):
        schema = OmegaConf.get_type(parent)
        names = [each.name for each in fields(schema)] if is_dataclass(schema) else [str(each) for each in parent]
        if name not in names:
            return no_setting(key, name, names, where)
    if isinstance(problem, MissingMandatoryValue | ConfigKeyError | ConfigAttributeError):
        return f"{key} must be given: add {key}=…"
    for pattern, sentence in _VALUES.items():
        if match := re.search(pattern, str(problem)):
            return f"{key} {sentence.format(match[1])}"
    return f"{key}: {first_line(problem)}".removeprefix(": ")
