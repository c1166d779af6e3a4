"""Conversion of replies to Arrow tables, and of Arrow tables to compressed bytes and back."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from robust_eval.answer import EXACT_CURVES, SCHEMA, validated
from robust_eval.error import UserError
from robust_eval.model.base import Completion, Item, Reply, Request


class ReplyTables(NamedTuple):
    """Reply as Arrow tables: ``answers`` of :data:`robust_eval.answer.SCHEMA`, not yet graded, and any ``curve``.

    ``share`` is the fraction of the whole reply. ``packed`` holds the answers as bytes if they were received as bytes.
    """

    request: Request
    answers: pa.Table
    curve: pa.Table | None
    share: float
    packed: bytes | None = None


def tables_of(replies: Sequence[Any]) -> list[ReplyTables]:
    """Return the replies as Arrow tables, those of other processes as they are; UserError if a model yielded anything
    else.
    """
    if converted := [reply for reply in replies if isinstance(reply, ReplyTables)]:
        return converted
    for reply in replies:
        if not isinstance(reply, Reply):
            raise UserError(f"complete() must yield lists of Reply, not of {type(reply).__name__}")
        for answer in reply.completions:
            if not isinstance(answer, Completion) or not isinstance(answer.text, str):
                raise UserError(f"completions of a Reply must be Completion objects with a text, not {answer!r:.60}")
    curves = [None if reply.curve is None else curve_of(reply) for reply in replies]
    tables = zip(replies, answers_of(replies), curves, strict=True)
    return [ReplyTables(reply.request, answers, curve, reply.share) for reply, answers, curve in tables]


def merged_by_request(block: Sequence[ReplyTables]) -> list[ReplyTables]:
    """Return the tables of replies merged by request, in the order of the first ones."""
    by_item: dict[Item, list[ReplyTables]] = {}
    for each in block:
        by_item.setdefault(each.request.item, []).append(each)
    return [pieces[0] if len(pieces) == 1 else _concatenated(pieces) for pieces in by_item.values()]


def _concatenated(pieces: Sequence[ReplyTables]) -> ReplyTables:
    answers = pa.concat_tables([piece.answers for piece in pieces])
    curve = next((piece.curve for piece in reversed(pieces) if piece.curve is not None), None)
    return ReplyTables(pieces[0].request, answers, curve, sum(piece.share for piece in pieces))


_LENGTH = 8
"""Number of bytes for the length of a batch."""


def to_bytes(table: pa.Table) -> bytes:
    """Return an Arrow table as bytes: the length of its record batch, and the batch, compressed, without the schema."""
    (batch,) = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
    raw = batch.serialize()
    return len(raw).to_bytes(_LENGTH, "little") + bytes(pa.compress(raw, codec="zstd", asbytes=True))


def from_bytes(value: bytes, schema: pa.Schema) -> pa.Table:
    """Return the Arrow table that :func:`to_bytes` serialized."""
    length = int.from_bytes(value[:_LENGTH], "little")
    raw = pa.decompress(value[_LENGTH:], decompressed_size=length, codec="zstd")
    return pa.Table.from_batches([pa.ipc.read_record_batch(raw, schema)])


def answers_of(replies: Sequence[Reply]) -> list[pa.Table]:
    """Return a table for each reply: its completions as rows of the answer table, not yet graded."""
    completions = [completion for reply in replies for completion in reply.completions]
    requests = [reply.request for reply in replies for _ in reply.completions]
    columns: dict[str, Any] = dict(zip(Completion._fields, zip(*completions, strict=True), strict=False))
    columns |= {
        "question_id": [request.question_id for request in requests],
        "rewrite": [request.variant for request in requests],
        "outcome": [each.outcome or ("ok" if each.text.strip() else "empty") for each in completions],
        "completion_tokens": [
            each.completion_tokens if each.token_ids is None else len(each.token_ids) + (each.reasoning_tokens or 0)
            for each in completions
        ],
    }
    nulls = [None] * len(completions)
    table = validated(pa.table({name: columns.get(name, nulls) for name in SCHEMA.names}, schema=SCHEMA))
    ends = np.cumsum([len(reply.completions) for reply in replies])
    return [
        table.slice(end - len(reply.completions), len(reply.completions))
        for end, reply in zip(ends, replies, strict=True)
    ]


def curve_of(reply: Reply) -> pa.Table:
    """Return the accuracy curve of a reply as an Arrow table of curves; no rows without a curve.

    An unbiased estimate beyond its bounds is clipped.
    """
    if reply.curve is None:
        return EXACT_CURVES.empty_table()
    rows = len(reply.curve.temperatures)
    columns = {name: getattr(reply.curve, name) for name in EXACT_CURVES.names[3:]}
    columns["accuracy"] = np.clip(reply.curve.accuracy, reply.curve.lower, reply.curve.upper)
    columns["how"] = [None] * rows if reply.curve.how is None else reply.curve.how
    return pa.table(
        {
            "question_id": [reply.request.question_id] * rows,
            "rewrite": [reply.request.variant] * rows,
            "temperature": reply.curve.temperatures,
            **columns,
        },
        schema=EXACT_CURVES,
    )
