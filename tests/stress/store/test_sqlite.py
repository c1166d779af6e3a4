import inspect
import itertools
import logging
import os
import random
import resource
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from json_lines import cases

from robust_eval.error import UserError
from robust_eval.store import sqlite
from robust_eval.store.base import NoStore
from robust_eval.store.sqlite import BATCH_SIZE, FILE, SqliteStore

PAGE = 4096
MEGABYTE = 2**20
JOURNAL = f"{FILE}-journal"
NEW = {b"put after the damage": b"and found by the next opening"}
GOES_ON = "; stored answers are kept: repeat the command to resume"
NOBODY = 65534


def random_entries(count: int, seed: int = 0, shortest: int = 300, longest: int = 700) -> dict[bytes, bytes]:
    """Keys like those of answers, and values that nothing can be guessed of."""
    rng = random.Random(seed)
    return {rng.randbytes(32): rng.randbytes(rng.randint(shortest, longest)) for _ in range(count)}


ENTRIES = random_entries(300)
VALUE = list(ENTRIES.values())[150]


def put(folder: Path, entries: Mapping[bytes, bytes], max_size_mb: int = 4096) -> None:
    with SqliteStore(str(folder), max_size_mb).open() as opened:
        remaining = iter(entries.items())
        while some := dict(itertools.islice(remaining, 30)):
            opened.put(some)


def found(folder: Path, keys: Iterable[bytes]) -> dict[bytes, bytes]:
    with SqliteStore(str(folder)).open() as opened:
        return dict(opened.get(list(keys)))


def refusal(folder: Path) -> str:
    with pytest.raises(UserError) as caught, SqliteStore(str(folder)).open():
        pass
    return str(caught.value)


def set_aside(folder: Path) -> list[str]:
    """The files that were taken for damaged."""
    return sorted(path.name for path in folder.glob("damaged-*.sqlite"))


