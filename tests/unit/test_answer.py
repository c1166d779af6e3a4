import pyarrow as pa
import pytest

from robust_eval.answer import SCHEMA, answer_table, concat_by_sampler, read_answers, validated
from robust_eval.error import UserError
from robust_eval.runtime.parquet_files import write_parquet

# Figures that float32 holds exactly, so that rows come back equal.
FULL = {
    "question_id": "q1",
    "rewrite": 2,
    "temperature": 0.4,
    "trial": 7,
    "text": "Zoë\nBerg",
    "label": "zoë",
    "correct": True,
    "exact": False,
    "outcome": "ok",
    "weight": 0.1,
    "token_ids": [5, 6],
    "token_logprobs": [-0.5, -0.25],
    "sampling_logprobs": [-1.0, -2.0],
    "top_logprobs": [[-0.5, -1.5], [-0.25, -3.0]],
    "answer_tokens": 1,
    "finish_reason": "stop",
    "prompt_tokens": 20,
    "completion_tokens": 2,
    "reasoning": "A Norwegian name.",
    "reasoning_tokens": 1,
    "answer": "Zoë",
    "rule": "first line",
    "reason": "made up",
    "cached_tokens": 3,
    "form": "choices BA",
    "uncertain": True,
    "served_model": "m-2026-08-06",
    "system_fingerprint": "fp_1",
}
COLUMNS = list(FULL)
OPTIONAL = set(COLUMNS) - {"question_id", "rewrite", "temperature", "trial", "text", "outcome", "weight"}
BARE = {name: value for name, value in FULL.items() if name not in OPTIONAL}


def replaced(name, values):
    """A table of one answer in which one column holds something else."""
    table = answer_table([FULL])
    return table.set_column(COLUMNS.index(name), name, values)


@pytest.fixture
def blocks():
    """Three blocks of different sizes, the second empty."""
    return [
        answer_table([FULL, BARE]),
        answer_table([]),
        answer_table([FULL | {"trial": trial, "text": "x" * trial} for trial in range(5)]),
    ]


def test_the_schema_has_the_columns_of_an_answer():
    assert SCHEMA.names == COLUMNS
    assert {field.name for field in SCHEMA if field.nullable} == OPTIONAL


def test_rows_become_a_table_and_missing_optional_columns_null():
    table = answer_table([FULL, BARE])
    assert table.schema == SCHEMA
    assert table.to_pylist() == [FULL, dict.fromkeys(COLUMNS) | BARE]


def test_rows_may_come_from_an_iterator_and_be_none():
    assert answer_table(iter([FULL])).to_pylist() == [FULL]
    assert answer_table(iter([])).equals(SCHEMA.empty_table())


@pytest.mark.parametrize("column", sorted(set(COLUMNS) - OPTIONAL))
def test_a_missing_required_value_is_refused_by_name(column):
    row = {name: value for name, value in FULL.items() if name != column}
    with pytest.raises(ValueError, match=f"'{column}'"):
        answer_table([FULL, row])


def test_unknown_outcomes_are_refused_with_those_that_are_known():
    rows = [FULL | {"outcome": outcome} for outcome in ("ok", "timeout", "OK", "timeout")]
    with pytest.raises(ValueError, match=r"outcomes must be among ok, .*, not \['OK', 'timeout'\]"):
        answer_table(rows)


@pytest.mark.parametrize("outcome", ["ok", "filtered_prompt", "filtered_reply", "refused", "empty", "invalid", "error"])
def test_every_outcome_of_the_methods_is_known(outcome):
    assert answer_table([FULL | {"outcome": outcome}]).to_pylist() == [FULL | {"outcome": outcome}]


def test_columns_of_a_compatible_type_take_the_type_of_the_schema():
    wide = pa.schema(
        [field.with_type(pa.int64()) if field.type == pa.int32() else field.with_nullable(True) for field in SCHEMA]
    )
    table = pa.Table.from_pylist([FULL], schema=wide)
    assert validated(table).schema == SCHEMA
    assert validated(table).to_pylist() == [FULL]


