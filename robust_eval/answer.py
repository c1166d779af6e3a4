"""Answer table: a row per answer, the interface between sampling and scoring.

Samplers and models fill all columns but the :data:`GRADED_COLUMNS`, which readers and graders fill; these also change
the outcome of a reply without an answer. One of k trials has the weight 1/k, an enumerated answer its probability.
For metrics, ``Measured`` (metric/score.py) sets the weight of each trial to 1, so that sums are exact counts.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from robust_eval.error import UserError
from robust_eval.runtime.parquet_files import read_parquet

ABSTAINED = "abstained"
"""Outcome of a reply that says that it does not know, cannot tell or will not guess. It is wrong, except of a question
without an answer, and no refusal."""
OUTCOMES = ("ok", "filtered_prompt", "filtered_reply", "refused", "abstained", "empty", "invalid", "error")
"""The possible outcomes of a request (docs/methods.md, §0)."""
NO_REPLY = ("filtered_prompt", "filtered_reply", "error")
"""Outcomes without a reply, left out of every denominator; all other outcomes count as replies."""
NO_ANSWER = ("refused", "empty", "invalid")
"""Outcomes of a reply without an answer, which is wrong whatever its text."""
ABSTENTION = "(abstained)"
"""Label of all abstentions; no normalised form has parentheses."""
DEFAULT_TEMPERATURE = math.nan
"""Temperature of a model without a temperature parameter. Use this object as a dictionary key, because NaN ≠ NaN."""

SCHEMA = pa.schema(
    [
        pa.field("question_id", pa.string(), nullable=False),
        pa.field(
            "rewrite", pa.int32(), nullable=False
        ),  # number of the prompt (Request.variant); 0: the original question
        pa.field("temperature", pa.float64(), nullable=False),  # NaN: the model's own
        pa.field("trial", pa.int32(), nullable=False),
        pa.field("text", pa.string(), nullable=False),  # the whole reply
        pa.field("label", pa.string()),  # the category of the answer: a letter, or the normalised text
        pa.field("correct", pa.bool_()),  # null: there is no gold answer
        pa.field("exact", pa.bool_()),  # equal to an accepted answer, not only containing one
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("weight", pa.float64(), nullable=False),
        pa.field("token_ids", pa.list_(pa.int32())),
        pa.field("token_logprobs", pa.list_(pa.float32())),  # natural log, at temperature 1, before any truncation
        pa.field("sampling_logprobs", pa.list_(pa.float32())),  # natural log, at the sampling temperature
        pa.field("top_logprobs", pa.list_(pa.list_(pa.float32()))),  # per token, largest first, at temperature 1
        pa.field("answer_tokens", pa.int32()),  # number of leading tokens with the answer, without an end token
        pa.field("finish_reason", pa.string()),  # stop | length | filter | tool | closed (its verdict is certain)
        pa.field("prompt_tokens", pa.int32()),
        pa.field("completion_tokens", pa.int32()),  # including those of the reasoning
        pa.field("reasoning", pa.string()),  # reasoning that is separate from the reply
        pa.field("reasoning_tokens", pa.int32()),
        pa.field("answer", pa.string()),  # extracted answer, in one line; null: none
        pa.field("rule", pa.string()),  # extraction rule
        pa.field("reason", pa.string()),  # why a reply is invalid
        pa.field("cached_tokens", pa.int32()),  # prompt tokens from the service's cache
        pa.field("form", pa.string()),  # form of the question, if not its own: choices CAB
        pa.field("uncertain", pa.bool_()),  # the narrow and the wide scope of the reply disagree on right or wrong
        pa.field("served_model", pa.string()),  # the service's name of the model
        pa.field("system_fingerprint", pa.string()),  # the service's id of the build
    ]
)
_REQUIRED = tuple(field.name for field in SCHEMA if not field.nullable)
SERVED = ("served_model", "system_fingerprint")
"""Columns with a service's names of the model and its build; null where it gives none, and for local models."""

GRADED_COLUMNS = ("label", "correct", "exact", "answer", "rule", "reason", "uncertain")
"""Columns that readers and graders fill: the meaning of an answer and its verdict."""

