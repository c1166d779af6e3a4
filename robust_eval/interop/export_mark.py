"""Mark of an exported answer: the fields of robust_eval for which the harness's format has no place.

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
from robust_eval.interop.logged_answer import LoggedAnswer, RequestSettings, of_kind, temperature_of
from robust_eval.question import Question
from robust_eval.reader.base import NOT_ENDED

MARK = "robust_eval"
"""Name of the mark."""
_COLUMNS = tuple(
    name
    for name in SCHEMA.names
    if name not in ("question_id", "rewrite", "temperature", "trial", "text", *GRADED_COLUMNS)
)
"""Columns of an answer that a mark may have."""


def mark_of(
    question: Question,
    rewrite: int,
    temperature: float | None,
    sampler: str | None = None,
    metadata: SamplingMetadata | None = None,
) -> dict[str, Any]:
    """Return robust_eval's mark of answers to a question under one condition.

    ``temperature`` is None if the log has it elsewhere, ``sampler`` if there is only one.
    """
    fields = {name: value for name, value in asdict(question).items() if value not in ("", (), None)}
    mark: dict[str, Any] = {"question": fields, "rewrite": rewrite}
    if temperature is not None:
        mark["temperature"] = temperature_name(temperature) if temperature != temperature else temperature
    mark |= {SAMPLER: sampler} if sampler is not None else {}
    if metadata is not None:
        mark["asked"] = metadata._asdict()
    return mark


def columns_of(row: Mapping[str, Any], *excluded: str) -> dict[str, Any]:
    """Return the columns of an answer for its mark, without its text and those for which the format has a place
    (``excluded``).

    A reply without an extracted answer, or without a judge's verdict, gets its outcome from before extraction, which
    extraction and grader set again.
    """
    columns = {name: row[name] for name in _COLUMNS if name not in excluded and row[name] is not None}
    before = "empty" if row["reason"] == NOT_ENDED and not row["text"] else "ok"
    return columns | ({"outcome": before} if row["reason"] and row["outcome"] in ("invalid", "error") else {})


def marked(answer: LoggedAnswer, mark: Any) -> LoggedAnswer:
    """Return an answer with the fields of its mark, if any; UserError names an answer whose mark is damaged."""
    if mark is None:
        return answer
    where = f"{answer.where}, {MARK}"
    columns = of_kind(mark, "answer", dict, where, {})
    if unknown := columns.keys() - set(_COLUMNS):
        raise UserError(f"{where}: 'answer' must contain only {', '.join(_COLUMNS)}, not {', '.join(sorted(unknown))}")
    sampler = {SAMPLER: of_kind(mark, SAMPLER, str, where)} if SAMPLER in mark else {}
    metadata = _sampling_metadata(of_kind(mark, "asked", dict, where), where) if "asked" in mark else None
    t = mark.get("temperature", answer.temperature)
    is_default = t == temperature_name(DEFAULT_TEMPERATURE) or t != t
    return replace(
        answer,
        question=marked_question(of_kind(mark, "question", dict, where), where),
        rewrite=of_kind(mark, "rewrite", int, where, answer.rewrite),
        temperature=DEFAULT_TEMPERATURE if is_default else temperature_of(t, where),
        columns={**answer.columns, **columns, **sampler},
        request=answer.request if metadata is None else RequestSettings(chat=not metadata.first_lines),
        metadata=metadata,
        ungraded="",
    )


def marked_question(fields: Mapping[str, Any], where: str) -> Question:
    """Return the question of robust_eval's mark in a log; UserError if it is damaged."""
    try:
        return Question(**{"text": "", **fields})
    except (TypeError, UserError) as problem:
        raise UserError(f"{where}: 'question' is damaged: {problem}") from problem


def _sampling_metadata(fields: Mapping[str, Any], where: str) -> SamplingMetadata:
    try:
        early_stopping = {
            str(name): EarlyStopping(tuple(float(t) for t in grid), float(threshold))
            for name, (grid, threshold) in of_kind(fields, "early_stopping", dict, where, {}).items()
        }
    except (TypeError, ValueError) as problem:
        raise UserError(f"{where}: 'early_stopping' must contain temperatures and a threshold") from problem
    return SamplingMetadata(of_kind(fields, "first_lines", bool, where), early_stopping)
