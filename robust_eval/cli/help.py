"""Help on options and settings: ``robust-eval --help``, ``help model``, ``help model=recorded``."""

import ast
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from textwrap import dedent, wrap
from typing import Any, NamedTuple

import yaml
from rich.padding import Padding
from rich.table import Table

from robust_eval.cli.arguments import command_parser
from robust_eval.cli.main import COMMANDS
from robust_eval.config.groups import GROUPS, description, first_sentence, option_text, options
from robust_eval.error import UserError
from robust_eval.runtime.console import Console
from robust_eval.runtime.process import command
from robust_eval.runtime.registry import COMBINABLE_GROUPS
from robust_eval.runtime.text import nearest

_EXAMPLES = (
    ("run", "the built-in facts"),
    ("model=transformers model.path=FOLDER", "your own model"),
    ("dataset=quiz.csv", "your own questions"),
    ("model=gpt4o_mini dry_run=true", "its requests and cost"),
    ("-m model=smollm2_135m,qwen25_3b", "a sweep, and a comparison"),
    ("repeat=FOLDER", "repeat an earlier run"),
)
_SHOWN = 9
"""Options of a group in the overview."""
REQUIRED = "…"
"""Placeholder for a required value."""


def main() -> None:
    """Explain groups, options and commands; without words, print an overview on one screen."""
    parser = command_parser(
        "help",
        "List the options of a group (help model), or explain the settings of an option (help model=transformers).",
    )
    parser.add_argument(
        "words", nargs="*", metavar="GROUP[=OPTION]", help="a group, an option or a command; default: an overview"
    )
    words = parser.parse_args().words
    with command():
        if len(words) == 1 and words[0] in COMMANDS:
            sys.argv[1:] = ["--help"]
            COMMANDS[words[0]].run()
        elif words:
            for place, word in enumerate(words):
                _print([""] * bool(place))
                _explain(word)
        else:
            print_overview()


def _program() -> str:
    """Return the program as it was called."""
    name = Path(sys.argv[0]).name
    return {"run.py": "python run.py", "__main__.py": "python -m robust_eval"}.get(name, "robust-eval")


def print_overview() -> None:
    """Print the overview of the help: the purpose of robust_eval, examples, groups with options, and commands."""
    program = _program()
    _print(["Measure how robust a language model's knowledge is.", ""])
    _print_columns((f"{program} {words}".rstrip(), purpose) for words, purpose in _EXAMPLES)
    _print(["", f"Choose an option with GROUP=OPTION ({program} help GROUP explains them):"])
    _print_columns((name, _summary(name)) for name in GROUPS)
    usage = (
        f"Change a setting with GROUP.SETTING=VALUE ({program} help model=transformers, {program} --cfg job). "
        "Quote shell characters: 'metric=[frs,certainty]'."
    )
    _print(["", usage, "", f"Commands ({program} COMMAND --help; Hydra's own options: --hydra-help):"])
    _print_columns((name, each.purpose) for name, each in COMMANDS.items())


