import gc
import subprocess
import sys

import pytest

from robust_eval.engine.local import Local
from robust_eval.runtime.gc_tuning import collect_seldom


def test_garbage_is_collected_seldom_until_a_model_is_to_be_loaded():
    of_tests, usual = gc.get_threshold(), (700, 10, 10)
    gc.set_threshold(*usual)
    try:
        collect_seldom()
        assert gc.get_threshold()[0] >= 100 * usual[0]
        Local(threads=1).prepare()
        assert gc.get_threshold() == usual
    finally:
        gc.set_threshold(*of_tests)


@pytest.mark.parametrize(("loaded", "left"), [("", True), ("triton", False)])
def test_what_is_left_at_the_end_is_not_looked_through_unless_triton_would_print_it(loaded: str, left: bool):
    program = f"""
import atexit, gc, sys
from robust_eval.runtime.gc_tuning import collect_seldom
sys.modules.pop("triton", None)
if {loaded!r}:
    sys.modules[{loaded!r}] = sys
before = gc.get_freeze_count()  # Python 3.12 has frozen some by itself
atexit.register(lambda: print(gc.get_freeze_count() > before))
collect_seldom()
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == f"{left}\n"
