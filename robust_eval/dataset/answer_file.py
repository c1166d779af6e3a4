"""Recorded answers of a Parquet, CSV, TSV or JSON Lines file as an answer table."""

import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq
from numpy.typing import NDArray

from robust_eval.answer import GRADED_COLUMNS, GREEDY, OUTCOMES, SAMPLER, SCHEMA, validated
from robust_eval.dataset.file_formats import DelimitedTable
from robust_eval.dataset.record import missing_column, refuse_misspelt
from robust_eval.error import UserError, first_line
from robust_eval.runtime.files import file_encoding, regular, text_lines
from robust_eval.runtime.finish_reasons import ERROR, FILTER, end_of
from robust_eval.runtime.json_files import json_lines, parsed_json
from robust_eval.runtime.parquet_files import read_parquet
from robust_eval.runtime.text import excerpt

_SCHEMA = SCHEMA.append(pa.field(SAMPLER, pa.string(), nullable=False))
COLUMNS = tuple(name for name in _SCHEMA.names if name not in GRADED_COLUMNS)
"""Columns of a file: without those of the grader, the meaning and verdict of an answer."""
RECORDED = "recorded"
"""Value of the column :data:`SAMPLER` for answers above temperature 0 of a file without it."""
MAX_CHARACTERS = 100_000
"""Maximum number of characters of a text in a text file, except of reasoning: a longer one is a fault of the file."""
_BLOCK = 1 << 24
"""Number of bytes that are parsed together."""
_WHOLE_FLOAT = r"^\s*(-?\d+)\.0\s*$"
_ROUNDING = 1e-3
"""Maximum of the logarithm of a probability, by rounding."""


