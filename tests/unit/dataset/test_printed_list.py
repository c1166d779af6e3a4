"""Hostile cells: no code in them runs, and none takes long. What lists are is judged in ``tables/judged.jsonl``."""

import time
from contextlib import suppress

import pytest

from robust_eval.dataset.record import UnreadableListError, printed_list


@pytest.mark.parametrize(
    "cell",
    [
        "[__import__('os').getcwd(), 'a']",
        "[np.array('a').tofile('x'), 'b']",
        "[f'{1}', 'a']",
        "[b'a', *'bc']",
        "['a', print('b')]",
    ],
)
def test_code_in_a_list_is_not_run(cell: str):
    with pytest.raises(UnreadableListError):
        printed_list(cell)


@pytest.mark.parametrize(
    "cell",
    [
        "[" * 50_000,
        "[" + "," * 99_000,
        "{" + "ab," * 30_000,
        r"['" + r"\'" * 49_000,
        "['" + "' '" * 30_000,
        "(" * 99_000,
    ],
)
def test_no_cell_takes_long(cell: str):
    start = time.perf_counter()
    with suppress(UnreadableListError):
        printed_list(cell)
    assert time.perf_counter() - start < 5
