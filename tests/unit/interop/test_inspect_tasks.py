"""Tasks that cannot be made, and what is said then."""

from typing import Any

import pytest
from inspect_ai.dataset import Sample

from robust_eval.error import UserError
from robust_eval.interop.inspect_tasks import certainty, frs, multiqa

SAMPLES = [Sample("Who?", target="I", id="1"), Sample("What?", target=["that", "this"], id="2")]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: frs(SAMPLES, temperatures=[0.5]), "temperatures must be two or more"),
        (lambda: frs(SAMPLES, temperatures=["hot", "cold"]), "temperatures must be numbers"),
        (lambda: frs([]), "no question of samples can be asked"),
        (lambda: frs([SAMPLES[0], SAMPLES[0]]), "two samples would have the same id"),
        (lambda: frs([Sample("Which?", target="x", choices=["a", "b"])]), "sample 1: the target"),
        (lambda: certainty(SAMPLES, temperature=0), "temperature must be above 0"),
        (lambda: multiqa(SAMPLES), "none has rewrites"),
        (lambda: multiqa(SAMPLES, rewrites=0), "rewrites must be 1 or more"),
        (lambda: frs("no-such-set"), "no-such-set"),
    ],
)
def test_it_is_a_sentence(wrong: Any, said: str):
    with pytest.raises(UserError, match=said):
        wrong()


def test_a_sample_of_ones_own_is_asked_as_it_is_at_every_temperature():
    task = frs(SAMPLES, temperatures=["0.5", 1], trials=3)
    assert [(each.id, each.input, each.target) for each in task.dataset] == [
        (f"{sample.id}{end}", sample.input, sample.target) for end in ("", " t=0.5", " t=1") for sample in SAMPLES
    ]
    assert task.epochs == 3


def test_choices_of_a_data_set_are_asked_by_letter():
    (sample, *_) = certainty("physics", limit=1).dataset
    letters = "ABCDE"[: len(sample.choices or ())]
    assert sample.target[0] in list(letters)
    assert all(f"{letter}:" in sample.input[-1].text or f"{letter})" in sample.input[-1].text for letter in letters)
