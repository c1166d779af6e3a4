import os
import socket
import zipfile
from pathlib import Path

import pytest

from robust_eval.error import UserError
from robust_eval.runtime import files
from robust_eval.runtime.files import member, refuse_members, regular, text_lines


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


def test_a_member_of_an_archive_is_read_whole_up_to_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", content := bytes(range(256)) * 64)
    monkeypatch.setattr(files, "MEMBER", len(content))
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        refuse_members(tmp_path / "a.zip", archive)
        assert member(tmp_path / "a.zip", archive, "a") == content
        monkeypatch.setattr(files, "MEMBER", len(content) - 1)
        for refuse in (refuse_members, lambda *of: member(*of, "a")):
            with pytest.raises(UserError, match=r"a\.zip, a: 0 MiB or more"):
                refuse(tmp_path / "a.zip", archive)
