import logging

import pytest
from unseen import HOSTILE, unseen

from robust_eval.runtime.console import Formatter, log_plainly


def record(message: str, *arguments: object, **more: object) -> logging.LogRecord:
    return logging.LogRecord("name", logging.WARNING, __file__, 1, message, arguments, **({"exc_info": None} | more))


def test_a_message_is_one_line_whatever_it_quotes():
    said = Formatter("%(levelname)s %(message)s").format(record("question %s failed", f"7\nINFO forged{HOSTILE}"))
    assert said.startswith(r"WARNING question 7\nINFO forged\x00\x01")
    assert "\n" not in said
    assert unseen(said) == set()


def test_no_line_of_a_traceback_looks_like_one_of_the_log():
    try:
        raise ValueError(f"first{HOSTILE}\nINFO forged")
    except ValueError as problem:
        failed = record("it failed", exc_info=(ValueError, problem, problem.__traceback__))
    failed.exc_text = "as another\nformatter left it"
    first, *others = Formatter("%(message)s").format(failed).split("\n")
    assert first == "it failed"
    assert others[0] == "  Traceback (most recent call last):"
    assert others[-1] == "  INFO forged"
    assert all(line.startswith("  ") for line in others)
    assert unseen("\n".join(others)) == set()
    assert failed.exc_text == "as another\nformatter left it"


def test_messages_go_to_standard_error_as_they_are(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(logging, "root", root := logging.RootLogger(logging.NOTSET))
    log_plainly()
    root.info("not this")
    root.warning("this\x1b")
    assert capsys.readouterr() == ("", "this\\x1b\n")