def test_missing_columns_are_named():
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        validated(answer_table([FULL]).drop_columns(["text", "weight"]))
    assert str(caught.value) == f"an answer table must have the columns {COLUMNS}: ['text', 'weight'] are missing"


def test_a_surplus_column_is_refused_by_name():
    with pytest.raises(ValueError, match="'remark'"):
        validated(answer_table([FULL]).append_column("remark", pa.array(["x"])))


def test_columns_may_come_in_any_order():
    table = answer_table([FULL])
    assert validated(table.select(COLUMNS[::-1])).equals(table)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("trial", pa.array(["first"])),
        ("trial", pa.array([1.5])),
        ("trial", pa.array([2**40])),
        ("temperature", pa.array(["hot"])),
        ("trial", pa.array([[1]])),
        ("text", pa.array([["Anna"]])),
        ("text", pa.array([{"reply": "Anna"}])),
        ("token_ids", pa.array(["5 6"])),
    ],
)
def test_a_column_of_another_type_is_refused(column, values):
    with pytest.raises(ValueError):  # noqa: PT011  # the words are Arrow's
        validated(replaced(column, values))


def read(path):
    """The answers in a file that does not say who asked for them."""
    table = read_answers(path)
    assert table["sampler"].null_count == table.num_rows
    return table.drop_columns("sampler")


def test_tables_of_several_samplers_become_one_that_says_who_asked(tmp_path):
    judged = answer_table([BARE]).append_column("ensemble", pa.array([True]))
    tables = {"greedy": answer_table([FULL]), "exact": answer_table([]), "repetition": judged}
    table = concat_by_sampler(tables)
    assert table.to_pylist() == [
        FULL | {"sampler": "greedy", "ensemble": None},
        dict.fromkeys(COLUMNS) | BARE | {"sampler": "repetition", "ensemble": True},
    ]
    write_parquet(table.drop_columns("ensemble"), tmp_path / "answers.parquet")
    assert read_answers(tmp_path / "answers.parquet").equals(table.drop_columns("ensemble"))


def test_a_table_in_a_parquet_file_is_read_back_equal(tmp_path, blocks):
    write_parquet(pa.concat_tables(blocks), tmp_path / "answers.parquet")
    table = read(tmp_path / "answers.parquet")
    assert table.schema == SCHEMA
    assert table.to_pylist() == [row for block in blocks for row in block.to_pylist()]
    assert [path.name for path in tmp_path.iterdir()] == ["answers.parquet"]


def refusal(path):
    with pytest.raises(UserError) as caught:
        read_answers(path)
    return str(caught.value)


def cut_off(path):
    write_parquet(answer_table([FULL]), path)
    path.write_bytes(path.read_bytes()[:-20])


LACKING = f"an answer table must have the columns {COLUMNS}: ['outcome'] are missing"


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (lambda path: None, ""),
        (lambda path: path.write_bytes(b""), ""),
        (lambda path: path.write_bytes(b"id,text\n1,Paris\n"), ""),
        (lambda path: path.write_bytes(b"PAR1" + b"\0" * 100 + b"PAR1"), ""),
        (lambda path: write_parquet(answer_table([FULL]).drop_columns(["outcome"]), path), LACKING),
        (lambda path: write_parquet(replaced("outcome", pa.array(["timeout"])), path), "outcomes must be among ok, "),
        (lambda path: write_parquet(replaced("text", pa.array([{"reply": "Anna"}])), path), ""),
        (cut_off, ""),
    ],
    ids=["nothing", "empty", "text", "marks alone", "no outcome", "another outcome", "another type", "cut off"],
)
def test_a_file_that_is_no_answer_table_is_refused(write, reason, tmp_path):
    write(path := tmp_path / "answers.parquet")
    assert refusal(path).startswith(f"{path} is not an answer table: {reason}")
