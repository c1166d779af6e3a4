"""Groups and their options, from the files under conf/: importing the classes takes seconds."""

import inspect
import re
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from robust_eval.runtime.registry import REGISTRY

PROJECT = Path(__file__).resolve().parents[2]
"""Folder that contains the package; in a clone also run.py and conf/."""
CONF = next(
    folder for folder in (PROJECT / "robust_eval" / "conf", PROJECT / "conf") if (folder / "config.yaml").is_file()
)
"""Folder of settings files: inside an installed package, at the top of a clone."""
_MAIN = (CONF / "config.yaml").read_text(encoding="utf-8")
UNGROUPED = [name for name in re.findall(r"^(\w+):", _MAIN, re.MULTILINE) if name not in ("defaults", "hydra", "paths")]
"""Settings outside all groups."""


class OptionGroup(NamedTuple):
    """Purpose of a group, in a few words, and its default options."""

    purpose: str
    defaults: list[str]


def _group(purpose: str, default: str) -> OptionGroup:
    return OptionGroup(re.split("[;:,]", purpose)[0], [] if default == "null" else default.strip("[]").split(", "))


GROUPS = {
    name: _group(purpose, default)
    for name, default, purpose in re.findall(r"^  - (\w+): (.*?) +# (.*)", _MAIN, re.MULTILINE)
}
"""The groups of options, in the order of conf/config.yaml."""


def own_folder() -> Path | None:
    """Return ``./conf`` if it holds the user's options: files in folders with the names of groups, or in ``gate``."""
    folder = Path("conf")
    has_options = any(True for group in (*GROUPS, "gate") for _ in (folder / group).glob("*.yaml"))
    return folder if has_options and folder.resolve() != CONF else None


def option_folders() -> list[Path]:
    """Return the folders of options: that of this package, and ``./conf`` with the user's options."""
    return [CONF] if (folder := own_folder()) is None else [CONF, folder]


def options(group: str) -> list[str]:
    """Return the names of the options of a config group: built-in, registered, and in ``./conf``."""
    files = {file.stem for folder in option_folders() for file in (folder / group).glob("*.yaml")}
    return sorted(files | set(REGISTRY.get(group, {})))


def option_text(group: str, option: str) -> str:
    """Return the text of an option's file; empty without one."""
    files = (folder / group / f"{option}.yaml" for folder in option_folders())
    return next((file.read_text(encoding="utf-8", errors="replace") for file in files if file.is_file()), "")


def description(group: str, option: str) -> list[str]:
    """Return the opening comments of an option's file, a paragraph or an indented line each; for a registered class,
    the first paragraph of its docstring.
    """
    if cls := REGISTRY.get(group, {}).get(option):
        docstring = inspect.getdoc(cls) or ""
        return [] if docstring.startswith(f"{cls.__name__}(") else [" ".join(docstring.split("\n\n")[0].split())]
    comments = takewhile(lambda line: line.startswith("#"), option_text(group, option).splitlines())
    lines: list[str] = []
    for line in (comment.removeprefix("#").removeprefix(" ") for comment in comments):
        if lines and lines[-1][:1].strip() and line[:1].strip():
            lines[-1] += f" {line}"
        elif not line.startswith("@package"):
            lines.append(line)
    return lines


def first_sentence(lines: list[str]) -> str:
    """Return the first sentence of an option's description, without its example and its full stop."""
    words = " ".join(takewhile(lambda line: not line.startswith(" "), lines))
    return re.split(r"\. |: python run\.py ", words)[0].rstrip(".:")
