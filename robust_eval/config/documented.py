"""Documentation of groups and options, from the files under conf/, and of settings, from the docstrings of classes."""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import hydra
import yaml
from omegaconf import DictConfig, OmegaConf

from robust_eval.config.overrides import own_folder, with_own_options
from robust_eval.config.schema import CONF, SCHEMAS, Schema
from robust_eval.error import UserError, first_line
from robust_eval.tracking.flat_settings import SEVERAL, flat

NEEDED = "…"
"""The value of a setting that must be given."""


class OptionGroup(NamedTuple):
    """Purpose of a group, in a few words, and its default options."""

    says: str
    chosen: list[str]


class Setting(NamedTuple):
    """A setting as it is named on the command line, its value, and what it does."""

    name: str
    value: str
    says: str


def groups() -> dict[str, OptionGroup]:
    """Return every group, in the order of conf/config.yaml, which says what each decides."""
    text = (CONF / "config.yaml").read_text(encoding="utf-8")
    comments = _comments(text)
    entries = [entry for entry in yaml.safe_load(text)["defaults"] if isinstance(entry, dict)]
    return {
        group: OptionGroup(re.split("[;:,]", comments[f"defaults.{group}"])[0], _names(option))
        for entry in entries
        for group, option in entry.items()
        if not group.startswith("override ")
    }


def description(group: str, option: str) -> list[str]:
    """Return the lines that open the file of an option; where it has no file, what its class says."""
    files, schema = _chain(group, option)
    if files:
        lines = takewhile(lambda line: line.startswith("#"), files[0].read_text(encoding="utf-8").splitlines())
        return [line.removeprefix("#").removeprefix(" ") for line in lines if not line.startswith("# @package")]
    docstring = inspect.getdoc(schema) or ""
    generated = f"{schema.__name__}(" if schema is not None else ""  # of a dataclass without a docstring
    return [] if generated and docstring.startswith(generated) else docstring.split("\n\n")[0].splitlines()


def sentence(lines: list[str]) -> str:
    """Return the first sentence of a description, without the example that follows it and without its full stop."""
    words = " ".join(takewhile(lambda line: not line.startswith(" "), lines))
    return re.split(r"\. |: python run\.py ", words)[0].rstrip(".:")


def settings(group: str, option: str) -> list[Setting]:
    """Return the settings of an option, with the values that they have when it is chosen.

    Settings of a class are explained by the docstrings under its fields, others by the comments of the file.
    """
    settings_of_class = []
    if group in SCHEMAS:
        with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
            node = hydra.compose("config", with_own_options([f"{group}={option}"]))[group]
        place = f"{group}.{option}" if group in SEVERAL else group
        settings_of_class = list(_settings(node[option] if group in SEVERAL else node, place))
    names = {setting.name for setting in settings_of_class}
    files, _ = _chain(group, option)
    for file in files[:1]:
        text = file.read_text(encoding="utf-8")
        place, comments = _package(text, group), _comments(text)
        written = flat({key: value for key, value in _whole(file).items() if key != "defaults"})
        more = {key: value for key, value in written.items() if key and f"{place}{key}" not in names}
        settings_of_class += [
            Setting(f"{place}{key}", _shown(value), comments.get(key, "")) for key, value in more.items()
        ]
    return settings_of_class


def choices(group: str, option: str) -> dict[str, list[str]]:
    """Return the options of other groups that the file of an option chooses."""
    files, _ = _chain(group, option)
    overridden = {}
    for entry in _defaults(files[0]) if files else []:
        for key, value in entry.items() if isinstance(entry, dict) else ():
            if key.startswith("override /"):
                overridden[key.removeprefix("override /").partition("@")[0]] = _names(value)
    return overridden


def names(group: str, option: str) -> list[str]:
    """Return the names of the settings of an option, as its class has them, without that of the group."""
    _, schema = _chain(group, option)
    return list(_fields(OmegaConf.structured(schema))) if schema is not None else []


def other_names() -> list[str]:
    """Return the names of the settings that belong to no group."""
    group_names = groups()
    return [name for name in _fields(OmegaConf.structured(Schema)) if name not in group_names]


def sources() -> list[Path]:
    """Return the files and folders that all of this is read from."""
    places = [folder / group for folder in (CONF, Path("conf").resolve()) for group in groups()]
    read = [CONF / "config.yaml", Path(__file__), *places, *(file for place in places for file in place.glob("*.yaml"))]
    modules = {
        base.__module__ for schemas in SCHEMAS.values() for schema in schemas.values() for base in schema.__mro__
    }
    files = {getattr(sys.modules[name], "__file__", None) for name in modules}
    return read + [Path(file) for file in sorted(filter(None, files))]


