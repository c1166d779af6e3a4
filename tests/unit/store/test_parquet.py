import errno
import os
import random
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from robust_eval.error import UserError
from robust_eval.store.parquet import FOLDER, ParquetStore


def random_entries(count: int, seed: int) -> dict[bytes, bytes]:
    rng = random.Random(seed)
    return {rng.randbytes(32): rng.randbytes(rng.randint(300, 700)) for _ in range(count)}


ONE, TWO = random_entries(30, seed=1), random_entries(20, seed=2)


def put(folder: Path, *blocks: Mapping[bytes, bytes]) -> None:
    with ParquetStore(str(folder)).open() as entries:
        for block in blocks:
            entries.put(block)


def found(folder: Path, keys: Iterable[bytes]) -> dict[bytes, bytes]:
    with ParquetStore(str(folder)).open() as entries:
        return dict(entries.get(list(keys)))


def files(folder: Path) -> list[Path]:
    return sorted((folder / FOLDER).iterdir())


def test_what_was_put_is_found_in_one_file_for_each_block(tmp_path: Path):
    put(tmp_path, ONE, TWO, {})
    assert found(tmp_path, [*TWO, b"unknown", *ONE]) == ONE | TWO
    assert found(tmp_path, list(ONE)[:3]) == dict(list(ONE.items())[:3])
    assert [file.suffix for file in files(tmp_path)] == [".parquet"] * 2


def test_a_block_that_is_put_twice_is_there_once_as_it_was_put_last(tmp_path: Path):
    put(tmp_path, ONE)
    before = files(tmp_path)
    later = {key: value[::-1] for key, value in reversed(ONE.items())}
    put(tmp_path, later)
    assert files(tmp_path) == before
    assert found(tmp_path, ONE) == later


def test_of_a_key_in_several_blocks_the_one_that_was_put_last_counts(tmp_path: Path):
    again = dict.fromkeys([*ONE][:10], b"again")
    put(tmp_path, ONE, again | TWO)
    assert found(tmp_path, [*ONE, *TWO]) == ONE | again | TWO


def test_what_another_machine_puts_is_found_while_the_store_is_open(tmp_path: Path):
    with ParquetStore(str(tmp_path)).open() as entries:
        assert dict(entries.get([*ONE])) == {}
        put(tmp_path, ONE)
        assert dict(entries.get([*ONE])) == ONE
        put(tmp_path, dict.fromkeys(ONE, b"again"))
        assert dict(entries.get([*ONE])) == dict.fromkeys(ONE, b"again")


def test_what_is_damaged_counts_as_missing(tmp_path: Path):
    put(tmp_path, ONE, TWO)
    for place in range(2):
        file = files(tmp_path)[place]
        whole = file.read_bytes()
        names = [whole.replace(b"key", name) for name in (b"kez", b"k\xffy")]
        for damaged in (b"", whole[:-20], whole[:100], b"?" * len(whole), *names):
            file.write_bytes(damaged)
            assert found(tmp_path, [*ONE, *TWO]) in (ONE, TWO)
        value = next(iter(ONE.values() if whole.find(next(iter(ONE.values()))) > 0 else TWO.values()))
        file.write_bytes(whole.replace(value, value[::-1]))
        left = found(tmp_path, [*ONE, *TWO])
        assert left == {key: kept for key, kept in (ONE | TWO).items() if kept != value}
        file.write_bytes(whole)
    assert found(tmp_path, [*ONE, *TWO]) == ONE | TWO


def test_a_block_that_is_being_written_is_not_read(tmp_path: Path):
    put(tmp_path, ONE)
    (file,) = files(tmp_path)
    file.rename(file.with_suffix(".partial"))
    assert found(tmp_path, ONE) == {}


def test_the_size_is_said(tmp_path: Path):
    put(tmp_path, ONE, TWO)
    with ParquetStore(str(tmp_path)).open() as entries:
        assert entries.size() == f"0.0 MB in 2 blocks in {tmp_path / FOLDER}"


def test_others_may_read_what_one_user_puts(tmp_path: Path):
    before = os.umask(0o022)
    try:
        put(tmp_path, ONE)
    finally:
        os.umask(before)
    assert [file.stat().st_mode & 0o777 for file in files(tmp_path)] == [0o644]


def test_a_folder_that_takes_nothing_is_said_and_left_as_it_was(tmp_path: Path):
    with ParquetStore(str(tmp_path)).open() as entries:
        (tmp_path / FOLDER).rmdir()
        with pytest.raises(
            UserError,
            match=r"^store: .*/blocks is not writable \(No such file or directory\): free space, or set store.folder",
        ):
            entries.put(ONE)
    assert list(tmp_path.iterdir()) == []


def test_new_answers_are_not_stored_in_a_folder_that_is_only_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    put(tmp_path, ONE)

    def refuse(*names: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "replace", refuse)
    with ParquetStore(str(tmp_path)).open() as entries:
        assert dict(entries.get([*ONE])) == ONE
        entries.put(TWO)
        entries.put(TWO)
        assert dict(entries.get([*ONE, *TWO])) == ONE
    assert caplog.messages == [f"store: {tmp_path / FOLDER} is read-only: new answers are not stored"]
    with ParquetStore(str(tmp_path / "empty")).open() as entries, pytest.raises(UserError, match="is not writable"):
        entries.put(ONE)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(
            UserError,
            match=r"^the store cannot be written to .*/file/store/blocks: Not a directory; choose another path$",
        ),
        ParquetStore(str(tmp_path / "file" / "store")).open(),
    ):
        pass
