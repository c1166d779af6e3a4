import json
from pathlib import Path

from robust_eval.reader.verdict import read_verdict

JUDGED = [
    json.loads(line) for line in Path(__file__).with_name("judged_verdicts.jsonl").read_text("utf-8").splitlines()
]


def test_judged_verdicts_are_read_as_judged():
    misread = [case for case in JUDGED if read_verdict(case["verdict_reply"]).right is not case["want"]]
    assert len(JUDGED) > 150
    assert not misread


def test_braces_without_end_are_no_verdict():
    assert read_verdict("{" * 3000).right is None


def test_the_reason_is_the_rest():
    assert read_verdict("Both name the same lake.\nVerdict: right").why == "Both name the same lake."
    assert (
        read_verdict("Is it right or wrong? Another lake.\nVerdict: wrong").why == "Is it right or wrong? Another lake."
    )
    assert read_verdict("Both name the same lake.\nright").why == "Both name the same lake."
    assert read_verdict('{"verdict": "wrong", "reason": "another river"}').why == "another river"
