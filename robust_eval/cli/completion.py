"""Words that Tab completes: ``robust-eval completion bash`` prints what a shell must read for it.

The shell then asks ``robust-eval completion SHELL WORD…`` what may stand in place of the last word; bash, which parts
words at = and :, passes its whole line and the signs at which it does so. Where nothing is printed, it completes files.
"""

import argparse
from collections.abc import Iterable, Iterator, Sequence

from robust_eval.cli.arguments import command_parser
from robust_eval.cli.help import Catalogue, catalogue
from robust_eval.cli.main import COMMANDS
from robust_eval.runtime.process import command

SCRIPTS = {
    "bash": """\
_robust_eval() {
    local IFS=$'\\n'
    COMPREPLY=($("$1" completion bash -- "${COMP_LINE:0:COMP_POINT}" "$COMP_WORDBREAKS" 2>/dev/null))
    case "${COMPREPLY[0]-}" in *[=.]) compopt -o nospace ;; esac
}
complete -o bashdefault -o default -F _robust_eval robust-eval
""",
    "zsh": """\
#compdef robust-eval
_robust_eval() {
    local -a found
    found=(${(f)"$("${(Q)words[1]}" completion zsh -- "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)"})
    if (( $#found )); then
        compadd -- "${(@)found:#*[=.]}"
        compadd -S '' -- "${(@M)found:#*[=.]}"
    else
        compset -P '*='
        _files
    fi
}
if [[ $funcstack[1] == _robust_eval ]]; then  # it is a file of $fpath, which is read when it is first wanted
    _robust_eval "$@"
else
    compdef _robust_eval robust-eval
fi
""",
    "fish": """\
function __robust_eval
    set -l words (commandline -opc)
    set -g __robust_eval_found ($words[1] completion fish -- $words[2..] (commandline -ct) 2>/dev/null)
    set -q __robust_eval_found[1]
end
complete -c robust-eval -f -n __robust_eval -a '$__robust_eval_found'
""",
}
"""Script of each shell; it calls the program that stands on its line."""
_OPTIONS = ("--cfg", "--help", "--hydra-help", "--multirun", "-m")
_WITH_OVERRIDES = ("run", "ask")
_OF_A_RUN = ("cancel_batches", "dry_run", "repeat")
"""Words of a command line of a run beside settings."""


def main() -> None:
    """Print the script of a shell; with words after its name, what may stand in place of the last of them."""
    parser = command_parser(
        "completion",
        "Print what a shell must read so that Tab completes the words of robust-eval.",
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
        if arguments.shell == "bash":
            line, breaks = arguments.words
            words_to_print = for_bash(line, breaks, catalogue())
        else:
            words_to_print = completions(arguments.words, catalogue())
        print("".join(f"{each}\n" for each in words_to_print), end="")


def completions(words: Sequence[str], known: Catalogue) -> list[str]:
    """Return what may stand in place of the last of the words that follow the name of the program, sorted."""
    *before, word = words
    return sorted(each for each in set(_candidates(before, word, known)) if each.startswith(word))


def for_bash(line: str, breaks: str, known: Catalogue) -> list[str]:
    """Return what may stand behind the last sign of the ``line``, up to the cursor, at which bash parts words."""
    words, start = _words(line, breaks)
    return [each[start:] for each in completions(words[1:], known)] if len(words) > 1 else []


def _words(line: str, breaks: str) -> tuple[list[str], int]:
    """Split a line of bash into words without their quotes; also return where, in the last, bash begins to complete."""
    words, start, quote, escaped = [""], 0, "", False
    for sign in line:
        if escaped or (quote and sign not in (quote, "\\" if quote == '"' else quote)):
            words[-1] += sign
            escaped = False
        elif sign == "\\":
            escaped = True
        elif sign in "'\"":
            quote = "" if quote else sign
            start = len(words[-1])
        elif sign.isspace():
            if words[-1]:
                words.append("")
            start = 0
        else:
            words[-1] += sign
            start = len(words[-1]) if sign in breaks else start
    return words, start


def _candidates(before: Sequence[str], word: str, known: Catalogue) -> Iterable[str]:
    """Return words that may stand behind others; some do not begin as ``word`` does."""
    first = before[0] if before else "run"
    if first == "help":
        return [*known.groups, *(f"{group}={name}" for group, each in known.groups.items() for name in each.options)]
    if first == "completion":
        return SCRIPTS
    if first in COMMANDS and first not in _WITH_OVERRIDES:
        return ()
    commands = () if before else COMMANDS
    if word.startswith("-"):
        return _OPTIONS
    if before and before[-1] in ("--cfg", "-c"):
        return ("all", "hydra", "job")
    key, equals, value = word.partition("=")
    return _values(key, value, known) if equals else [*commands, *_next_parts(word, _keys(before, known))]


def _values(key: str, value: str, known: Catalogue) -> list[str]:
    """Return the overrides of a key with each of its options in place of the last one that the value begins to name."""
    if key in ("dry_run", "cancel_batches"):
        return [f"{key}=false", f"{key}=true"]
    group = known.groups.get("model" if key in ("rewriter.model", "grader.model") else key)
    head = value[: max(value.rfind(","), value.rfind("[")) + 1]
    return [f"{key}={head}{name}" for name in group.options] if group else []


def _keys(before: Sequence[str], known: Catalogue) -> Iterator[str]:
    """Yield the names of all that can be set, of the options that the words before choose."""
    yield from (*_OF_A_RUN, *known.others, *known.groups)
    for name, options in _chosen(before, known).items():
        group = known.groups[name]
        having = [setting for option in options for setting in group.options[option].settings]
        for option in options:
            for setting in group.options[option].settings:
                if not group.several or having.count(setting) == 1:
                    yield f"{name}.{setting}"
                if group.several:
                    yield f"{name}.{option}.{setting}"


def _chosen(before: Sequence[str], known: Catalogue) -> dict[str, list[str]]:
    """Return the options of each group that a command line chooses: by its words, an option among these, or at all."""
    said = {key: value.strip("[]").split(",") for key, _, value in (word.partition("=") for word in before)}
    chosen: dict[str, list[str]] = {}
    for name, group in known.groups.items():
        found = [option for option in said.get(name, group.chosen) if option in group.options]
        chosen |= {name: found} | {
            other: options
            for option in found
            for other, options in group.options[option].chooses.items()
            if other not in said
        }
    return chosen


def _next_parts(word: str, keys: Iterable[str]) -> Iterator[str]:
    """Yield the keys that go on from a word, each up to its next dot; a whole one ends in =."""
    for key in keys:
        if key.startswith(word):
            rest, dot, _ = key[len(word) :].partition(".")
            yield f"{word}{rest}{dot or '='}"
