import pwd
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from robust_eval.runtime import cache
from robust_eval.runtime.cache import cache_folder, cached_folder, read_cached, write_cached


@pytest.fixture(autouse=True)
def untold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was said yet of a folder that cannot be written."""
    monkeypatch.setattr(cache, "_warned", [])


@contextmanager
def full_disk() -> Iterator[None]:
    """No file can hold anything meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def unwritable(tmp_path: Path) -> Path:
    """A folder that nobody can make, not even root."""
    (tmp_path / "file").touch()
    return tmp_path / "file" / "cache"


def without(folder: Path, reason: str) -> str:
    again = "so each run repeats the work; set XDG_CACHE_HOME to another folder"
    return f"{folder} cannot be written ({reason}), {again}"


def test_what_is_kept_is_read_again(tmp_path: Path):
    file = tmp_path / "some" / "folder" / "choice"
    write_cached(file, "één")
    write_cached(file, "två")
    assert read_cached(file) == "två"
    assert list(file.parent.iterdir()) == [file]


def test_on_a_full_disk_the_file_stays_as_it_was_and_nothing_else_is_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    file = tmp_path / "choice"
    write_cached(file, "before")
    with full_disk():
        write_cached(file, "now")
        write_cached(tmp_path / "other", "now")
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("choice", "before")]
    assert caplog.messages == [without(tmp_path, "File too large")]


def test_a_folder_that_cannot_be_written_is_said_once_and_gone_without(
    unwritable: Path, caplog: pytest.LogCaptureFixture
):
    write_cached(unwritable / "a" / "choice", "now")
    write_cached(unwritable / "b" / "choice", "now")
    assert read_cached(unwritable / "a" / "choice") is None
    assert caplog.messages == [without(unwritable / "a", "Not a directory")]


def test_what_cannot_be_read_is_absent(tmp_path: Path):
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "folder").mkdir()
    assert [read_cached(tmp_path / name) for name in ("binary", "folder", "nothing")] == [None, None, None]
    write_cached(tmp_path / "folder", "cannot take its place")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["binary", "folder"]


def test_who_has_no_home_has_no_cache_and_no_folder_called_tilde(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def nobody(_: int) -> None:
        raise KeyError("uid not found")

    monkeypatch.delenv("HOME")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.chdir(tmp_path)
    write_cached(cache_folder() / "threads" / "here", "4")
    assert read_cached(cache_folder() / "threads" / "here") is None
    assert list(tmp_path.iterdir()) == []
    assert len(caplog.messages) == 1


def filled(made: list[Path]) -> Callable[[Path], None]:
    def fill(folder: Path) -> None:
        made.append(folder)
        folder.mkdir()
        (folder / "weights").write_text("1")

    return fill


def test_a_folder_is_made_once_and_found_again(tmp_path: Path):
    made: list[Path] = []
    for _ in range(2):
        folder = cached_folder(tmp_path / "models" / "mine", filled(made))
        assert (folder / "weights").read_text() == "1"
    assert list((tmp_path / "models").iterdir()) == [tmp_path / "models" / "mine"] == [folder]
    assert len(made) == 1


def test_a_folder_that_is_not_whole_is_made_again(tmp_path: Path):
    def whole(folder: Path) -> bool:
        return (folder / "weights").is_file() and bool((folder / "weights").read_text())

    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "weights").touch()
    folder = cached_folder(tmp_path / "mine", filled([]), whole)
    assert (folder / "weights").read_text() == "1"
    assert list(tmp_path.iterdir()) == [tmp_path / "mine"] == [folder]


def test_a_folder_that_cannot_be_kept_is_made_once_in_a_process_and_removed_when_it_ends(
    unwritable: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    at_the_end = []
    monkeypatch.setattr(cache.atexit, "register", lambda *call, **how: at_the_end.append((call, how)))
    monkeypatch.setattr(cache, "_temporary_folders", {})
    cache._temporary.cache_clear()
    made: list[Path] = []
    folder = cached_folder(unwritable / "mine", filled(made))
    assert cached_folder(unwritable / "mine", filled(made)) == folder == cache.folder_location(unwritable / "mine")
    assert (folder / "weights").read_text() == "1"
    assert len(made) == len(caplog.messages) == 1
    for (remove, *arguments), how in at_the_end:
        remove(*arguments, **how)
    cache._temporary.cache_clear()
    assert not folder.parent.exists()
