"""Shell completion: ``robust-eval completion bash`` prints the script of a shell.

The script calls ``robust-eval completion SHELL WORD…`` for the candidates of the last word; bash passes its line and
the part that it completes. Without candidates, the shell completes file names.
"""

import argparse
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence

from robust_eval.cli.arguments import command_parser
from robust_eval.cli.main import COMMANDS
from robust_eval.config.groups import GROUPS, UNGROUPED, options
from robust_eval.runtime.process import command
from robust_eval.runtime.registry import COMBINABLE_GROUPS
from robust_eval.tracking.flat_settings import flat

SCRIPTS = {
    "bash": """\
_robust_eval() {
    local IFS=$'\\n'
    COMPREPLY=($("$1" completion bash -- "${COMP_LINE:0:COMP_POINT}" "$2" 2>/dev/null))
    case "${COMPREPLY[0]-}" in *[=.]) compopt -o nospace ;; esac
}
complete -o bashdefault -o default -F _robust_eval robust-eval
""",
    "zsh": """\
_robust_eval() {
    local -a words_found
    words_found=(${(f)"$("${(Q)words[1]}" completion zsh -- "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)"})
    compadd -- "${(@)words_found:#*[=.]}"
    compadd -S '' -- "${(@M)words_found:#*[=.]}"
    (( $#words_found )) || { compset -P '*='; _files }
}
compdef _robust_eval robust-eval
""",
    "fish": """\
function __robust_eval
    set -l words (commandline -opc)
    set -g __robust_eval_words ($words[1] completion fish -- $words[2..] (commandline -ct) 2>/dev/null)
    set -q __robust_eval_words[1]
end
complete -c robust-eval -f -n __robust_eval -a '$__robust_eval_words'
""",
}
"""Script of each shell; it calls the program of the command line."""


def main() -> None:
    """Print the completion script of a shell, or the candidates for the last of the words after its name."""
    parser = command_parser(
        "completion",
        "Print the shell script that enables Tab completion for robust-eval.",
        epilog='bash: eval "$(robust-eval completion bash)" in ~/.bashrc; zsh: the same with zsh in ~/.zshrc, after '
        "compinit; fish: robust-eval completion fish | source in ~/.config/fish/config.fish",
    )
    parser.add_argument("shell", choices=list(SCRIPTS))
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    with command():
        if not arguments.words:
            print(SCRIPTS[arguments.shell], end="")
            return
        candidates = for_bash(*arguments.words) if arguments.shell == "bash" else completions(arguments.words)
        print("".join(f"{word}\n" for word in candidates), end="")


def for_bash(line: str, part: str) -> list[str]:
    """Return bash completion's candidates for the last ``part`` of a line: bash splits words at = and at quotes."""
    for closing in ("", "'", '"'):
        try:
            words = shlex.split(f"{line}{closing}")[1:]
            break
        except ValueError:  # of an open quote
            continue
    else:
        return []
    if line[-1:].isspace() and not closing:
        words.append("")
    return [word[len(words[-1]) - len(part) :] for word in completions(words)] if words else []


def completions(words: Sequence[str]) -> list[str]:
    """Return the candidates for the last of the words that follow the name of the program, sorted."""
    *before, word = words
    return sorted({each for each in _candidates(before, word) if each.startswith(word)})


def _candidates(before: Sequence[str], word: str) -> Iterable[str]:
    """Return the words that may follow others, also those that do not begin like ``word``."""
    first = before[0] if before else "run"
    if first == "help":
        return [*GROUPS, *(f"{group}={name}" for group in GROUPS for name in options(group))]
    if first == "completion":
        return SCRIPTS
    if first in COMMANDS and first not in ("run", "ask"):
        return ()
    if word.startswith("-"):
        return ("--cfg", "--help", "--hydra-help", "--multirun", "-m")
    if before and before[-1] in ("--cfg", "-c"):
        return ("all", "hydra", "job")
    key, equals, value = word.partition("=")
    if equals:
        if key in ("dry_run", "cancel_batches"):
            return (f"{key}=false", f"{key}=true")
        group = "model" if key in ("rewriter.model", "grader.model") else key
        head = value[: max(value.rfind(","), value.rfind("[")) + 1]
        return [f"{key}={head}{name}" for name in options(group)] if group in GROUPS else ()
    if "." in word:
        depth = word.count(".") + 1
        return [
            ".".join(name.split(".")[:depth]) + ("." if name.count(".") >= depth else "=") for name in _settings(before)
        ]
    names = [*(f"{group}{end}" for group in GROUPS for end in "=."), *(f"{name}=" for name in UNGROUPED), "paths."]
    return [*names, "cancel_batches=", "dry_run=", "repeat=", *(() if before else COMMANDS)]


def _settings(before: Sequence[str]) -> list[str]:
    """Return the settings of the options that the earlier words choose, or of the defaults if these words are
    unfinished; those of one sampler or metric also without its name.
    """
    from omegaconf import OmegaConf

    from robust_eval.config.overrides import composed_choices
    from robust_eval.config.schema import register

    register()
    try:
        composed = composed_choices([word for word in before if word.partition("=")[0] in GROUPS])
    except Exception:  # of unfinished words
        composed = composed_choices([])
    names = list(flat(OmegaConf.to_container(composed)))
    short = [
        f"{group}.{rest}"
        for group, _, rest in (each.split(".", 2) for each in names if each.count(".") > 1)
        if group in COMBINABLE_GROUPS
    ]
    return [*names, *(name for name, count in Counter(short).items() if count == 1)]