def _summary(group: str) -> str:
    """Return the help's summary of a group: the purpose, and its options, default ones first."""
    purpose, defaults = GROUPS[group]
    names = [*defaults, *(name for name in options(group) if name not in defaults)]
    more = [f"… {len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
    return f"{purpose}: {', '.join([*names[:_SHOWN], *more])}"


def _explain(word: str) -> None:
    """Print help on the options of a group, or the settings of one of them."""
    group, equals, option = word.partition("=")
    if word in COMMANDS:
        raise UserError(f"help explains one command at a time: {_program()} help {word}")
    if group not in GROUPS:
        groups_with = [f"{name}={group}" for name in GROUPS if group in options(name)]
        suggestion = f" (did you mean {groups_with[0]}?)" if groups_with else nearest(group, [*GROUPS, *COMMANDS])
        raise UserError(f"there is no group or command {group}{suggestion}; groups are {', '.join(GROUPS)}")
    if not equals:
        purpose, defaults = GROUPS[group]
        _print([f"{group}: {purpose}", ""])
        marks = dict.fromkeys(defaults, " (the default)")
        names = options(group)
        _print_columns(
            (f"{group}={name}", first_sentence(description(group, name)) + marks.get(name, "")) for name in names
        )
        return
    if option not in options(group):
        from robust_eval.config.composition_errors import no_option

        raise UserError(no_option(group, option))
    _print([word, *(line.replace("python run.py", _program()) for line in description(group, option))])
    text = option_text(group, option)
    if chosen := re.findall(r"override /(\w+)\S*: (\[.*?\]|\w+)", text):
        _print([f"It sets {' '.join(f'{other}={name}' for other, name in chosen)}".replace(", ", ",")])
    if rows := settings(group, option):
        _print([""])
        _print_columns((f"{each.name}={each.value}", each.purpose) for each in rows)
    elif "\n\n" in text:
        _print(["", *text.partition("\n\n")[2].rstrip().splitlines()])
    if any(each.value == REQUIRED for each in rows):
        _print([f"  ({REQUIRED} marks a required value)"])
    if rows and f"{group}.{option}." in rows[0].name:
        short = rows[0].name.replace(f".{option}.", ".")
        _print([f"The short form {short} works unless another chosen {group} has that setting."])


class Setting(NamedTuple):
    """Setting in the help: its name and value on the command line, and its docstring."""

    name: str
    value: str
    purpose: str


def settings(group: str, option: str) -> list[Setting]:
    """Return the settings of an option with their values when it is chosen; none of a preset, whose file has them."""
    from robust_eval.config.overrides import composed_choices
    from robust_eval.config.schema import SCHEMAS, register

    register()
    if group not in SCHEMAS:
        return []
    node = composed_choices([f"{group}={option}"])[group]
    return list(_settings(node[option], f"{group}.{option}") if group in COMBINABLE_GROUPS else _settings(node, group))


def _settings(node: Any, place: str) -> Iterator[Setting]:
    from omegaconf import OmegaConf

    docstrings = field_docstrings(OmegaConf.get_type(node))
    values: Any = OmegaConf.to_container(node, resolve=False)
    for name, child in node.items_ex(resolve=False):
        if OmegaConf.is_dict(child) and is_dataclass(OmegaConf.get_type(child)):
            yield from _settings(child, f"{place}.{name!s}")
        else:
            yield Setting(f"{place}.{name!s}", _written(values[name]), docstrings.get(str(name), ""))


def field_docstrings(schema: Any) -> dict[str, str]:
    """Return the docstring (help text) of each field of a dataclass, inherited fields included."""
    docstrings = {}
    for each in reversed(inspect.getmro(schema)):
        if not is_dataclass(each) or not fields(each):
            continue
        try:
            (definition,) = ast.parse(dedent(inspect.getsource(each))).body
        except OSError:  # a class of an interpreter or a notebook
            continue
        assert isinstance(definition, ast.ClassDef)
        for entry, below in pairwise(definition.body):
            if isinstance(entry, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(entry.target, ast.Name):
                docstrings[entry.target.id] = " ".join(ast.literal_eval(below.value).replace("``", "").split())
    return docstrings


def _written(value: Any) -> str:
    """Return a setting's value in the syntax of the command line."""
    if isinstance(value, str):
        return REQUIRED if value == "???" else value
    return str(yaml.safe_dump([value], default_flow_style=True, width=10_000, allow_unicode=True)).strip()[1:-1]


def _print(lines: Sequence[str]) -> None:
    """Print the help's paragraphs, wrapped unless they are indented."""
    console = Console()
    for line in lines:
        folded = (
            [line]
            if line.startswith(" ")
            else wrap(line, console.width, break_long_words=False, break_on_hyphens=False)
        )
        console.print("\n".join(folded), soft_wrap=True)


def _print_columns(rows: Iterable[tuple[str, str]]) -> None:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console().print(Padding(table, (0, 0, 0, 2), expand=False), soft_wrap=False)
