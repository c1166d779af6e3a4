import pyarrow as pa
import pytest

from robust_eval.store.keys_and_rows import Tables

N = pa.schema({"n": pa.int64(), "text": pa.string()})


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": list(numbers), "text": [f"row {n}" for n in numbers]}, schema=N)


def test_many_tables_come_back_in_any_order():
    tables = Tables[int](N)
    for name in range(2500):
        tables[name] = rows(*range(name, name + name % 3))
    names = [*range(2499, -1, -2), *range(0, 2500, 2)]
    expected = [n for name in names for n in range(name, name + name % 3)]
    found = tables.together(names)
    assert found == rows(*expected)
    assert all(column.num_chunks == 1 for column in found.columns)
    assert tables.names() == set(range(2500))


def test_the_last_table_of_a_name_counts_and_others_may_be_left_out():
    tables = Tables[str](N)
    tables["a"], tables["b"], tables["c"] = rows(1), rows(2, 3), rows(4)
    tables["a"] = rows(5)
    assert "a" in tables
    assert "d" not in tables
    assert tables.together(["a", "c"]) == rows(5, 4)
    assert tables.together(["a", "b", "c"]) == rows(5, 2, 3, 4)


def test_no_table_is_an_empty_one_and_an_unknown_name_is_refused():
    tables = Tables[str](N)
    assert tables.together([]) == rows()
    with pytest.raises(KeyError):
        tables.together(["a"])
