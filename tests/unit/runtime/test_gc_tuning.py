import gc

from robust_eval.engine.local import Local
from robust_eval.runtime.gc_tuning import collect_seldom


def test_garbage_is_collected_seldom_until_a_model_is_to_be_loaded():
    usual = gc.get_threshold()
    try:
        collect_seldom()
        assert gc.get_threshold()[0] > 100 * usual[0]
        Local(threads=1).prepare()
        assert gc.get_threshold() == usual
    finally:
        gc.set_threshold(*usual)
