"""What a log that we wrote says of an answer where the format of its harness has no place for it.

The mark is an object under the name ``robust_eval``: in the metadata of a sample of inspect_ai, in the document of
lm-eval, in the metadata of an instance of Every Eval Ever.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from robust_eval.answer import (
    DEFAULT_TEMPERATURE,
    GRADED_COLUMNS,
    SAMPLER,
    SCHEMA,
    EarlyStopping,
    SamplingMetadata,
    temperature_name,
)
from robust_eval.error import UserError
from robust_eval.interop.logged_answer import AskedWith, LoggedAnswer, of_kind
from robust_eval.question import Question
from robust_eval.reader.base import NOT_ENDED

MARK = "robust_eval"
"""The name under which it stands."""
_TEXTS = ("text", "context", "category", "group", "type")
_LISTS = ("answers", "choices", "rewrites", "incorrect")
_ELSEWHERE = ("question_id", "rewrite", "temperature", "trial", "text", *GRADED_COLUMNS)
_COLUMNS = tuple(name for name in SCHEMA.names if name not in _ELSEWHERE)


def mark_of(
    question: Question,
    rewrite: int,
    temperature: float | None,
    sampler: str | None = None,
    asked: SamplingMetadata | None = None,
) -> dict[str, Any]:
    """Return the mark of answers to a question under one condition.

    ``temperature`` is None where the log says it elsewhere, ``sampler`` where one alone asked.
    """
    known = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in asdict(question).items()
        if value not in ("", (), None)
    }
    mark: dict[str, Any] = {"question": known, "rewrite": rewrite}
    if temperature is not None:
        mark["temperature"] = temperature_name(temperature) if temperature != temperature else temperature
    mark |= {SAMPLER: sampler} if sampler is not None else {}
    if asked is not None:
        early_stopping = {
            name: [list(each.temperatures), each.threshold] for name, each in asked.early_stopping.items()
        }
        mark["asked"] = {"first_lines": asked.first_lines, "early_stopping": early_stopping}
    return mark


def columns_of(row: Mapping[str, Any], *held: str) -> dict[str, Any]:
    """Return the columns of an answer but for its text and those for which the format has a place (``held``).

    The outcome of a reply that ended in its reasoning is that before it was read, so that reading says so again.
    """
    found = {name: row[name] for name in _COLUMNS if name not in held and row[name] is not None}
    return found | ({"outcome": "empty"} if row["reason"] == NOT_ENDED and not row["text"] else {})


def marked(answer: LoggedAnswer, mark: Any) -> LoggedAnswer:
    """Return an answer as its mark has it; as it is where there is none.

    UserError names the answer where the mark is damaged.
    """
    if mark is None:
        return answer
    where = f"{answer.where}, {MARK}"
    found = of_kind(mark, "answer", dict, where, {})
    if not found.keys() <= set(_COLUMNS):
        raise UserError(f"{where}: 'answer' must hold columns of an answer")
    whole = dict(answer.columns) | dict(found)
    if SAMPLER in mark:
        whole[SAMPLER] = of_kind(mark, SAMPLER, str, where)
    asked = _how_asked(of_kind(mark, "asked", dict, where), where) if "asked" in mark else None
    given = answer.asked if asked is None else AskedWith(chat=not asked.first_lines)
    return replace(
        answer,
        question=marked_question(of_kind(mark, "question", dict, where), where),
        rewrite=of_kind(mark, "rewrite", int, where, answer.rewrite),
        temperature=_temperature(mark, answer.temperature, where),
        columns=whole,
        asked=given,
        how=asked,
        ungraded="",
    )


def marked_question(said: Mapping[str, Any], where: str) -> Question:
    """Return the question of a mark; UserError where it is damaged."""
    lists = {name: of_kind(said, name, list, where, []) for name in _LISTS}
    if not all(isinstance(each, str) for found in lists.values() for each in found):
        raise UserError(f"{where}: {', '.join(_LISTS)} must be lists of texts")
    places = {name: of_kind(said, name, int, where) for name in ("correct", "level") if said.get(name) is not None}
    if not 0 <= places.get("correct", 0) < max(len(lists["choices"]), 1):
        raise UserError(f"{where}: 'correct' must be the index of a choice")
    known: dict[str, Any] = {name: of_kind(said, name, str, where, "") for name in _TEXTS}
    known |= {name: tuple(found) for name, found in lists.items()}
    return Question(of_kind(said, "id", str, where), **known, **places)


def _temperature(mark: Mapping[str, Any], logged: float, where: str) -> float:
    said = mark.get("temperature", logged)
    if said == temperature_name(DEFAULT_TEMPERATURE):
        return DEFAULT_TEMPERATURE
    if isinstance(said, bool) or not isinstance(said, int | float) or said < 0:
        raise UserError(f"{where}: the temperature must be a number of 0 or more, not {said!r:.40}")
    return DEFAULT_TEMPERATURE if said != said else float(said)


def _how_asked(said: Mapping[str, Any], where: str) -> SamplingMetadata:
    try:
        early_stopping = {
            str(name): EarlyStopping(tuple(float(t) for t in grid), float(threshold))
            for name, (grid, threshold) in of_kind(said, "early_stopping", dict, where, {}).items()
        }
    except (TypeError, ValueError) as problem:
        raise UserError(f"{where}: 'early_stopping' must hold temperatures and a threshold") from problem
    return SamplingMetadata(of_kind(said, "first_lines", bool, where), early_stopping)