EXACT_CURVES = pa.schema(
    [
        pa.field("question_id", pa.string(), nullable=False),
        pa.field("rewrite", pa.int32(), nullable=False),
        pa.field("temperature", pa.float64(), nullable=False),
        pa.field("accuracy", pa.float64(), nullable=False),  # within the bounds
        pa.field("standard_error", pa.float64(), nullable=False),  # of the sampling alone, for this one question
        pa.field("lower", pa.float64(), nullable=False),  # guaranteed bounds, by default 0 and 1
        pa.field("upper", pa.float64(), nullable=False),
        pa.field("how", pa.string()),  # estimator of a point: bounds | draws; null: that of the whole curve
    ]
)
"""The probability of a right answer by question and temperature, where a model computes more than trials."""


SAMPLER = "sampler"
"""Column of a run's files with the sampler of an answer; it is not in :data:`SCHEMA`."""
GREEDY = "greedy"
"""The value of that column for greedy answers, which all samplers share."""


class EarlyStopping(NamedTuple):
    """Early stopping of a sampler (docs/methods.md, §1): the ``temperatures`` were sampled in order, each until it was
    settled whether the accuracy falls below the ``threshold``.
    """

    temperatures: tuple[float, ...]
    threshold: float


_ROWS_AT_ONCE = 1 << 14
"""Number of rows that are Python objects at once, to limit the memory for large tables."""


class Answers(NamedTuple):
    """Answer table with accuracy curves: tables of :data:`SCHEMA` and of :data:`EXACT_CURVES`, empty without any."""

    table: pa.Table
    exact_curves: pa.Table = EXACT_CURVES.empty_table()


