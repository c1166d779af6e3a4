from pathlib import Path

import pytest
from gated import TEMPERATURES, gated_run

from robust_eval.gate.changed_facts import SingleFacts, single_facts
from robust_eval.gate.measured_run import MeasuredRun, refuse_incomparable


def found(one: MeasuredRun, other: MeasuredRun) -> SingleFacts:
    return single_facts(one, other, refuse_incomparable(one, other))


def test_facts_forgotten_and_learned_come_with_both_answers(tmp_path: Path):
    one = gated_run(tmp_path / "one", 4, known=lambda number: number != 1)
    other = gated_run(tmp_path / "other", 4, known=lambda number: number != 2)
    facts = found(one, other)
    assert [each[:4] for each in facts.forgotten] == [("q2", "What is fact 2?", "answer 2", "wrong 2")]
    assert [each[:4] for each in facts.learned] == [("q1", "What is fact 1?", "wrong 1", "answer 1")]
    assert facts.less_robust == []


@pytest.mark.parametrize("seed", [0, 1])
def test_the_facts_that_became_less_robust_are_found_and_no_others(tmp_path: Path, seed: int):
    one = gated_run(tmp_path / "one", 20)
    other = gated_run(tmp_path / "other", 20, seed=seed, right=lambda number, t, trial: t < (0.5 if number < 5 else 1))
    facts = found(one, other)
    assert [fact.question_id for fact in facts.less_robust] == ["q0", "q1", "q2", "q3", "q4"]
    assert facts.less_robust[0].why.startswith("right in 10 of 40 trials (baseline 20 of 40), p = 0.0")
    assert ("swapped between the runs" in facts.note) == (seed == 0)


def test_certain_bounds_say_which_facts_became_less_robust(tmp_path: Path):
    """Fact 0 lies below in sum alone, fact 1 may be as firm as it was, fact 2 became firmer."""
    exact = {"sampler__exact__temperatures": [*TEMPERATURES]}
    before, after = {0: (0.7, 0.8), 1: (0.5, 0.6), 2: (0.2, 0.3)}, {0: (0.5, 0.6), 1: (0.3, 0.5), 2: (0.6, 0.7)}
    moved = {0.2: 0.2, 0.6: -0.2, 1.0: 0.0, 1.4: 0.0}

    def wavy(number: int, t: float) -> tuple[float, float]:
        low, high = after[number]
        return (low + moved[t], high + moved[t]) if number == 0 else (low, high)

    one = gated_run(tmp_path / "one", 3, bounds=lambda number, t: before[number], **exact)
    other = gated_run(tmp_path / "other", 3, bounds=wavy, **exact)
    facts = found(one, other)
    assert [(fact.question_id, fact.why) for fact in facts.less_robust] == [
        ("q0", "accuracies sum to at most 2.40 (baseline: at least 2.80)")
    ]
    assert "certainly lower" in facts.note
