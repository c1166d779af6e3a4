"""Key (right answers) of a document of lm-eval, from the sample and the task's configuration.

lm-eval logs the target of each document, and not its meaning: an accepted answer, a list of them, a worked solution, a
letter, or the index of a choice. The structure of the document distinguishes these, never the name of the task. If it
cannot, the document has a reason in place of a key.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from robust_eval.interop.logged_answer import TOO_MANY, dashed_options, letter_in, lettered_options, texts
from robust_eval.question import LETTERS
from robust_eval.reader.free_text import boxed
from robust_eval.runtime.text import excerpt

QUESTION = ("question", "query", "input", "problem", "goal", "prompt", "sentence", "ctx")
"""Columns that hold the text of a question."""
CONTRADICTED = "the target and the log's acc name different choices"
"""Reason to trust no target of a task."""
_EXACT = {
    *("acc", "acc_norm", "accuracy", "contains", "correct", "em", "exact_match", "f1", "match", "math_verify", "mcc")
}
"""Metrics that compare a reply with the target."""
_LABELS = ("label", "gold", "answer_idx", "answer_index")
"""Columns in which a number is the index of a choice."""
_STEMS = {"", "option", "options", "choice", "op", "ending", "answer", "sol", "mc_answer"}
"""Stems of the names of columns with one choice each, such as ``option_a``."""
_COLUMN = re.compile(r"(.*?)_?([A-M]|[a-m]|\d)")
_PATH = re.compile(r"\{\{\s*([\w.]+)\s*\}\}")
_PATHS = re.compile(r"\{\{\s*\[\s*([\w.]+(?:\s*,\s*[\w.]+)*)\s*\]\s*\}\}")


class Key(NamedTuple):
    """Accepted answers, or choices with the index of the right one; ``unknown`` is the reason why there are neither."""

    answers: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    correct: int | None = None
    unknown: str = ""


def generated_key(record: Mapping[str, Any], config: Mapping[str, Any] | None, prompt: str) -> Key:
    """Return the key of an lm-eval document with generated replies; ``config`` is None without a results file."""
    doc: Mapping[str, Any] = record["doc"]
    if reason := _inexact(record):
        return Key(unknown=reason)
    target = str(record.get("target"))
    if target[:1] == "{" and target[-1:] == "}":
        return Key(unknown="the target is an object")
    targets = tuple(dict.fromkeys(filter(None, map(final_answer, texts(record.get("target"))))))
    if not targets:
        return Key(unknown="the target is empty")
    if config is not None and config.get("doc_to_choice") is not None:
        return _indexed(targets, configured_choices(config["doc_to_choice"], doc), doc)
    if len(targets) > 1:
        return Key(targets)
    listed, labels = listed_choices(doc)
    text = next((doc[name] for name in QUESTION if isinstance(doc.get(name), str)), prompt)
    if letter_in(targets[0]) or targets[0] in labels:
        return _lettered(
            targets[0], listed or _columns(doc) or lettered_options(text) or lettered_options(prompt), labels
        )
    labelled = (*_LABELS, "answer", "target") if listed else _LABELS
    if config is None and targets[0].isdecimal() and int(targets[0]) in [doc.get(name) for name in labelled]:
        if targets[0] in listed or int(targets[0]) >= len(listed):
            return Key(
                unknown="the target may be the index of a choice, which only the task's configuration shows: put the "
                "file results_*.json of the run in the same folder as the samples"
            )
        return _chosen(listed, int(targets[0]))
    shown_choices = listed if all(each in prompt for each in listed) else ()
    choices = shown_choices or dashed_options(text)
    if targets[0] in choices:
        return _chosen(choices, choices.index(targets[0]))
    return Key(targets)


def chosen_key(record: Mapping[str, Any], continuations: Sequence[str], likeliest: int) -> Key:
    """Return the key of an lm-eval document whose choices were continuations of one prompt.

    The target is an index or a text, and agrees with the log's ``acc``, if any.
    """
    if reason := _inexact(record):
        return Key(unknown=reason)
    targets = [each.strip() for each in texts(record.get("target"))]
    if len(targets) != 1:
        return Key(
            unknown="the target names several choices, but only one can be right" if targets else "the target is empty"
        )
    index = int(targets[0]) if targets[0].isdecimal() else len(continuations)
    right = {index} if index < len(continuations) else set()
    if not right or targets[0] in record["doc"].values():  # else no column holds the target as a text
        right |= {number for number, each in enumerate(continuations) if each == targets[0]}
    if not right:
        return Key(unknown="the target is not one of the choices")
    acc = record.get("acc")
    if isinstance(acc, bool | int | float):
        right = {number for number in right if float(number == likeliest) == acc}
        if not right:
            return Key(unknown=CONTRADICTED)
    if len(right) > 1:
        return Key(unknown="the target is the index of one choice and the text of another")
    return _chosen(_texts_of_letters(continuations, record["doc"]), right.pop())


def final_answer(target: str) -> str:
    r"""Return the answer at the end of a worked solution, after ``####`` or in the last ``\boxed{}``; any other target
    unchanged.

    >>> final_answer("3 + 4 = 7\n#### 7"), final_answer(r"So $x = \boxed{7}$."), final_answer(" 7 ")
    ('7', '7', '7')
    """
    last = target.rpartition("####")[2].strip()
    if "####" in target and last and "\n" not in last:
        return last
    return [target, *boxed(target)][-1].strip()


def listed_choices(doc: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the choices in a column of an lm-eval document, and their labels; both may be empty."""
    for name in ("choices", "options", "endings"):
        column = doc.get(name)
        if isinstance(column, Mapping) and isinstance(column.get("text"), list):
            labels = column.get("label")
            return _texts(column["text"]), _texts(labels) if isinstance(labels, list) else ()
        if isinstance(column, Mapping) and list(column) == list(LETTERS[: len(column)]):
            return _texts(list(column.values())), ()
        if isinstance(column, list):
            return _texts(column), ()
    return (), ()


