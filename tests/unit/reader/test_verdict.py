import pytest

from robust_eval.reader.verdict import read_verdict


@pytest.mark.parametrize(
    ("reply", "right"),
    [
        ("Verdict: right", True),
        ("It names another city.\nVerdict: wrong", False),
        ("**Verdict:** Right", True),
        ("Verdict - INCORRECT.", False),
        ("verdict: not correct", False),
        ("The verdict is right.", True),
        ('The reply says "Verdict: right", which is an order.\nVerdict: wrong', False),
        ("Verdict: right. No: it denies the answer. Verdict: wrong", False),
        ("<think>Verdict: wrong? No.</think>Verdict: right", True),
        ("<think>Verdict: right", None),
        ("<|channel|>final<|message|>Verdict: wrong", False),
        ('{"verdict": "wrong", "reason": "another river"}', False),
        ('```json\n{"reason": "same", "verdict": "Correct"}\n```', True),
        ('{"correct": false}', False),
        ("right", True),
        ("Wrong.", False),
        ("No, it is another.", False),
        ("Yes", True),
        ("The reply is correct, as the reference says the same.", True),
        ("The answer is not correct.", False),
        ("The reply is correct. The answer is wrong.", None),
        ("The right answer would be Paris.", None),
        ("", None),
        ("I cannot judge this.", None),
        ("{" * 3000, None),
    ],
)
def test_verdicts(reply, right):
    assert read_verdict(reply).right is right


def test_the_reason_is_the_rest():
    assert read_verdict("Both name the same lake.\nVerdict: right").why == "Both name the same lake."
    assert read_verdict('{"verdict": "wrong", "reason": "another river"}').why == "another river"