def _chain(group: str, option: str) -> tuple[list[Path], Any]:
    """Return the file of an option and those of the options that it begins with, and the class of its settings."""
    folders = filter(None, (CONF, own_folder()))
    file = next((file for folder in folders if (file := folder / group / f"{option}.yaml").is_file()), None)
    if file is None:
        return [], SCHEMAS.get(group, {}).get(option)
    for entry in _defaults(file):
        base = entry.partition("@")[0] if isinstance(entry, str) else "_self_"
        if base.startswith("/schema/"):
            kind, _, name = base.removeprefix("/schema/").partition("/")
            return [file], SCHEMAS.get(kind, {}).get(name)
        if "/" not in base and base not in ("_self_", option):
            files, schema = _chain(group, base)
            return [file, *files], schema
    return [file], None


def _defaults(file: Path) -> list[Any]:
    defaults = _whole(file).get("defaults")
    return defaults if isinstance(defaults, list) else []


def _whole(file: Path) -> dict[str, Any]:
    """Read a file of settings, which may be somebody's own. Raises UserError where it is none."""
    try:
        whole = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as problem:
        raise UserError(f"{file} cannot be read: {first_line(problem)}") from problem
    if not isinstance(whole or {}, dict):
        raise UserError(f"{file} holds no settings, NAME: VALUE")
    return whole or {}


def _package(text: str, group: str) -> str:
    """Return what stands before the names of the settings in a file: that of its group, unless the file says more."""
    header = re.match(r"# @package (\S+)", text)
    return f"{header[1] if header else group}.".removeprefix("_global_.")


def _comments(text: str) -> dict[str, str]:
    """Return the comment behind each setting of a file, with those on the lines below that go on with it."""
    comments: dict[str, str] = {}
    outer: list[tuple[int, str]] = []
    key = ""
    for line in text.splitlines():
        written, _, comment = line.partition("# ")
        if match := re.match(r"( *)(?:- )?(\w+):", written):
            outer = [each for each in outer if each[0] < len(match[1])] + [(len(match[1]), match[2])]
            key = ".".join(name for _, name in outer)
            if comment:
                comments[key] = comment.strip()
        elif key in comments and comment and line.startswith(" ") and not written.strip():
            comments[key] += f" {comment.strip()}"
        else:
            key = ""
    return comments


def _settings(node: DictConfig, place: str) -> Iterator[Setting]:
    schema = OmegaConf.get_type(node)
    docstrings = _docstrings(schema)
    written = OmegaConf.to_container(node, resolve=False)
    assert isinstance(written, dict)
    for name, child in node.items_ex(resolve=False):
        key = f"{place}.{name!s}"
        if isinstance(child, DictConfig) and is_dataclass(OmegaConf.get_type(child)):
            yield from _settings(child, key)
        else:
            yield Setting(key, _shown(written[name]), docstrings.get(str(name), ""))


def _fields(node: DictConfig, place: str = "") -> Iterator[str]:
    for name, child in node.items_ex(resolve=False):
        if isinstance(child, DictConfig) and is_dataclass(OmegaConf.get_type(child)):
            yield from _fields(child, f"{place}{name!s}.")
        else:
            yield f"{place}{name!s}"


def _docstrings(schema: Any) -> dict[str, str]:
    """Return the text under each field of a dataclass and of those that it extends."""
    docstrings = {}
    for each in reversed(inspect.getmro(schema)):
        if not is_dataclass(each) or not fields(each):
            continue
        try:
            (definition,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        except OSError:  # a class that was written in an interpreter or a notebook
            continue
        assert isinstance(definition, ast.ClassDef)
        for entry, below in pairwise(definition.body):
            if isinstance(entry, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(entry.target, ast.Name):
                words = ast.literal_eval(below.value)
                docstrings[entry.target.id] = " ".join(words.split())
    return docstrings


def _names(option: Any) -> list[str]:
    return [] if option is None else [option] if isinstance(option, str) else list(option)


def _shown(value: Any) -> str:
    """Return a value as it is written on the command line."""
    if isinstance(value, str):
        return NEEDED if value == "???" else value
    return str(yaml.safe_dump([value], default_flow_style=True, width=10_000, allow_unicode=True)).strip()[1:-1]
