"""Answers in logs of other harnesses, their requests, and choices listed in a text."""

import ast
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from robust_eval.answer import DEFAULT_TEMPERATURE, SamplingMetadata
from robust_eval.error import UserError
from robust_eval.question import LETTERS, Question
from robust_eval.runtime.text import excerpt


class RequestSettings(NamedTuple):
    """Settings of a harness's request: messages (role, text), stop strings, and the maximum number of tokens if logged.

    ``chat`` is True for a conversation, False for a text to continue. ``reader`` is the reader of the replies.
    """

    messages: tuple[tuple[str, str], ...] = ()
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None
    chat: bool = True
    reader: str = "by_prompt_style"


TOO_MANY = f"a question must have 2 to {len(LETTERS)} choices, not {{}}"
"""Refusal of a number of choices."""


@dataclass(frozen=True)
class LoggedAnswer:
    """Answer in a log. ``columns`` are further columns of the answer table; ``scores`` are those of the harness's
    scorers, 1 for right and 0 for wrong.
    """

    model: str
    task: str
    question: Question
    temperature: float
    text: str | None
    where: str
    """File and sample, for messages."""
    rewrite: int = 0
    request: RequestSettings = field(default_factory=RequestSettings)
    columns: Mapping[str, Any] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)
    metadata: SamplingMetadata | None = None
    """Sampling metadata, if a run of robust_eval wrote the log."""
    ungraded: str = ""
    """Reason why the question has no key; empty if it has one."""
    error: str = ""
    """Error in place of a reply."""
    sample: tuple[Any, ...] | None = None
    """Identity of the sample, which the log of a retry repeats; None if the format has none."""


def of_kind(record: Any, name: str, kind: type | tuple[type, ...], where: str, default: Any = None) -> Any:
    """Return a field of a log's JSON object, or the ``default`` if it is absent or null.

    UserError that begins with ``where`` if it is of another kind, or absent without a default.
    """
    if not isinstance(record, Mapping):
        raise UserError(f"{where} must be an object with {name!r}, not {excerpt(record)}")
    value = record.get(name)
    if value is None:
        if default is None:
            raise UserError(f"{where}: there is no {name!r}")
        return default
    types = kind if isinstance(kind, tuple) else (kind,)
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise UserError(
            f"{where}: {name!r} must be {' or '.join(_TYPES[each] for each in types)}, not {excerpt(value)}"
        )
    return value


_TYPES = {
    str: "a string",
    dict: "an object",
    list: "a list",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}


def temperature_of(value: Any, where: str) -> float:
    """Return a temperature of a log; the model's own for None. UserError unless it is finite and at least 0."""
    if value is None:
        return DEFAULT_TEMPERATURE
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise UserError(f"{where}: 'temperature' must be a finite number of 0 or more, not {excerpt(value)}")
    return float(value)


def question_of(
    question_id: str, text: str, targets: Sequence[str], choices: Sequence[str], where: str, **more_fields: Any
) -> Question:
    """Return a question of a log. With choices, the target is a letter, an index from 0, or the text of a choice.

    UserError for a question without an id or text, and for a target that is not one of the choices.
    """
    if not question_id or not text.strip():
        raise UserError(f"{where}: the question has no {'text' if question_id else 'id'}")
    accepted = tuple(dict.fromkeys(target for target in targets if target.strip()))
    if not choices:
        return Question(question_id, text, answers=accepted, **more_fields)
    if not 2 <= len(choices) <= len(LETTERS):
        raise UserError(f"{where}: {TOO_MANY.format(len(choices))}")
    if fault := target_fault(accepted, choices):
        raise UserError(f"{where}: the target {excerpt(list(accepted))} {fault}")
    correct = _chosen(accepted[0].strip(), choices) if accepted else None
    return Question(question_id, text, choices=tuple(choices), correct=correct, **more_fields)


def target_fault(targets: Sequence[str], choices: Sequence[str]) -> str:
    """Return the reason why logged targets do not name one choice, as a predicate; empty if they do, or without any."""
    right = {_chosen(target.strip(), choices) for target in targets if target.strip()}
    if None in right:
        return "is not one of the choices"
    return "names several choices, but only one can be right" if len(right) > 1 else ""


def _chosen(target: str, choices: Sequence[str]) -> int | None:
    letters = LETTERS[: len(choices)]
    if target in choices:
        return list(choices).index(target)
    if len(target) == 1 and target.upper() in letters:
        return letters.index(target.upper())
    return int(target) if target.isdecimal() and int(target) < len(choices) else None


