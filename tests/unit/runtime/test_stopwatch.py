import time

import pytest

from robust_eval.runtime.process import Stopwatch


def test_a_stage_is_measured_without_the_stages_within_it(monkeypatch: pytest.MonkeyPatch):
    now = iter([0.0, 1.0, 4.0, 6.0, 7.0, 17.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(now))
    watch = Stopwatch()
    with watch.stage("outer"), watch.stage("inner"):
        pass
    with watch.stage("inner"):
        pass
    assert watch.seconds == {"inner": 13.0, "outer": 3.0}
