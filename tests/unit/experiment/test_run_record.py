from collections.abc import Mapping
from pathlib import Path

from robust_eval.experiment.run_record import DeferredRun
from robust_eval.tracking.base import Run, Tracking


def test_what_a_run_leaves_waits_until_it_begins_and_is_left_once(tmp_path: Path) -> None:
    said: list[str] = []

    def start(labels: Mapping[str, object]) -> Run:
        said.append(str(labels["method"]))
        return record

    with Tracking().run("x", tmp_path) as record:
        deferred = DeferredRun(start, {})
        deferred.then(lambda _: said.append("first"))
        deferred.then(lambda _: said.append("second"))
        deferred.labels["method"] = "start"
        assert said == []
        deferred.start()
        deferred.start()
        assert deferred.record is record
        assert said == ["start", "first", "second"]
        deferred.then(lambda given: said.append("at once") if given is record else None)
    assert said == ["start", "first", "second", "at once"]
