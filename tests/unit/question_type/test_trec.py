import os
from pathlib import Path

import pytest

from robust_eval.config.schema import PROJECT
from robust_eval.error import UserError
from robust_eval.question import Question
from robust_eval.question_type.trec import read_trec

TREC = PROJECT.parent / "shared" / "data" / "trec_qc"
WANTED = "a coarse class, a colon, a fine class, a space and a question, as in DESC:manner How did serfdom develop ?"


def label_file(folder: Path, content: bytes) -> Path:
    file = folder / "some.label"
    file.write_bytes(content)
    return file


def test_each_line_is_a_question_with_its_coarse_class(tmp_path: Path):
    file = label_file(tmp_path, b"HUM:ind Who wrote Emma ?\nLOC:other Where is Graz ?\n")
    assert read_trec(file) == [
        Question("1", "Who wrote Emma ?", type="HUM"),
        Question("2", "Where is Graz ?", type="LOC"),
    ]


def test_the_files_are_in_latin_1_and_lines_end_at_line_feeds_alone(tmp_path: Path):
    # 0x85 is a line break to Python's splitlines()
    file = label_file(tmp_path, b"HUM:ind Who is Bront\xeb ?\r\n\r\nDESC:def What is \x85 ?")
    assert read_trec(file) == [
        Question("1", "Who is Bront\xeb ?", type="HUM"),
        Question("3", "What is \x85 ?", type="DESC"),
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"HUM:ind Who ?\nWho wrote Emma ?", f", line 2: wanted {WANTED}, not 'Who wrote Emma ?'"),
        (b"HUM Who wrote Emma ?", f", line 1: wanted {WANTED}, not 'HUM Who wrote Emma ?'"),
        (b"HUM: Who wrote Emma ?", f", line 1: wanted {WANTED}, not 'HUM: Who wrote Emma ?'"),
        (b"HUM:ind ", f", line 1: wanted {WANTED}, not 'HUM:ind '"),
        (b"hum:ind Who ?", ", line 1: 'hum' is none of the classes ABBR, DESC, ENTY, HUM, LOC, NUM"),
        (b"\n\n", f" holds no questions: wanted on each line {WANTED}"),
    ],
)
def test_a_file_of_something_else_is_refused_with_its_line(tmp_path: Path, content: bytes, said: str):
    file = label_file(tmp_path, content)
    with pytest.raises(UserError) as problem:
        read_trec(file)
    assert str(problem.value) == f"{file}{said}"


def test_a_file_that_is_not_there_is_said(tmp_path: Path):
    with pytest.raises(UserError) as problem:
        read_trec(tmp_path / "none.label")
    assert str(problem.value) == f"{tmp_path / 'none.label'} cannot be read: No such file or directory"
    os.mkfifo(tmp_path / "pipe.label")
    with pytest.raises(UserError) as problem:
        read_trec(tmp_path / "pipe.label")
    assert str(problem.value) == f"{tmp_path / 'pipe.label'} cannot be read: it is a named pipe, and no file"


@pytest.mark.skipif(not TREC.is_dir(), reason="the published files are not here")
def test_the_published_files_are_read_whole():
    training, test = read_trec(TREC / "train_5500.label"), read_trec(TREC / "TREC_10.label")
    assert (len(training), len(test)) == (5452, 500)
    assert training[0] == Question("1", "How did serfdom develop in and then leave Russia ?", type="DESC")
    types = ["ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM"]
    assert [sum(q.type == kind for q in training) for kind in types] == [86, 1162, 1250, 1223, 835, 896]
    assert [sum(q.type == kind for q in test) for kind in types] == [9, 138, 94, 65, 81, 113]