def configured_choices(doc_to_choice: Any, doc: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the choices of an lm-eval task's ``doc_to_choice``: a list, a column, or a template of columns alone;
    empty for any other template, and for code.
    """

    def column(path: str) -> Any:
        value: Any = doc
        for part in path.strip().split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    if isinstance(doc_to_choice, list | Mapping):
        return _texts(list(doc_to_choice.values() if isinstance(doc_to_choice, Mapping) else doc_to_choice))
    text = str(doc_to_choice)
    if several := _PATHS.fullmatch(text.strip()):
        return _texts([column(each) for each in several[1].split(",")])
    one = _PATH.fullmatch(text.strip())
    listed = column(one[1] if one else text)
    return _texts(listed) if isinstance(listed, list) else ()


def _inexact(record: Mapping[str, Any]) -> str:
    """Return the reason if no logged metric compares a reply with the target; empty if one does, or none is logged."""
    metrics = record.get("metrics")
    names = [str(each) for each in metrics] if isinstance(metrics, list) else []
    is_exact = not names or _EXACT & set(names)
    return "" if is_exact else f"its metric {excerpt(', '.join(names))} is not a comparison with the target"


def _indexed(targets: Sequence[str], choices: tuple[str, ...], doc: Mapping[str, Any]) -> Key:
    """Return the key of an lm-eval task with ``doc_to_choice``, whose target is an index."""
    if not choices:
        return Key(unknown="its doc_to_choice is code, which the log does not contain")
    if len(targets) > 1 or not targets[0].isdecimal() or int(targets[0]) >= len(choices):
        return Key(unknown="the target is not the index of a choice")
    return _chosen(_texts_of_letters(choices, doc), int(targets[0]))


def _texts_of_letters(choices: Sequence[str], doc: Mapping[str, Any]) -> Sequence[str]:
    """Return the choices in a column of the document if ``choices`` are their letters, else ``choices``."""
    listed, _ = listed_choices(doc)
    are_letters = [letter_in(each) for each in choices] == list(LETTERS[: len(choices)])
    return listed if are_letters and len(listed) == len(choices) else choices


def _lettered(target: str, choices: tuple[str, ...], labels: Sequence[str]) -> Key:
    """Return the key for a target that is the label of a choice, by default a letter."""
    index = labels.index(target) if target in labels else ord(letter_in(target) or "A") - ord("A")
    if not choices:
        return Key(unknown="the target is a letter, and neither document nor prompt lists choices")
    if index >= len(choices):
        return Key(unknown="the target is a letter beyond the choices")
    if target in choices and choices[index] != target:
        return Key(unknown="the target is the letter of one choice and the text of another")
    return _chosen(choices, index)


def _chosen(choices: Sequence[str], correct: int) -> Key:
    if not 2 <= len(choices) <= len(LETTERS):
        return Key(unknown=TOO_MANY.format(len(choices)))
    return Key(choices=tuple(choices), correct=correct)


def _columns(doc: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the choices of a document with a column for each: A, B, C; option_a, option_b; ending0, ending1."""
    groups: dict[str, dict[str, str]] = {}
    for name, value in doc.items():
        match = _COLUMN.fullmatch(name)
        if match and match[1].lower() in _STEMS and isinstance(value, str):
            groups.setdefault(match[1], {})[match[2].upper()] = value
    for choices in groups.values():
        for first in "A01":
            signs = [chr(ord(first) + number) for number in range(len(choices))]
            if len(choices) > 1 and all(sign in choices for sign in signs):
                return tuple(choices[sign].strip() for sign in signs)
    return ()


def _texts(column: Sequence[Any]) -> tuple[str, ...]:
    """Return the entries of an lm-eval document's column as texts; empty unless all are texts or numbers."""
    plain = all(isinstance(each, str | int | float) for each in column)
    return tuple(str(each).strip() for each in column) if plain else ()
