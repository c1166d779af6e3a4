"""Options and settings, read from a file in the cache: the classes themselves take seconds to import."""

import json
import sys
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from robust_eval.runtime.cache import cache_folder, read_cached, write_cached
from robust_eval.runtime.files import parsed_json
from robust_eval.runtime.registry import REGISTRY


@dataclass
class Option:
    """An option of a group: what it is, the names of its settings, and the options of other groups that it chooses."""

    says: str
    settings: list[str]
    chooses: dict[str, list[str]]


@dataclass
class Group:
    """A group: what it decides, what is chosen without being asked for, and what there is to choose."""

    says: str
    chosen: list[str]
    several: bool
    options: dict[str, Option]


@dataclass
class Catalogue:
    """All groups, and the settings that belong to none."""

    groups: dict[str, Group]
    others: list[str]


def catalogue() -> Catalogue:
    """Return what there is, from the cache if nothing has changed since: no setting, no class, nothing installed.

    Parts that a script registers are known to that script alone, and are not cached.
    """
    if any(REGISTRY.values()):
        return _made()
    own = Path("conf").resolve()  # which may bring options, too
    key = sha256(f"{__file__} {sys.prefix} {own if own.is_dir() else ''}".encode()).hexdigest()[:16]
    file = cache_folder() / f"options-{key}.json"
    try:
        found = parsed_json(read_cached(file) or "null")
        if found is not None and all(_state(name) == state for name, state in found["sources"].items()):
            return _read(found)
    except (ValueError, KeyError, TypeError, AttributeError):  # of another version, or damaged
        pass
    from robust_eval.config import documented

    made = _made()
    packages = [folder for folder in sys.path if folder.endswith("-packages")]  # what is installed may bring options
    places = [__file__, *packages, *map(str, documented.sources())]
    write_cached(file, json.dumps({"sources": {name: _state(name) for name in places}, **asdict(made)}))
    return made


def _state(name: str) -> int:
    """Return when a file or folder was changed; 0 where there is none."""
    try:
        return Path(name).stat().st_mtime_ns
    except OSError:
        return 0


def _read(found: dict[str, Any]) -> Catalogue:
    groups = {}
    for group, entry in found["groups"].items():
        options = {name: Option(**option) for name, option in entry.pop("options").items()}
        groups[group] = Group(**entry, options=options)
    return Catalogue(groups, found["others"])


def _made() -> Catalogue:
    from robust_eval.config import documented
    from robust_eval.config.overrides import options
    from robust_eval.config.schema import register
    from robust_eval.tracking.settings import SEVERAL

    register()
    groups = {}
    for group, (says, chosen) in documented.groups().items():
        known = {}
        for name in options(group):
            words = documented.sentence(documented.description(group, name))
            known[name] = Option(words, documented.names(group, name), documented.choices(group, name))
        groups[group] = Group(says, chosen, group in SEVERAL, known)
    return Catalogue(groups, documented.other_names())
