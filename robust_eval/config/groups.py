"""Groups and their options, read from the files under conf/ without the classes, which take seconds to import."""

import inspect
import re
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from robust_eval.runtime.registry import REGISTRY

PROJECT = Path(__file__).resolve().parents[2]
"""The folder that holds the package; of a clone it holds run.py and conf/ as well."""
CONF = next(
    folder for folder in (PROJECT / "robust_eval" / "conf", PROJECT / "conf") if (folder / "config.yaml").is_file()
)
"""The files of settings: inside the package where it is installed, at the top of a clone."""
_MAIN = (CONF / "config.yaml").read_text(encoding="utf-8")
UNGROUPED = [name for name in re.findall(r"^(\w+):", _MAIN, re.MULTILINE) if name not in ("defaults", "hydra", "paths")]
"""Settings that belong to no group."""


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
    """Return ``./conf``, where it holds options of one's own: files in a folder of the name of a group."""
    folder = Path("conf")
    has_options = any(True for group in GROUPS for _ in (folder / group).glob("*.yaml"))
    return folder if has_options and folder.resolve() != CONF else None


def option_folders() -> list[Path]:
    """Return the folders of options: that of this package, and ``./conf``."""
    return [CONF] if (folder := own_folder()) is None else [CONF, folder]


def options(group: str) -> list[str]:
    """Return the names of the options of a group: of this package, registered ones, and those in ``./conf``."""
    files = {file.stem for folder in option_folders() for file in (folder / group).glob("*.yaml")}
    return sorted(files | set(REGISTRY.get(group, {})))


def option_text(group: str, option: str) -> str:
    """Return the file of an option; an empty text where it has none."""
    files = (folder / group / f"{option}.yaml" for folder in option_folders())
    return next((file.read_text(encoding="utf-8", errors="replace") for file in files if file.is_file()), "")


def description(group: str, option: str) -> list[str]:
    """Return the comments that open the file of an option; of a registered class, its docstring's first paragraph."""
    if cls := REGISTRY.get(group, {}).get(option):
        docstring = inspect.getdoc(cls) or ""
        return [] if docstring.startswith(f"{cls.__name__}(") else docstring.split("\n\n")[0].splitlines()
    comments = takewhile(lambda line: line.startswith("#"), option_text(group, option).splitlines())
    return [line.removeprefix("#").removeprefix(" ") for line in comments if not line.startswith("# @package")]


def first_sentence(lines: list[str]) -> str:
    """Return the first sentence of a description, without the example that follows it and without its full stop."""
    words = " ".join(takewhile(lambda line: not line.startswith(" "), lines))
    return re.split(r"\. |: python run\.py ", words)[0].rstrip(".:")
