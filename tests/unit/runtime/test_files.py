import json
import os
import socket
from pathlib import Path

import pytest

from robust_eval.error import UserError
from robust_eval.runtime.files import json_lines, parsed_json, regular, text_lines


def test_a_file_is_read_and_so_is_what_is_linked_to_one(tmp_path: Path):
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to("file")
    assert regular(tmp_path / "link").read_text() == "text"


def test_what_could_be_read_for_ever_is_refused(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zeros").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        for name, kind in {"pipe": "a named pipe", "zeros": "a device", "socket": "a socket"}.items():
            with pytest.raises(OSError, match=f"it is {kind}, not a file") as refused:
                regular(tmp_path / name)
            assert refused.value.strerror == f"it is {kind}, not a file"


def test_what_is_not_there_is_said_as_ever(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        regular(tmp_path / "none")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "file"


def test_only_a_line_feed_ends_a_line_and_the_mark_that_opens_a_text_is_no_part_of_it(file: Path):
    file.write_bytes("\ufeffa\u2028b\r\n\n\x85c".encode())
    assert list(text_lines(file)) == [(1, "a\u2028b\r\n"), (2, "\n"), (3, "\x85c")]


def test_a_text_in_another_encoding_is_read_in_it(file: Path):
    file.write_bytes("Bogotá\n".encode("latin-1"))
    assert list(text_lines(file, "latin-1")) == [(1, "Bogotá\n")]
    with pytest.raises(UserError, match=r"the file, line 1: not UTF-8 \(invalid continuation byte at"):
        list(text_lines(file, label="the file"))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig"])
@pytest.mark.parametrize("default", ["utf-8", "latin-1"])
def test_the_first_bytes_say_more_than_the_encoding_expected(file: Path, encoding: str, default: str):
    file.write_bytes("{\u2028é\nÖ\r\n".encode(encoding))
    assert list(text_lines(file, default)) == [(1, "{\u2028é\n"), (2, "Ö\r\n")]


def test_half_a_character_of_several_bytes_is_named(file: Path):
    file.write_bytes("Bogotá\n".encode("utf-16")[:-1])
    with pytest.raises(UserError, match=r"^the file: not UTF-16 \(truncated data\)$"):
        list(text_lines(file, label="the file"))


def test_a_file_that_is_not_there_is_named(file: Path):
    with pytest.raises(UserError) as caught:
        list(text_lines(file))
    assert str(caught.value) == f"{file} cannot be read: No such file or directory"


def test_lines_of_json_are_read_with_their_places_but_for_those_that_are_empty(file: Path):
    file.write_text('{"a": 1}\n\n[2]')
    assert list(json_lines(file)) == [(f"{file}, line 1", '{"a": 1}\n', {"a": 1}), (f"{file}, line 3", "[2]", [2])]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"a":', "Expecting value at column 6"),
        ("[" * 100_000, "nested too deep at column 1"),
        ("1" * 5_000, "Exceeds the limit (4300 digits) for integer string conversion"),
    ],
)
def test_a_line_that_is_no_json_is_named(file: Path, line: str, reason: str):
    file.write_text(f"1\n{line}\n")
    with pytest.raises(UserError) as caught:
        list(json_lines(file, label="the file"))
    assert str(caught.value).startswith(f"the file, line 2: broken JSON ({reason}")


def test_json_says_what_it_says():
    assert parsed_json('{"a": [1, null]}') == {"a": [1, None]}
    assert parsed_json(b"[1]", parse_int=str) == ["1"]


@pytest.mark.parametrize("deep", ["[" * 100_000 + "]" * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000])
def test_json_nested_without_end_is_refused_as_any_that_is_broken(deep: str):
    with pytest.raises(json.JSONDecodeError, match="nested too deep"):
        parsed_json(deep)


@pytest.mark.parametrize("value", ["[],", "{},", "0,", '{"a":0},'])
def test_values_that_take_far_more_memory_than_their_text_are_refused(value: str):
    text = f"[{value * (32_000_000 // len(value))}0]"
    with pytest.raises(json.JSONDecodeError, match="too many values for the size of the text"):
        parsed_json(text)


def test_ordinary_questions_and_log_probabilities_are_parsed():
    question = {"id": "1", "question": "Where?", "answers": ["Rome", "Roma"], "choices": ["A", "B", "C", "D"]}
    token = {"token": "a", "logprob": -1.25, "top": [{"token": "b", "logprob": -2.5}] * 5}
    for entry in (question, token):
        text = json.dumps([entry] * 20_000)
        assert len(parsed_json(text)) == 20_000