@dataclass(frozen=True)
class AnswerFile:
    """File of answers; ``columns`` maps names of :data:`COLUMNS` to other names in the file."""

    path: Path
    columns: Mapping[str, str]

    def read(self, temperature: float | None) -> pa.Table:
        """Return the recorded answers of the file in its order, not graded, with the column :data:`SAMPLER`.

        ``temperature`` is that of all answers in a file without such a column; an empty column counts as missing.
        UserError names the first wrong row.
        """
        columns = self._typed(self._raw())
        if "temperature" in self.columns and "temperature" not in columns and temperature is None:
            raise UserError(
                f"{self.path} contains no temperatures, because column {self._theirs('temperature')!r} is empty: fill "
                "it, or set sampler.recorded.temperature to the temperature of all answers"
            )
        if ("temperature" in columns) == (temperature is not None):
            raise UserError(
                f"{self.path} has a column of temperatures: remove sampler.recorded.temperature"
                if temperature is not None
                else f"{self.path} has no column of temperatures: set sampler.recorded.columns={{temperature: …}} to "
                "the column, or sampler.recorded.temperature to the temperature of all answers"
            )
        return self._completed(columns, temperature)

    def refuse(self, row: int, problem: str) -> UserError:
        """Return a UserError that names a row of the answer file (from 0) by the number that an editor shows."""
        return UserError(f"{self.path}, {self._place(row)}: {problem}")

    def _place(self, row: int) -> str:
        if self._kind == ".jsonl":
            numbers = [number for number, line in text_lines(self.path) if line.strip()]
            return f"line {numbers[row]}" if row < len(numbers) else f"row {row + 1}"
        return f"row {row + 1}" if self._kind == ".parquet" else f"row {row + 2}"  # the first one names the columns

    @property
    def _kind(self) -> str:
        return self.path.suffix.lower()

    @property
    def _names(self) -> dict[str, str]:
        """The answer file's columns by our names, without those that another name is mapped to."""
        taken = set(self.columns.values())
        return {name: self._theirs(name) for name in COLUMNS if name in self.columns or name not in taken}

    def _theirs(self, name: str) -> str:
        return self.columns.get(name, name)

    def _raw(self) -> pa.Table:
        """Return the required columns with the names and types of the answer file."""
        readers: dict[str, Callable[[], pa.Table]] = {
            ".parquet": lambda: read_parquet(self.path, self._columns_to_read(pq.read_schema(self.path).names)),
            ".csv": self._read_csv,
            ".tsv": self._read_csv,
            ".jsonl": self._read_json,
        }
        if self._kind not in readers:
            raise UserError(f"sampler.recorded.file must end in {', '.join(readers)}; {self.path} does not")
        try:
            regular(self.path)
            table = readers[self._kind]()
            table.validate(full=True)
        except OSError as problem:
            raise UserError(f"{self.path} cannot be read: {problem.strerror or first_line(problem)}") from problem
        except (pa.ArrowException, UnicodeDecodeError) as problem:
            if self._kind != ".parquet":
                deque(text_lines(self.path), maxlen=0)  # names the first line that is no UTF-8
            if row := re.search(r"Row #(\d+): (.{0,200})", str(problem)):
                raise UserError(f"{self.path}, row {row.group(1)}: {row.group(2)}") from problem
            raise UserError(f"{self.path} cannot be read: {first_line(problem)}") from problem
        if not table.num_rows:
            raise UserError(f"{self.path} contains no answers")
        return table

    def _read_csv(self) -> pa.Table:
        """Return all cells of a CSV file as texts, an unquoted empty one as null, without blank rows at the end."""
        source = DelimitedTable(self.path)
        line, header = source.verified_header(_BLOCK)
        names = self._columns_to_read(list(filter(None, header)))
        with open(self.path, "rb") as raw:
            encoding = file_encoding(raw).removesuffix("-sig")
        table = pa_csv.read_csv(
            self.path,
            # one thread: only then does an error say in which row
            read_options=pa_csv.ReadOptions(
                use_threads=False,
                block_size=_BLOCK,
                encoding=encoding,
                skip_rows=line,
                column_names=[name or f"column {place}" for place, name in enumerate(header)],
            ),
            parse_options=pa_csv.ParseOptions(delimiter=source.separator, newlines_in_values=True),
            convert_options=pa_csv.ConvertOptions(
                include_columns=names,
                column_types=dict.fromkeys(names, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        filled = np.zeros(table.num_rows, dtype=bool)
        for column in table.columns:
            filled |= column.is_valid().to_numpy()
        return table.slice(0, int(np.flatnonzero(filled)[-1]) + 1 if filled.any() else 0)

    def _read_json(self) -> pa.Table:
        fields = [pa.field(theirs, _in_json(_SCHEMA.field(name).type)) for name, theirs in self._names.items()]
        identifier = self._theirs("question_id")
        first: Any = next(json_lines(self.path), ("", "", {}))[2]
        if isinstance(first, dict) and type(first.get(identifier)) is int:
            fields = [pa.field(identifier, pa.int64()) if each.name == identifier else each for each in fields]
        with open(self.path, "rb") as raw:
            is_utf8 = file_encoding(raw).startswith("utf-8")
        try:
            table = pa_json.read_json(
                self.path if is_utf8 else pa.BufferReader("".join(line for _, line in text_lines(self.path)).encode()),
                read_options=pa_json.ReadOptions(block_size=_BLOCK),
                parse_options=pa_json.ParseOptions(
                    explicit_schema=pa.schema(fields), unexpected_field_behavior="ignore", newlines_in_values=False
                ),
            )
            table.validate(full=True)
        except (pa.ArrowException, UnicodeDecodeError):
            self._refuse_line(fields)
            raise
        filled = [name for name in table.column_names if table[name].null_count < table.num_rows]
        if table.num_rows:
            self._columns_to_read(filled, [*filled, *(name for name in first if name not in filled)])
        return table.select(filled)

    def _columns_to_read(self, present: Sequence[str], listed_names: Sequence[str] | None = None) -> list[str]:
        """Return the names of the file's columns to read, among those ``present``; messages list ``listed_names``.

        UserError if one is missing or occurs twice.
        """
        listed_names = present if listed_names is None else listed_names
        if not listed_names:
            raise UserError(f"{self.path} contains no answers")
        for name in ("question_id", "text", *self.columns):
            if name not in self._names:
                other = next(each for each, theirs in self.columns.items() if theirs == name)
                raise UserError(
                    f"sampler.recorded.columns reads {other} from column {name!r} of {self.path}, so that no column is "
                    f"left for {name}: set 'sampler.recorded.columns={{{other}: {name}, {name}: …}}'"
                )
            if self._names[name] not in present:
                if self._theirs(name) not in listed_names:
                    raise missing_column(self.path, self._theirs(name), name, listed_names, "sampler.recorded.columns")
                if name in ("question_id", "text"):
                    raise UserError(f"{self.path} contains no answers: column {self._theirs(name)!r} is empty")
        unknown = [
            theirs for theirs in listed_names if theirs not in _SCHEMA.names and theirs not in self.columns.values()
        ]
        missing = [name for name, theirs in self._names.items() if theirs not in present and len(name) > len("text")]
        refuse_misspelt(self.path, unknown, missing, "sampler.recorded.columns")
        names = [theirs for theirs in self._names.values() if theirs in present]
        for theirs in names:
            if list(present).count(theirs) > 1:
                raise UserError(f"{self.path} has several columns named {theirs!r}")
        return names

    def _refuse_line(self, fields: Sequence[pa.Field]) -> None:
        """Raise UserError for the first line that is no JSON object with such fields, which Arrow does not name."""
        for where, line, record in json_lines(self.path, object_pairs_hook=_pairs):
            if not isinstance(record, dict):
                raise UserError(f"{where}: an answer must be a JSON object, not {line.strip()[:40]!r}")
            for field in fields:
                value = record.get(field.name)
                if value is not None and not _is(value, field.type):
                    raise UserError(f"{where}: {field.name!r} must be {_named(field.type)}, not {excerpt(value)}")

    def _typed(self, raw: pa.Table) -> dict[str, pa.ChunkedArray]:
        """Return the answer file's non-empty columns by our names, with the types of an answer table."""
        columns = {}
        for name, theirs in self._names.items():
            if theirs in raw.column_names and raw[theirs].null_count < raw.num_rows:
                columns[name] = self._converted(name, raw[theirs])
        if "text" not in columns:
            raise UserError(f"{self.path} contains no answers: column {self._theirs('text')!r} is empty")
        ids = columns.get("question_id")
        if self._kind in (".csv", ".tsv") and ids and pc.all(pc.match_substring_regex(ids, _WHOLE_FLOAT)).as_py():
            columns["question_id"] = pc.replace_substring_regex(ids, _WHOLE_FLOAT, r"\1")  # as in data sets
        for name, column in columns.items():
            if pa.types.is_string(column.type) and name != "reasoning" and self._kind != ".parquet":
                self._refuse_where(
                    pc.greater(pc.utf8_length(column), MAX_CHARACTERS),
                    lambda row, name=name, column=column: (  # type: ignore[misc]
                        f"{self._theirs(name)!r} has {len(column[row].as_py()):,} characters; the maximum is "
                        f"{MAX_CHARACTERS:,}"
                    ),
                )
        return columns

    def _converted(self, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
        kind = _SCHEMA.field(name).type
        try:
            return _cast(column, kind)
        except _WRONG:
            low, high = 0, len(column)  # the first row that is wrong lies in this range
            while high - low > 1:
                middle = (low + high) // 2
                try:
                    _cast(column.slice(low, middle - low), kind)
                    low = middle
                except _WRONG:
                    high = middle
            value = excerpt(column[low].as_py())
            raise self.refuse(low, f"{self._theirs(name)!r} must be {_named(kind)}, not {value}") from None

    def _refuse_where(self, wrong: Any, problem: Callable[[int], str]) -> None:
        """Raise UserError for the first row of the file in which ``wrong`` is true."""
        if isinstance(wrong, pa.ChunkedArray):
            wrong = wrong.fill_null(False).to_numpy(zero_copy_only=False)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise self.refuse(row, problem(row))

    def _completed(self, columns_read: dict[str, pa.ChunkedArray], temperature: float | None) -> pa.Table:
        """Return an answer table with defaults for missing columns of the file."""
        number = len(columns_read["question_id"]) if "question_id" in columns_read else 0
        for name in ("question_id", "temperature", "trial"):
            if name in columns_read:
                missing = f"{self._theirs(name)!r} is missing"
                self._refuse_where(columns_read[name].is_null(), lambda row, missing=missing: missing)  # type: ignore[misc]
        if not number:
            raise UserError(f"{self.path} contains no answers: column {self._theirs('question_id')!r} is empty")
        text = columns_read["text"]
        by_text = pc.if_else(pc.equal(text, ""), "empty", "ok").fill_null("invalid")
        if "finish_reason" in columns_read:
            columns_read["finish_reason"] = ends = _sorted_ends(columns_read["finish_reason"])
            by_text = pc.if_else(pc.equal(ends, ERROR).fill_null(False), "error", by_text)
            by_text = pc.if_else(pc.equal(ends, FILTER).fill_null(False), "filtered_reply", by_text)
        outcome = pc.coalesce(columns_read["outcome"], by_text) if "outcome" in columns_read else by_text
        columns: dict[str, Any] = {
            "rewrite": pa.chunked_array([np.zeros(number, np.int32)]),
            "temperature": pa.chunked_array([np.full(number, temperature, dtype=np.float64)]),
            SAMPLER: pa.chunked_array([[RECORDED] * number]),
            **columns_read,
            "text": text.fill_null(""),
            "outcome": outcome,
        }
        columns["rewrite"] = columns["rewrite"].fill_null(0)
        self._refuse_unknown_values(columns)
        samplers = columns[SAMPLER].fill_null(RECORDED)
        columns[SAMPLER] = pc.if_else(pc.equal(columns["temperature"], 0), GREEDY, samplers)
        condition = groups(*(columns[name] for name in (SAMPLER, "question_id", "rewrite", "temperature")))
        if "trial" not in columns:
            columns["trial"] = pa.array(_counted(condition), pa.int32())
        self._refuse_repetitions(columns, condition)
        share = pa.chunked_array([1 / np.bincount(condition)[condition]])
        columns["weight"] = pc.coalesce(columns_read["weight"], share) if "weight" in columns_read else share
        arrays = [columns.get(field.name, pa.nulls(number, field.type)) for field in SCHEMA]
        table = validated(pa.table(dict(zip(SCHEMA.names, arrays, strict=True))))
        return table.append_column(_SCHEMA.field(SAMPLER), columns[SAMPLER]).combine_chunks()

    def _refuse_unknown_values(self, columns: Mapping[str, Any]) -> None:
        """Raise UserError for the first answer with a value that has the right type, but is invalid."""

        def refuse(name: str, right: Any, expected: str) -> None:
            column = columns[name]
            self._refuse_where(
                ~np.asarray(right),
                lambda row: f"{self._theirs(name)!r} must be {expected}, not {excerpt(column[row].as_py())}",
            )

        counts = ("prompt_tokens", "completion_tokens", "reasoning_tokens", "cached_tokens")
        for name in ("rewrite", "trial", "answer_tokens", *counts):
            if name in columns:
                refuse(name, columns[name].fill_null(0).to_numpy() >= 0, "0 or more")
        t = columns["temperature"].to_numpy()
        is_valid = ((t >= 0) & np.isfinite(t)) | np.isnan(t)  # NaN: the model's own
        refuse("temperature", is_valid, "a finite number of 0 or more")
        if "weight" in columns:
            weight = columns["weight"].fill_null(1).to_numpy()
            refuse("weight", (weight >= 0) & (weight <= 1), "a share between 0 and 1")
        is_known = pc.is_in(columns["outcome"], value_set=pa.array(OUTCOMES))
        refuse("outcome", is_known.to_numpy(zero_copy_only=False), f"one of {', '.join(OUTCOMES)}")
        for name in ("token_logprobs", "sampling_logprobs", "top_logprobs"):
            if name in columns:
                refuse(name, _are_logarithms(columns[name]), "natural logarithms of probabilities, at most 0")

    def _refuse_repetitions(self, columns: Mapping[str, Any], condition: NDArray[np.intp]) -> None:
        """Raise UserError for an answer with an earlier one's sampler, question, rewrite, temperature and trial."""
        _, first, inverse = np.unique(groups(condition, columns["trial"]), return_index=True, return_inverse=True)
        earlier = first[inverse]

        def repetition(row: int) -> str:
            place = ", ".join(
                f"{name} {columns[name][row].as_py()!r}" for name in ("question_id", "rewrite", "temperature", "trial")
            )
            return f"the answer is also in {self._place(int(earlier[row]))} ({place})"

        self._refuse_where(earlier != np.arange(len(earlier)), repetition)


def _sorted_ends(reasons: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return finish reasons in their standard spelling; an unknown one is unchanged."""
    words = pc.unique(reasons)
    sorted_words = pa.array([end_of(word) or word for word in words.to_pylist()], pa.string())
    return sorted_words.take(pc.index_in(reasons, value_set=words).combine_chunks())


_WRONG = (pa.ArrowException, ValueError, TypeError, RecursionError)
"""Exceptions for values of another type."""


def groups(*columns: Any) -> NDArray[np.intp]:
    """Return (n,) a number for each row, equal in rows with equal columns."""
    code = np.zeros(len(columns[0]), dtype=np.intp)
    for column in columns:
        if not isinstance(column, np.ndarray):
            text = pa.types.is_string(column.type)
            column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
            column = (column.dictionary_encode().indices if text else column).to_numpy()
        _, value = np.unique(column, return_inverse=True)
        _, code = np.unique(code * (value.max(initial=0) + 1) + value, return_inverse=True)
    return code


def _counted(condition: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return (n,) the number of earlier answers under the same condition."""
    counts: NDArray[np.intp] = pd.Series(condition).groupby(condition).cumcount().to_numpy()
    return counts


def _are_logarithms(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Return (n,) True for each recorded answer whose numbers may all be logarithms of probabilities."""
    right = np.ones(len(column), dtype=bool)
    row, values = np.arange(len(column)), column.combine_chunks()
    while pa.types.is_list(values.type):
        row, values = row[pc.list_parent_indices(values).to_numpy()], pc.list_flatten(values)
    right[row[~(values.to_numpy(zero_copy_only=False) <= _ROUNDING)]] = False
    return right


def _in_json(kind: pa.DataType) -> pa.DataType:
    """Return the type for reading a JSON answer file: whole numbers may be written 1.0."""
    return pa.float64() if pa.types.is_integer(kind) else kind


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return a column of the file with another type; raise one of ``_WRONG`` for values of a different meaning."""
    value_type = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    text = pa.types.is_string(value_type) or pa.types.is_large_string(value_type)
    if pa.types.is_list(kind):
        if text:
            return pa.chunked_array(
                [[None if cell is None else parsed_json(cell) for cell in column.to_pylist()]], kind
            )
        return column.cast(kind)
    if pa.types.is_string(kind):
        if not text and not pa.types.is_integer(value_type):
            raise TypeError(value_type)
        return column.cast(kind)
    if pa.types.is_boolean(value_type):
        raise TypeError(value_type)
    return column.cast(pa.float64()).cast(kind)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a recorded answer's JSON object; ValueError for a duplicate name."""
    names = [name for name, _ in pairs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{twice[0]!r} occurs twice")
    return dict(pairs)


def _is(value: Any, kind: pa.DataType) -> bool:
    """Return True if a JSON value is of the type of its column."""
    if pa.types.is_list(kind):
        return isinstance(value, list) and all(_is(item, kind.value_type) for item in value)
    if pa.types.is_string(kind):
        return isinstance(value, str)
    whole = isinstance(value, int) and not isinstance(value, bool)
    return whole or (isinstance(value, float) and not pa.types.is_integer(kind))


def _named(kind: pa.DataType) -> str:
    """Return the name of an answer column's type for messages."""
    if pa.types.is_list(kind):
        return f"a list of {'lists of numbers' if pa.types.is_list(kind.value_type) else 'numbers'}"
    if pa.types.is_string(kind):
        return "a string"
    return "a whole number" if pa.types.is_integer(kind) else "a number"
