import os
import socket
from pathlib import Path

import pytest

from robust_eval.runtime.files import regular


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
            with pytest.raises(OSError, match=f"it is {kind}, and no file") as refused:
                regular(tmp_path / name)
            assert refused.value.strerror == f"it is {kind}, and no file"


def test_what_is_not_there_is_said_as_ever(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        regular(tmp_path / "none")
