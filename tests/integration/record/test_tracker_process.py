import signal

from robust_eval.record import tracker_process


def test_a_process_whose_run_never_begins_is_ended():
    tracker_process.start()
    (waiting,) = tracker_process._waiting
    tracker_process.start()
    assert tracker_process._waiting == [waiting]
    tracker_process.stop()
    assert tracker_process._waiting == []
    assert waiting._process.returncode == -signal.SIGKILL


def test_the_process_that_waits_is_the_one_that_is_taken():
    tracker_process.start()
    (waiting,) = tracker_process._waiting
    assert tracker_process.taken() is waiting
    another = tracker_process.taken()
    assert another is not waiting
    for process in (waiting, another):
        process.stop()
