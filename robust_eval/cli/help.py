"""Help on options and settings: ``robust-eval --help``, ``help model``, ``help model=recorded``."""

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from textwrap import wrap
from typing import Any

from robust_eval.cli.arguments import command_parser
from robust_eval.cli.main import COMMANDS
from robust_eval.error import UserError
from robust_eval.runtime.cache import cache_folder, read_cached, write_cached
from robust_eval.runtime.console import Console
from robust_eval.runtime.files import parsed_json
from robust_eval.runtime.process import command
from robust_eval.runtime.registry import REGISTRY

WIDEST = 110
"""Columns of a line, however wide the terminal is."""
_EXAMPLES = {
    "": "built-in facts, small model",
    "model=transformers model.path=FOLDER": "a model of your own",
    "dataset=quiz.csv": "questions of your own",
    "model=gpt4o_mini dry_run=true": "what it would ask and cost",
    "-m model=smollm2_135m,qwen25_3b": "a sweep, and a comparison",
    "repeat=FOLDER": "an earlier run again",
}
_INDENT = "  "


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
    from robust_eval.tracking.flat_settings import SEVERAL

    register()
    groups = {}
    for group, (says, chosen) in documented.groups().items():
        options_of_group = {}
        for name in options(group):
            words = documented.sentence(documented.description(group, name))
            options_of_group[name] = Option(words, documented.names(group, name), documented.choices(group, name))
        groups[group] = Group(says, chosen, group in SEVERAL, options_of_group)
    return Catalogue(groups, documented.other_names())


def main() -> None:
    """Print what the words name; without words, the whole on one screen.

    Exits with status 1 and a sentence where a word is the name of nothing.
    """
    parser = command_parser("help", "Say what can be chosen (help model) and set (help model=transformers).")
    parser.add_argument("words", nargs="*", metavar="GROUP[=OPTION]", help="or a command; without: an overview")
    words = parser.parse_args().words
    with command():
        if len(words) == 1 and words[0] in COMMANDS and words[0] != "help":
            sys.argv[1:] = ["--help"]
            COMMANDS[words[0]].run()
        elif words:
            known = catalogue()
            Console().print("\n\n".join("\n".join(_explained(word, known)) for word in words))
        else:
            print_overview()


def print_overview() -> None:
    """Print what robust_eval does, examples, the groups with their options, and the commands."""
    Console().print("\n".join(_overview(catalogue(), _program())))


def _overview(known: Catalogue, program: str) -> Iterator[str]:
    yield from _folded("Measure how firmly a language model holds the facts that it answers right.", "")
    yield ""
    examples = [(f"{program} {words}".rstrip(), says) for words, says in _EXAMPLES.items()]
    yield from _columns(examples, _width() * 2 // 3)
    yield ""
    yield from _folded(f"Choose with GROUP=OPTION ({program} help GROUP says more):", "")
    longest = max(map(len, known.groups))
    for name, group in known.groups.items():
        yield from _group_lines(group, f"{_INDENT}{name:{longest}}  ")
    yield ""
    yield from _folded(
        f"Set with GROUP.SETTING=VALUE: {program} help model=transformers explains the settings of an option, "
        f"{program} --cfg job shows all of a run. Quote what has signs of the shell: 'metric=[frs,certainty]'.",
        "",
    )
    yield ""
    yield from _folded(f"Commands ({program} COMMAND --help; Hydra's own options: --hydra-help):", "")
    yield from _columns([(name, each.says) for name, each in COMMANDS.items()], _width() // 2)


def _group_lines(group: Group, head: str) -> list[str]:
    """Return two lines at most: what a group decides, and its options, those that are chosen by themselves first."""
    names = [*group.chosen, *(name for name in group.options if name not in group.chosen)]
    for shown in range(len(names), 0, -1):
        left = f", … {len(names) - shown} more" if shown < len(names) else ""
        lines = wrap(f"{group.says}: {', '.join(names[:shown])}{left}", _width() - len(head), break_on_hyphens=False)
        if len(lines) <= 2:
            break
    return [f"{head}{lines[0]}", *(f"{' ' * len(head)}{line}" for line in lines[1:])]


def _explained(word: str, known: Catalogue) -> Iterator[str]:
    """Yield the lines that explain a group, or an option of it."""
    name, equals, option = word.partition("=")
    if name not in known.groups:
        raise UserError(_unknown(word, known))
    group = known.groups[name]
    if not equals:
        yield f"{name}: {group.says}"
        yield ""
        chosen = {each: " (the default)" if each in group.chosen else "" for each in group.options}
        rows = [(f"{name}={each}", f"{group.options[each].says}{mark}") for each, mark in chosen.items()]
        yield from _columns(rows, _width() // 2)
        return
    if option not in group.options:
        from robust_eval.config.overrides import no_option

        raise UserError(no_option(name, option))
    yield from _option_lines(name, option, known)


def _option_lines(group: str, option: str, known: Catalogue) -> Iterator[str]:
    from robust_eval.config import documented
    from robust_eval.config.schema import register

    register()
    yield f"{group}={option}"
    for line in documented.description(group, option):
        yield from [line] if line.startswith(" ") else _folded(line, "")
    chooses = known.groups[group].options[option].chooses
    if chooses:
        chosen = " ".join(chosen_words(name, names) for name, names in chooses.items())
        yield from _folded(f"It chooses {chosen}", "")
    settings = documented.settings(group, option)
    yield from [""] if settings else []
    yield from _columns([(f"{each.name}={each.value}", each.says) for each in settings], _width() // 2)
    if any(each.value == documented.NEEDED for each in settings):
        yield f"{_INDENT}({documented.NEEDED} must be given)"
    if known.groups[group].several and settings:
        short = settings[0].name.replace(f".{option}.", ".")
        yield from _folded(f"{short} does as well, where no other chosen {group} has that setting.", "")


def chosen_words(group: str, options: Sequence[str]) -> str:
    """Return the override that chooses these options of a group."""
    return f"{group}={options[0]}" if len(options) == 1 else f"{group}=[{','.join(options)}]"


def _unknown(word: str, known: Catalogue) -> str:
    from robust_eval.config.composition_errors import nearest

    name = word.partition("=")[0]
    groups_with = [f"{group}={name}" for group, each in known.groups.items() if name in each.options]
    suggestion = f" (did you mean {groups_with[0]}?)" if groups_with else nearest(name, [*known.groups, *COMMANDS])
    return f"there is no group {name}{suggestion}; there are {', '.join(known.groups)}"


def _columns(rows: Sequence[tuple[str, str]], most: int) -> Iterator[str]:
    """Yield lines with two columns; where the first is longer than ``most``, the second begins on the next line."""
    wide = max((len(left) for left, _ in rows if len(left) <= most), default=0)
    indent = f"{_INDENT}{' ' * wide}  "
    for left, right in rows:
        lines = list(_folded(right, indent)) if right else []
        if lines and len(left) <= wide:
            lines[0] = f"{_INDENT}{left:{wide}}  {lines[0].lstrip()}"
            yield from lines
        else:
            yield f"{_INDENT}{left}"
            yield from lines


def _folded(text: str, indent: str) -> list[str]:
    return wrap(text, _width(), initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def _width() -> int:
    return min(shutil.get_terminal_size().columns, WIDEST)


def _program() -> str:
    """Return how this program was called: an example that is copied does the same."""
    name = Path(sys.argv[0]).name
    return {"run.py": "python run.py", "__main__.py": "python -m robust_eval"}.get(name, "robust-eval")