@contextmanager
def listening(react: Callable[[str], None] = lambda message: None) -> Iterator[list[str]]:
    """The warnings of the store; ``react`` is told all that it says, before it goes on."""
    warnings: list[str] = []

    def emit(record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            warnings.append(record.getMessage())
        react(record.getMessage())

    log, handler = logging.getLogger("robust_eval.store"), logging.Handler()
    handler.emit, level = emit, log.level  # type: ignore[method-assign]
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield warnings
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


@contextmanager
def process(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A process of its own, killed at the end, whose first argument is the folder of a store."""
    imports = (
        "import itertools, os, random, resource, sqlite3, sys\n"
        "from robust_eval.error import UserError\n"
        "from robust_eval.store.sqlite import FILE, SqliteStore\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", "\n".join([imports, inspect.getsource(random_entries), code]), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def line(running: subprocess.Popen[str]) -> str:
    assert running.stdout is not None
    return running.stdout.readline().strip()


def release(running: subprocess.Popen[str]) -> None:
    """Let a process go on that waits for a line."""
    assert running.stdin is not None
    running.stdin.write("\n")
    running.stdin.flush()


ANY_BYTES = {b"": b"", b"\0": b"\0" * 10, b"a": b"a", b"a\0": "Zoë".encode(), b"k" * 200: bytes(range(256)) * 5_000}


@pytest.mark.parametrize("entries", [ENTRIES, ANY_BYTES], ids=["random", "any bytes"])
def test_what_was_put_is_found_at_once_by_a_store_opened_beside_and_by_the_next(
    tmp_path: Path, entries: dict[bytes, bytes]
):
    with SqliteStore(str(tmp_path)).open() as opened, SqliteStore(str(tmp_path)).open() as beside:
        opened.put(entries)
        assert dict(opened.get(list(entries))) == entries
        assert dict(beside.get(list(entries))) == entries
    assert found(tmp_path, entries) == entries


def test_a_key_that_is_put_again_has_its_new_value(tmp_path: Path):
    put(tmp_path, ENTRIES)
    again = dict.fromkeys(list(ENTRIES)[:100], b"another value")
    put(tmp_path, again)
    assert found(tmp_path, ENTRIES) == ENTRIES | again


def test_more_keys_than_fit_into_one_query_are_all_found_once(tmp_path: Path):
    entries = random_entries(2 * BATCH_SIZE + 300)
    put(tmp_path, entries)
    with SqliteStore(str(tmp_path)).open() as opened:
        got = list(opened.get([*entries, b"missing", next(iter(entries))[:-1]]))
    assert len(got) == len(entries)
    assert dict(got) == entries


def test_the_folder_is_made_and_its_size_said(tmp_path: Path):
    folder = tmp_path / "new" / "store"
    with SqliteStore(str(folder), max_size_mb=2048).open() as opened:
        opened.put(random_entries(3, shortest=MEGABYTE, longest=MEGABYTE))
        assert opened.size() == f"3.0 MB of 2,048 MB in {folder}"


def test_no_store_keeps_nothing():
    with NoStore().open() as opened, NoStore().open() as beside:
        opened.put(ENTRIES)
        assert list(opened.get(list(ENTRIES))) == []
        with opened.lock_keys(ENTRIES), beside.lock_keys(ENTRIES):
            pass
        assert opened.size() == "none: no answer was stored"


# Interrupts.


class Interrupted(sqlite3.Connection):
    """Interrupted when a transaction has begun, before anybody knows."""

    interrupts = True

    def execute(self, sql: str, *values: object) -> sqlite3.Cursor:  # type: ignore[override]
        found = super().execute(sql, *values)
        if Interrupted.interrupts and sql == "BEGIN IMMEDIATE":
            raise KeyboardInterrupt
        return found


@contextmanager
def interrupted_at_begin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An interrupt comes whenever SQLite begins a transaction, while ``Interrupted.interrupts``."""
    connect = sqlite3.connect
    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", lambda *places, **more: connect(*places, factory=Interrupted, **more))
        yield


def test_an_interrupt_that_comes_while_a_transaction_begins_leaves_a_healthy_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    put(tmp_path, ENTRIES)
    with interrupted_at_begin(monkeypatch), listening() as warnings:
        Interrupted.interrupts = False
        with SqliteStore(str(tmp_path)).open() as opened:
            Interrupted.interrupts = True
            with pytest.raises(KeyboardInterrupt):
                opened.put(NEW)
            with pytest.raises(KeyboardInterrupt):
                dict(opened.get(list(ENTRIES)))
            Interrupted.interrupts = False
            opened.put(NEW)
            assert dict(opened.get(list(ENTRIES | NEW))) == ENTRIES | NEW
    assert (warnings, set_aside(tmp_path)) == ([], [])


def test_a_store_whose_making_was_interrupted_is_made(tmp_path: Path):
    with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as connection:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    assert (tmp_path / FILE).stat().st_size == PAGE
    with listening() as warnings:
        put(tmp_path, ENTRIES)
    assert found(tmp_path, ENTRIES) == ENTRIES
    assert (warnings, set_aside(tmp_path)) == ([], [])


# Refusals.


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    folder = tmp_path / "file" / "store"
    assert refusal(folder) == f"the store cannot be written to {folder}: Not a directory; choose another path"


def test_a_store_of_a_newer_version_is_refused_and_left_as_it_was(tmp_path: Path):
    put(tmp_path, ENTRIES)
    with closing(sqlite3.connect(tmp_path / FILE)) as connection, connection:
        connection.execute("UPDATE format SET name = 'robust_eval answers, format 27'")
    content = (tmp_path / FILE).read_bytes()
    assert refusal(tmp_path) == (
        f"store: {tmp_path / FILE} was written by a newer robust_eval (format 27, this version supports 1): "
        "update robust_eval, or set store.folder to another folder"
    )
    assert (tmp_path / FILE).read_bytes() == content
    assert sorted(path.name for path in tmp_path.iterdir()) == [FILE, "store.lock"]


READ = f"""
import logging
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid({NOBODY})
    os.setuid({NOBODY})
logging.basicConfig(format="%(message)s")
expected = random_entries(300)
try:
    with SqliteStore(sys.argv[1]).open() as entries:
        there = dict(entries.get(list(expected)))
        print("all" if there == expected else len(there))
        entries.put({{b"new": b"value"}})
        print(dict(entries.get([b"new"])))
        with entries.lock_keys([b"key"]):
            print("asked")
        print(entries.size())
except UserError as problem:
    print(problem)
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that others may read; those of pytest are for their owner alone."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "store"
        folder.mkdir()
        Path(name).chmod(0o755)
        hidden = [parent for parent in folder.parents if not parent.stat().st_mode & stat.S_IXOTH]
        if hidden and os.geteuid() == 0:
            pytest.skip(f"{hidden[0]} hides temporary folders from other users")
        yield folder
        folder.chmod(0o755)


def read_without_permission(folder: Path) -> tuple[list[str], list[str]]:
    """What READ prints and logs as a user who may not write to the folder."""
    folder.chmod(0o555)
    with process(READ, folder) as reader:
        output, errors = reader.communicate(timeout=20)
    return output.splitlines(), errors.splitlines()


def test_a_store_that_may_not_be_written_can_be_read_and_is_left_as_it_was(shared: Path):
    put(shared, ENTRIES)
    content = (shared / FILE).read_bytes()
    with SqliteStore(str(shared)).open() as opened, opened.lock_keys([b"key"]):
        output, errors = read_without_permission(shared)
    assert output == ["all", "{}", "asked", f"{len(content) / MEGABYTE:.1f} MB of 4,096 MB in {shared}"]
    assert errors == [f"store: {shared / FILE} is read-only: new answers are not stored"]
    assert (shared / FILE).read_bytes() == content


def test_a_folder_without_a_store_that_may_not_be_written_is_refused(shared: Path):
    output, errors = read_without_permission(shared)
    problem = f"[Errno 13] Permission denied: '{shared / 'store.lock'}'"
    assert output == [
        f"store: {shared} is not writable ({problem}) and contains no answers: set store.folder to another folder"
    ]
    assert errors == []
    assert list(shared.iterdir()) == []


def test_an_empty_file_is_a_new_store_and_one_that_may_not_be_written_holds_no_answers(shared: Path):
    (shared / FILE).touch()  # as an interrupted creation leaves it
    output, _ = read_without_permission(shared)
    assert output[0].endswith(") and contains no answers: set store.folder to another folder")
    assert "damaged" not in output[0]
    shared.chmod(0o755)
    put(shared, ENTRIES)
    with SqliteStore(str(shared)).open() as opened:
        assert dict(opened.get(list(ENTRIES))) == ENTRIES


def test_a_damaged_store_that_may_not_be_written_is_refused(shared: Path, sound: bytes):
    content = broken(sound, VALUE)
    (shared / FILE).write_bytes(content)
    output, _ = read_without_permission(shared)
    damage = f"store: {shared / FILE} is damaged (database disk image is malformed)"
    assert output == [f"{damage} and read-only: set store.folder to another folder"]
    assert (shared / FILE).read_bytes() == content


# Killed processes.

PUT_BATCHES = """
with SqliteStore(sys.argv[1]).open() as entries:
    for batch in itertools.count():
        entries.put(random_entries(50, batch))
        print(batch, flush=True)
"""


@pytest.mark.parametrize("attempt", range(2))
def test_a_process_killed_at_any_moment_leaves_all_whole_batches_that_it_put(tmp_path: Path, attempt: int):
    rng = random.Random(attempt)
    with process(PUT_BATCHES, tmp_path) as writer:
        for _ in range(rng.randint(1, 80)):
            reported = line(writer)
        time.sleep(rng.uniform(0, 0.01))
        writer.kill()
        assert writer.stdout is not None
        last = int((writer.stdout.read().split() or [reported])[-1])
    expected = [random_entries(50, batch) for batch in range(last + 3)]
    there = found(tmp_path, itertools.chain.from_iterable(expected))
    held = [{key: there[key] for key in batch if key in there} for batch in expected]
    whole = [batch for batch in held if batch]
    assert whole == expected[: len(whole)]
    assert len(whole) in (last + 1, last + 2)  # the last one may have been put, and not yet reported


KILLED_COMMIT = """
with sqlite3.connect(sys.argv[1] + "/" + FILE, isolation_level=None) as connection:
    connection.execute("PRAGMA cache_size = 1")
    connection.execute("BEGIN")
    connection.execute("UPDATE entries SET value = zeroblob(500)")
    print("half written", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def killed(sound: bytes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of ENTRIES whose writer was killed when it had written a part of a change into the file."""
    folder = tmp_path_factory.mktemp("killed")
    (folder / FILE).write_bytes(sound)
    with process(KILLED_COMMIT, folder) as writer:
        assert line(writer) == "half written"
        writer.kill()
    assert (folder / FILE).read_bytes() != sound
    assert (folder / JOURNAL).stat().st_size > 100_000
    return folder


def test_a_change_that_was_half_written_is_rolled_back(tmp_path: Path, killed: Path):
    shutil.copytree(killed, tmp_path / "copy")
    with listening() as warnings:
        assert found(tmp_path / "copy", ENTRIES) == ENTRIES
    assert warnings == []


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        pytest.param(FILE, lambda content: flipped(content, 20, 0), id="file flipped"),
        pytest.param(FILE, lambda content: content[: len(content) // 2], id="file cut off"),
        pytest.param(FILE, None, id="file removed"),
        pytest.param(JOURNAL, lambda content: flipped(content, 20, 0), id="journal flipped"),
        pytest.param(JOURNAL, lambda content: content[: len(content) // 2], id="journal cut"),
        pytest.param(JOURNAL, None, id="journal removed"),
    ],
)
def test_damage_to_a_change_that_was_half_written_costs_entries_at_most(
    tmp_path: Path, killed: Path, name: str, damage: Callable[[bytes], bytes] | None
):
    folder = tmp_path / "copy"
    shutil.copytree(killed, folder)
    content = (folder / name).read_bytes()
    (folder / name).unlink()
    if damage:
        (folder / name).write_bytes(damage(content))
    survived(folder)


# Damage.


def survived(folder: Path) -> tuple[float, list[str]]:
    """The share of ENTRIES that a damaged store still has, and what it warns of. No value is another than it was, and
    what was lost is put again.
    """
    with listening() as warnings:
        with SqliteStore(str(folder)).open() as opened:
            there = dict(opened.get(list(ENTRIES)))
            assert there.items() <= ENTRIES.items()
            opened.put({key: value for key, value in ENTRIES.items() if key not in there} | NEW)
        assert found(folder, ENTRIES | NEW) == ENTRIES | NEW
    return len(there) / len(ENTRIES), warnings


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a store of ENTRIES."""
    folder = tmp_path_factory.mktemp("sound")
    put(folder, ENTRIES)
    assert sorted(path.name for path in folder.iterdir()) == [FILE, "store.lock"]
    return (folder / FILE).read_bytes()


def flipped(content: bytes, count: int, seed: int) -> bytes:
    rng, flipped = random.Random(seed), bytearray(content)
    for place in rng.sample(range(len(content)), count):
        flipped[place] ^= rng.randint(1, 255)
    return bytes(flipped)


def changed(content: bytes, place: int, becomes: int) -> bytes:
    assert content[place] != becomes
    return content[:place] + bytes([becomes]) + content[place + 1 :]


def broken(content: bytes, value: bytes) -> bytes:
    """The same with the page that a value begins in made unreadable."""
    return changed(content, content.index(value[:20]) // PAGE * PAGE, 0xFF)


@pytest.mark.parametrize(("count", "most"), [(1, 0.99), (5, 0.3), (50, 0.0)])
def test_flipped_bytes_cost_entries_and_never_give_a_wrong_value(tmp_path: Path, sound: bytes, count: int, most: float):
    shares = []
    for seed in range(10):
        (folder := tmp_path / str(seed)).mkdir()
        (folder / FILE).write_bytes(flipped(sound, count, seed))
        shares.append(survived(folder)[0])
    assert sum(share >= most for share in shares) >= 9


@pytest.mark.parametrize(
    ("byte", "place", "becomes"), cases(__file__, "a_changed_byte_in_what_describes_the_file_costs_entries_at_most")
)
def test_a_changed_byte_in_what_describes_the_file_costs_entries_at_most(
    tmp_path: Path, sound: bytes, byte: str, place: int | str, becomes: int
):
    offset = place if isinstance(place, int) else sound.index(place.encode())
    (tmp_path / FILE).write_bytes(changed(sound, offset, becomes))
    share, warnings = survived(tmp_path)
    assert share == 1 or warnings


def test_a_file_that_was_cut_off_costs_entries_at_most(tmp_path: Path, sound: bytes):
    size = len(sound)
    borders = [PAGE, 2 * PAGE, 3 * PAGE, size // 2 // PAGE * PAGE, size - 2 * PAGE, size - PAGE]
    anywhere = random.Random(0).sample(range(size), 4)
    for length in [0, 1, PAGE - 1, PAGE + 1, size - 1, *borders, *anywhere]:
        (folder := tmp_path / str(length)).mkdir()
        (folder / FILE).write_bytes(sound[:length])
        share, _ = survived(folder)
        assert share > 0.9 or length < size - PAGE


@pytest.mark.parametrize(
    ("damage", "problem", "fewest"),
    [
        (lambda sound: b"?" * 10, "file is not a database", 0),
        (lambda sound: random.Random(1).randbytes(5_000), "file is not a database", 0),
        (lambda sound: random.Random(2).randbytes(200_000), "file is not a database", 0),
        (lambda sound: broken(sound, VALUE), "database disk image is malformed", 290),
        (lambda sound: sound.replace(VALUE, VALUE[::-1]), "1 entries are damaged", len(ENTRIES) - 1),
    ],
)
def test_a_damaged_file_is_set_aside_as_it_was_and_what_can_be_read_of_it_moves_into_a_new_one(
    tmp_path: Path, sound: bytes, damage: Callable[[bytes], bytes], problem: str, fewest: int
):
    content = damage(sound)
    (tmp_path / FILE).write_bytes(content)
    (tmp_path / "repaired.sqlite").write_text("left by a process that was killed")
    with listening() as warnings:
        there = found(tmp_path, ENTRIES)
        assert found(tmp_path, ENTRIES) == there
    (name,) = set_aside(tmp_path)
    (warning,) = warnings
    assert warning == (
        f"store: {tmp_path / FILE} was damaged ({problem}): {len(there)} entries were recovered, the others will be "
        f"requested again; the damaged file is {name}"
    )
    assert (tmp_path / name).read_bytes() == content
    assert len(there) >= fewest
    assert there.items() <= ENTRIES.items()


@pytest.mark.parametrize("removed", ["file", "folder"])
def test_what_was_removed_while_it_was_open_is_made_anew(tmp_path: Path, removed: str):
    folder = tmp_path / "store"
    put(folder, ENTRIES)
    with SqliteStore(str(folder)).open() as opened:
        shutil.rmtree(folder) if removed == "folder" else (folder / FILE).unlink()
        with opened.lock_keys([b"key"]):
            opened.put(NEW)
        assert dict(opened.get(list(NEW))) == NEW
    assert found(folder, ENTRIES | NEW) == NEW
    assert set_aside(folder) == []


def test_a_file_that_another_process_mends_is_mended_once_and_nothing_put_is_lost(tmp_path: Path, sound: bytes):
    (tmp_path / FILE).write_bytes(broken(sound, VALUE))
    with SqliteStore(str(tmp_path)).open() as mending, SqliteStore(str(tmp_path)).open() as unaware:
        assert len(dict(mending.get(list(ENTRIES)))) >= 290
        unaware.put({b"unaware": b"1"})
        mending.put({b"mending": b"2"})
        assert len(dict(unaware.get(list(ENTRIES)))) >= 290
        unaware.put({b"unaware again": b"3"})
    there = found(tmp_path, [b"unaware", b"mending", b"unaware again"])
    assert there == {b"unaware": b"1", b"mending": b"2", b"unaware again": b"3"}
    assert len(set_aside(tmp_path)) == 1


# Full disks.

FILL = """
with SqliteStore(sys.argv[1]).open() as entries:
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    try:
        for number in itertools.count():
            entries.put(random_entries(1, number, 100_000, 100_000))
            print(number)
    except UserError as problem:
        print(problem)
"""


def test_a_full_disk_is_said_and_what_was_put_before_is_kept(tmp_path: Path):
    with process(FILL, tmp_path) as writer:
        output, errors = writer.communicate(timeout=20)
    *reported, problem = output.splitlines()
    assert errors == ""
    assert problem.startswith(f"store: {tmp_path / FILE} cannot be used: ")
    assert problem.endswith(GOES_ON)
    assert len(reported) > 10
    entries = [random_entries(1, number, 100_000, 100_000) for number in range(len(reported) + 1)]
    assert found(tmp_path, [key for entry in entries for key in entry]) == {
        key: value for entry in entries[:-1] for key, value in entry.items()
    }


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """No file may grow beyond this: a write fails half way, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_store_that_cannot_be_made_on_a_full_disk_is_refused(tmp_path: Path):
    with files_of_at_most(100):
        problem = refusal(tmp_path)
    assert problem == f"store: {tmp_path / FILE} cannot be used: disk I/O error{GOES_ON}"
    put(tmp_path, ENTRIES)
    assert found(tmp_path, ENTRIES) == ENTRIES


def test_what_a_full_disk_keeps_from_being_mended_is_left_as_it_was_and_mended_later(tmp_path: Path, sound: bytes):
    content = broken(sound, VALUE)
    (tmp_path / FILE).write_bytes(content)
    with files_of_at_most(100_000), pytest.raises(UserError, match="is damaged and cannot be repaired: "):
        found(tmp_path, ENTRIES)
    assert (tmp_path / FILE).read_bytes() == content
    assert sorted(path.name for path in tmp_path.iterdir()) == [FILE, "store.lock"]
    assert len(found(tmp_path, ENTRIES)) >= 290


# Several processes.

ASKING = "store: another process is sending the same requests; waiting for its answers"
WRITING = "store: waiting for another process that is using it"
ANSWERS = {b"one": b"1", b"two": b"2"}

ASK = """
with SqliteStore(sys.argv[1]).open() as entries, entries.lock_keys([b"one", b"two"]):
    print("asking", flush=True)
    sys.stdin.readline()
    entries.put({b"one": b"1", b"two": b"2"})
"""


@pytest.mark.parametrize(
    ("ending", "answers"), [(release, ANSWERS), (subprocess.Popen.kill, {})], ids=["answered", "killed"]
)
def test_who_asks_the_same_waits_until_another_process_has_its_answers_or_is_gone(
    tmp_path: Path, ending: Callable[[subprocess.Popen[str]], None], answers: dict[bytes, bytes]
):
    said: list[str] = []
    with process(ASK, tmp_path) as holder, SqliteStore(str(tmp_path)).open() as opened:

        def end(message: str) -> None:
            said.append(message)
            ending(holder)

        assert line(holder) == "asking"
        with listening(end), opened.lock_keys([b"two", b"one"]):
            assert dict(opened.get([b"one", b"two"])) == answers
    assert said == [ASKING]


def test_who_asks_for_other_keys_does_not_wait(tmp_path: Path):
    said: list[str] = []
    with process(ASK, tmp_path) as holder, SqliteStore(str(tmp_path)).open() as opened:
        assert line(holder) == "asking"
        with listening(said.append), opened.lock_keys([b"one"]), opened.lock_keys([b"one", b"two", b"three"]):
            assert dict(opened.get([b"one", b"two"])) == {}
    assert said == []


GUARD = """
from filelock import FileLock
with FileLock(sys.argv[1] + "/store.lock"):
    print("writing", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that keeps others from writing to a store of ENTRIES until it is released."""
    put(tmp_path, ENTRIES)
    with process(GUARD, tmp_path) as running:
        assert line(running) == "writing"
        yield running


@pytest.mark.parametrize("ending", [release, subprocess.Popen.kill], ids=["done", "killed"])
def test_who_writes_second_waits_and_says_so(
    tmp_path: Path,
    writer: subprocess.Popen[str],
    ending: Callable[[subprocess.Popen[str]], None],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(sqlite, "LOCK_TIMEOUTS", (0.1, 20))
    said: list[str] = []

    def end(message: str) -> None:
        said.append(message)
        ending(writer)

    with listening(end):
        put(tmp_path, NEW)
    assert said == [WRITING]
    assert found(tmp_path, ENTRIES | NEW) == ENTRIES | NEW


def test_who_waits_too_long_for_another_process_gives_up_and_can_try_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sqlite, "LOCK_TIMEOUTS", (0.1, 0.3))
    put(tmp_path, ENTRIES)
    problem = f"store: another process has locked it for 0.3 s{GOES_ON}"
    with SqliteStore(str(tmp_path)).open() as opened, process(GUARD, tmp_path) as writer:
        assert line(writer) == "writing"
        for _ in range(2):
            with pytest.raises(UserError) as caught, listening() as said:
                opened.put(NEW)
            assert (str(caught.value), said) == (problem, [])
        assert refusal(tmp_path) == problem
        release(writer)
        writer.wait()
        opened.put(NEW)
    assert found(tmp_path, ENTRIES | NEW) == ENTRIES | NEW


def test_reading_waits_as_long_as_writing_while_another_process_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sqlite, "LOCK_TIMEOUTS", (0.1, 20))
    put(tmp_path, ENTRIES)
    with (
        closing(sqlite3.connect(tmp_path / FILE, isolation_level=None, check_same_thread=False)) as committing,
        SqliteStore(str(tmp_path)).open() as opened,
    ):
        committing.execute("BEGIN EXCLUSIVE")
        timer = threading.Timer(0.5, lambda: committing.execute("COMMIT"))
        timer.start()
        try:
            assert dict(opened.get(list(ENTRIES))) == ENTRIES
        finally:
            timer.join()


START = """
mine = random_entries(20, seed=1 + int(sys.argv[2]))
print("ready", flush=True)
sys.stdin.readline()
with SqliteStore(sys.argv[1]).open() as entries:
    list(entries.get(list(random_entries(300))))
    for key, value in mine.items():
        entries.put({key: value})
    assert dict(entries.get(list(mine))) == mine
"""


@pytest.mark.parametrize("damaged", [False, True], ids=["fresh", "damaged"])
def test_four_processes_begin_at_the_same_moment(tmp_path: Path, sound: bytes, damaged: bool):
    if damaged:
        (tmp_path / FILE).write_bytes(broken(sound, VALUE))
    with ExitStack() as stack:
        running = [stack.enter_context(process(START, tmp_path, seed)) for seed in range(4)]
        assert [line(one) for one in running] == ["ready"] * 4
        for one in running:
            release(one)
        errors = [one.communicate(timeout=25)[1] for one in running]
    assert [one.returncode for one in running] == [0] * 4, errors
    put_by_all = {key: value for seed in range(4) for key, value in random_entries(20, 1 + seed).items()}
    assert found(tmp_path, put_by_all) == put_by_all
    assert len(found(tmp_path, ENTRIES)) >= (290 if damaged else 0)
    assert len(set_aside(tmp_path)) == damaged


# The most that a store may hold.

LARGE = random_entries(36, shortest=50_000, longest=50_000)
"""Of which a megabyte holds 19."""
OLD = dict(itertools.islice(LARGE.items(), 18))
YOUNG = dict(itertools.islice(LARGE.items(), 18, None))
SOME_YOUNG = dict(itertools.islice(YOUNG.items(), 6))


def test_what_was_not_used_for_longest_makes_room(tmp_path: Path):
    often = list(LARGE)[:2]
    sizes = []
    for key, value in LARGE.items():
        with SqliteStore(str(tmp_path), max_size_mb=1).open() as opened:
            list(opened.get(often))
            opened.put({key: value})
        sizes.append((tmp_path / FILE).stat().st_size)
    there = found(tmp_path, LARGE)
    assert there == {key: LARGE[key] for key in [*often, *list(LARGE)[-len(there) + 2 :]]}
    assert 15 <= len(there) <= 19
    assert max(sizes) <= MEGABYTE


def test_a_store_that_is_opened_with_less_room_shrinks(tmp_path: Path):
    put(tmp_path, LARGE)
    assert (tmp_path / FILE).stat().st_size > 1.7 * MEGABYTE
    said: list[str] = []
    with listening(said.append) as warnings:
        put(tmp_path, NEW, max_size_mb=1)
    assert (tmp_path / FILE).stat().st_size < MEGABYTE
    lost = len(LARGE) - len(found(tmp_path, LARGE))
    assert said == [f"store: the {lost} least recently used entries were dropped"]
    assert warnings == []
    assert found(tmp_path, NEW) == NEW


def test_nothing_is_dropped_that_this_opening_has_used_even_if_it_is_too_much(tmp_path: Path):
    put(tmp_path, OLD, max_size_mb=1)
    used = list(OLD)[:5]
    with listening() as warnings, SqliteStore(str(tmp_path), max_size_mb=1).open() as opened:
        assert next(iter(opened.get(used))) == (used[0], OLD[used[0]])
        for key, value in YOUNG.items():
            opened.put({key: value})
        mine = {key: LARGE[key] for key in [*used, *YOUNG]}
        assert dict(opened.get(list(LARGE))) == mine
        assert opened.size() == f"1.1 MB of 1 MB in {tmp_path}"
    assert found(tmp_path, LARGE) == mine
    assert warnings == ["store: the entries of this run exceed store.max_size_mb; none is dropped"]


def test_damage_that_is_met_while_making_room_is_mended(tmp_path: Path):
    put(tmp_path, OLD, max_size_mb=1)
    (tmp_path / FILE).write_bytes(broken((tmp_path / FILE).read_bytes(), OLD[next(iter(OLD))]))
    put(tmp_path, SOME_YOUNG, max_size_mb=1)
    assert found(tmp_path, SOME_YOUNG) == SOME_YOUNG


def test_a_disk_that_is_full_while_room_is_made_is_said(tmp_path: Path):
    put(tmp_path, OLD, max_size_mb=1)
    with files_of_at_most(400_000), pytest.raises(UserError, match=r"^store: "):
        put(tmp_path, SOME_YOUNG, max_size_mb=1)


def test_damage_that_a_rollback_meets_is_mended(tmp_path: Path):
    class Damaged:
        def __init__(self, connection: sqlite3.Connection) -> None:
            self.close = connection.close

        def rollback(self) -> None:
            raise sqlite.DamagedError("the journal cannot be read")

    with SqliteStore(str(tmp_path)).open() as opened:
        opened.put(SOME_YOUNG)
        opened._connection = Damaged(opened._connection)  # type: ignore[attr-defined]
        opened.put(ENTRIES)
    assert found(tmp_path, ENTRIES) == ENTRIES