def texts(value: Any) -> list[str]:
    """Return the texts of a logged target: a text, a number, a list of them, or a list as Python represents it."""
    if isinstance(value, str) and value[:1] == "[" and value[-1:] == "]" and len(value) < 100_000:
        try:
            read = ast.literal_eval(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            return [value]
        return texts(read) if isinstance(read, list) else [value]
    if isinstance(value, list | tuple):
        return [text for each in value for text in texts(each)]
    return [] if value is None or isinstance(value, dict) else [str(value)]


def content_text(content: Any) -> str:
    """Return the text of a logged message: its content, or the text parts of its content."""
    parts = content if isinstance(content, list) else [content]
    return "".join(str(part.get("text") or "") if isinstance(part, dict) else str(part or "") for part in parts)


def logprobs_columns(tokens: Iterable[tuple[float, Sequence[float]]]) -> dict[str, Any]:
    """Return a log's columns of log-probabilities: of each token, and the largest at its position, descending."""
    pairs = [(logprob, sorted(top, reverse=True)) for logprob, top in tokens]
    if not pairs:
        return {}
    columns: dict[str, Any] = {"token_logprobs": [logprob for logprob, _ in pairs]}
    return columns | ({"top_logprobs": [top for _, top in pairs]} if any(top for _, top in pairs) else {})


def openai_logprobs(choice: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the columns of log-probabilities of a choice of OpenAI's chat completions."""

    def logprob(token: Any) -> float:
        return float(of_kind(token, "logprob", (int, float), where))

    return logprobs_columns(
        (logprob(token), [logprob(one) for one in of_kind(token, "top_logprobs", list, where, [])])
        for token in of_kind(of_kind(choice, "logprobs", dict, where, {}), "content", list, where, [])
    )


_MARKERS = (
    re.compile(r"(?:(?<=\s)|^)\(([A-Z])\)[ \t]*", re.MULTILINE),
    re.compile(r"(?:(?<=\s)|^)([A-Z])\)[ \t]+", re.MULTILINE),
    re.compile(r"^[ \t]*([A-Z])[.:][ \t]+", re.MULTILINE),
)
"""Markers of a choice: ``(A)`` and ``A)`` anywhere, ``A.`` and ``A:`` at the beginning of a line."""
_DASHES = re.compile(
    r"^[ \t]*(?:answer )?(?:options|choices):[ \t]*\n((?:[ \t]*[-*•][ \t]+\S[^\n]*(?:\n|\Z)){2,})", re.I | re.MULTILINE
)
_DASH = re.compile(r"^[ \t]*[-*•][ \t]+([^\n]*\S)", re.MULTILINE)
_LETTER = re.compile(r"[(\[]?([A-Z])[)\]]?[.:]?")
_SEARCHED = 100_000
"""Number of characters, from the end of a text, in which choices are searched."""


def lettered_options(text: str) -> tuple[str, ...]:
    """Return a logged text's last list of choices with letters from A; empty without one, or with a blank choice."""
    for marker in _MARKERS:
        run: list[re.Match[str]] = []
        last: list[re.Match[str]] = []
        for match in marker.finditer(text[-_SEARCHED:]):
            if match[1] == chr(ord("A") + len(run)):
                run.append(match)
            elif match[1] == "A":
                run = [match]
            last = list(run) if len(run) > 1 else last
        if last:
            ends = [each.start() for each in last[1:]] + [None]
            texts = [each.string[each.end() : end] for each, end in zip(last, ends, strict=True)]
            texts[-1] = texts[-1].partition("\n")[0]
            options = tuple(" ".join(each.split()) for each in texts)
            return options if all(options) else ()
    return ()


def dashed_options(text: str) -> tuple[str, ...]:
    """Return a logged text's last list of choices with dashes, under a line such as ``Options:``; empty without one."""
    lists = _DASHES.findall(text[-_SEARCHED:])
    return tuple(each.strip() for each in _DASH.findall(lists[-1])) if lists else ()


def letter_in(target: str) -> str | None:
    """Return the single letter of a logged target, with or without brackets; None for any other target.

    >>> letter_in("(B)"), letter_in("B."), letter_in("Bern")
    ('B', 'B', None)
    """
    match = _LETTER.fullmatch(target.strip())
    return match[1] if match else None