def answer_table(records: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return records (mappings of column to value) as a table of :data:`SCHEMA`; missing nullable values are null."""
    return validated(pa.Table.from_pylist(list(records), schema=SCHEMA))


def with_columns(table: pa.Table, columns: Mapping[str, Sequence[Any] | pa.Array]) -> pa.Table:
    """Return an answer table with new values in columns of :data:`SCHEMA`."""
    for name, values in columns.items():
        field = SCHEMA.field(name)
        values = values if isinstance(values, pa.Array) else pa.array(values, field.type)
        table = table.set_column(table.schema.get_field_index(name), field, values)
    return table


def concat_by_sampler(tables: Mapping[str, pa.Table]) -> pa.Table:
    """Concatenate answer tables, with the name of each table in the column :data:`SAMPLER`.

    Columns that a table lacks are null in its rows.
    """
    labelled = [
        table.append_column(SAMPLER, pa.array([name] * table.num_rows, pa.string())) for name, table in tables.items()
    ]
    return pa.concat_tables(labelled, promote_options="default")


def rows(table: pa.Table, *columns: str) -> Iterator[tuple[Any, ...]]:
    """Iterate over the rows of an answer table: tuples of the values of these columns.

    A temperature of NaN is :data:`DEFAULT_TEMPERATURE`.
    """
    for batch in table.select(columns).to_batches(max_chunksize=_ROWS_AT_ONCE):
        values = (
            _temperatures(batch[place]) if name == "temperature" else batch[place].to_pylist()
            for place, name in enumerate(columns)
        )
        yield from zip(*values, strict=True)


def _temperatures(column: pa.Array) -> list[float]:
    return [DEFAULT_TEMPERATURE if t != t else t for t in column.to_pylist()]


def has_greedy(baseline: pa.Table) -> bool:
    """Return True if baseline answers are greedy, and not the most frequent ones of a model without temperature 0."""
    return bool((baseline["temperature"].to_numpy() == 0).any())


def most_frequent(graded: pa.Table) -> pa.Array:
    """Return for each question the row of the first answer that has its most frequent label; of labels as frequent, the
    first. An answer without a label has no vote.
    """
    by_question: dict[str, list[tuple[int, str | None]]] = {}
    for row, (question_id, label) in enumerate(rows(graded, "question_id", "label")):
        by_question.setdefault(question_id, []).append((row, label))
    chosen = []
    for answers in by_question.values():
        votes = Counter(label for _, label in answers if label is not None)
        winner = votes.most_common(1)[0][0] if votes else None
        chosen.append(next(row for row, label in answers if label == winner))
    return pa.array(chosen, pa.int64())


def temperatures_of(table: pa.Table) -> list[float]:
    """Return the temperatures of an answer table, ascending; :data:`DEFAULT_TEMPERATURE` last."""
    values = np.unique(table["temperature"].to_numpy()).tolist()
    return [DEFAULT_TEMPERATURE if t != t else t for t in values]


def has_outcome(table: pa.Table, outcomes: Sequence[str]) -> NDArray[np.bool_]:
    """Return (N,) True for each row of an answer table that has one of these outcomes."""
    among: NDArray[np.bool_] = pc.is_in(table["outcome"], value_set=pa.array(outcomes, pa.string())).to_numpy()
    return among


def served_as(tables: Iterable[pa.Table], column: str) -> set[str]:
    """Return the names in one of the columns :data:`SERVED` of answer tables."""
    return {name for table in tables for name in pc.unique(table[column]).to_pylist() if name is not None}


def at_temperature(table: pa.Table, temperature: float) -> pa.Table:
    """Return the rows of an answer table that have this temperature."""
    column = table["temperature"]
    return filtered(table, pc.is_nan(column) if math.isnan(temperature) else pc.equal(column, temperature))


def filtered(table: pa.Table, chosen: pa.ChunkedArray | NDArray[np.bool_]) -> pa.Table:
    """Return the chosen rows of an answer table; the table itself, not a copy, where all are chosen."""
    return table if np.all(chosen) else table.filter(chosen)


def temperature_name(temperature: float) -> str:
    """Return the temperature of an answer as text for names and sentences.

    >>> temperature_name(0.70), temperature_name(DEFAULT_TEMPERATURE)
    ('0.7', 'own')
    """
    return "own" if math.isnan(temperature) else f"{temperature:g}"


def validated(table: pa.Table) -> pa.Table:
    """Return an answer table cast to :data:`SCHEMA`; ValueError where columns, types or outcomes differ from it."""
    missing = [name for name in SCHEMA.names if name not in table.schema.names]
    if missing:
        raise ValueError(f"an answer table must have the columns {SCHEMA.names}: {missing} are missing")
    if surplus := [name for name in table.schema.names if name not in SCHEMA.names]:
        raise ValueError(f"an answer table must have the columns {SCHEMA.names}: {surplus} are unknown")
    is_valid = table.schema.equals(SCHEMA) and not any(table[name].null_count for name in _REQUIRED)
    for field in () if is_valid else SCHEMA:  # casting takes as long as making a small table
        try:
            table[field.name].cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise ValueError(f"column {field.name!r} of an answer table must be {field.type}: {error}") from error
    if not is_valid:
        table = table.select(SCHEMA.names).cast(SCHEMA)
    unknown = set(table["outcome"].unique().to_pylist()) - set(OUTCOMES)
    if unknown:
        raise ValueError(f"outcomes must be among {', '.join(OUTCOMES)}, not {sorted(unknown)}")
    return table


_METADATA_KEY = b"robust_eval.asked"


class SamplingMetadata(NamedTuple):
    """Metadata of an answer table's file: whether replies ended with their first line; early stopping, and axis and
    estimator of the conditions, by sampler.
    """

    first_lines: bool
    early_stopping: Mapping[str, EarlyStopping]
    conditions: Mapping[str, tuple[str, str]] = {}


def with_sampling_metadata(table: pa.Table, metadata: SamplingMetadata) -> pa.Table:
    """Return an answer table with its sampling metadata in the schema."""
    return table.replace_schema_metadata(
        {**(table.schema.metadata or {}), _METADATA_KEY: json.dumps(metadata).encode()}
    )


def read_sampling_metadata(path: Path) -> SamplingMetadata | None:
    """Return the sampling metadata of an answer table's file; None without it, as for answers from elsewhere."""
    try:
        metadata = (pq.read_schema(path).metadata or {}).get(_METADATA_KEY)
    except (OSError, pa.ArrowInvalid):  # of another or broken file, which the reader of the answers reports
        return None
    if metadata is None:
        return None
    first_lines, early_stopping, *conditions = json.loads(metadata)
    return SamplingMetadata(
        first_lines, {name: EarlyStopping(tuple(grid), at) for name, (grid, at) in early_stopping.items()}, *conditions
    )


def read_answers(path: Path) -> pa.Table:
    """Read an answer table from a Parquet file, with the column :data:`SAMPLER`, which is null where the file has none.

    UserError where the file is no answer table.
    """
    try:
        table = read_parquet(path)
        if SAMPLER not in table.column_names:
            table = table.append_column(SAMPLER, pa.nulls(table.num_rows, pa.string()))
        return validated(table.drop_columns(SAMPLER)).append_column(SAMPLER, table[SAMPLER])
    except UserError:
        raise
    except (OSError, ValueError) as problem:
        raise UserError(f"{path} is not an answer table: {problem}") from problem
