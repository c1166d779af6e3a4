import gc
import os
import weakref
from pathlib import Path

from filelock import FileLock

from robust_eval.runtime.process import process_lock


def test_a_file_has_one_lock_which_is_never_dropped(tmp_path: Path):
    kept = weakref.ref(process_lock(tmp_path / "lock"))
    gc.collect()
    assert kept() is process_lock(tmp_path / "lock")
    assert kept() is not process_lock(tmp_path / "another")


def test_it_holds_within_itself_and_against_others(tmp_path: Path):
    other = FileLock(tmp_path / "lock", timeout=0)
    with process_lock(tmp_path / "lock"):
        with process_lock(tmp_path / "lock"):
            pass
        child = os.fork()
        if not child:
            try:
                process_lock(tmp_path / "lock").acquire(timeout=0)
            except TimeoutError:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    with other:
        pass
