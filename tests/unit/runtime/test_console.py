import io
import os
import signal
import sys

import pytest
from rich.table import Table
from unseen import HOSTILE, unseen

from robust_eval.runtime.console import Console


def test_texts_cells_and_titles_of_others_do_nothing_but_be_seen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "2000")
    table = Table(title=f"title {HOSTILE}", caption=HOSTILE)
    table.add_column(f"column {HOSTILE}")
    table.add_row(f"cell {HOSTILE}")
    Console().print(f"[bold]text[/] :smile: {HOSTILE}")
    Console().print(table)
    out = capsys.readouterr().out
    assert unseen(out) == set()
    assert out.startswith("[bold]text[/] :smile: \\x00\\x01")
    assert out.count("\\x1b") == 5


def test_lines_of_ours_stay_lines(capsys: pytest.CaptureFixture[str]):
    Console().print("one\ntwo")
    assert capsys.readouterr().out == "one\ntwo\n"


def test_a_reader_who_has_gone_ends_it_quietly_as_sigpipe_would(monkeypatch: pytest.MonkeyPatch):
    reading, writing = os.pipe()
    os.close(reading)
    with io.TextIOWrapper(io.FileIO(writing, "w")) as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        with pytest.raises(SystemExit) as end:
            Console().print("nobody reads this")
        stream.write("nor this")
    assert end.value.code == 128 + signal.SIGPIPE
