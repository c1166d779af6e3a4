import math
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from answer_rows import answer_row

from robust_eval.answer import answer_table, rows
from robust_eval.error import UserError
from robust_eval.grader.answer_matcher import AnswerMatcher
from robust_eval.grader.matching import Matching
from robust_eval.model.base import Matcher, Request, TrialKey
from robust_eval.prompt.prompt import Prompt, prompt_for
from robust_eval.question import Question
from robust_eval.sampler.temperature_sweep import TemperatureSweep, Waves, next_wave
from robust_eval.stats.frs import breaking_temperature, settled
from robust_eval.store.keys_and_rows import merge_answers

QUESTIONS = [Question(f"q{index}", f"Question {index}?", ("yes",)) for index in range(6)]


class Grading(Matching):
    """Hands out one matcher for each question that can be told from the others."""

    def __init__(self) -> None:
        self.matchers = {question.id: AnswerMatcher(["yes"]) for question in QUESTIONS}

    def matcher(self, question: Question) -> Matcher | None:
        return self.matchers[question.id]


@pytest.mark.parametrize(("wanted", "kept"), [(10, 20), (30, 30)])
def test_every_question_is_asked_for_one_greedy_answer_with_the_log_probabilities_that_are_wanted(
    wanted: int, kept: int
):
    sweep = TemperatureSweep(max_new_tokens=7)
    assert [sweep.baseline_request(question, Grading(), 3, wanted) for question in QUESTIONS] == [
        Request(question.id, 0, prompt_for(question), (0.0,), 1, 7, 3, kept, wanted) for question in QUESTIONS
    ]


@pytest.mark.parametrize("whole", [True, False])
def test_every_question_is_asked_at_every_temperature(whole: bool):
    grader = Grading()
    sweep = TemperatureSweep(temperatures=[2.0, 0.5], trials=4, stop_on_match=not whole)
    assert sweep.requests(QUESTIONS, grader, seed=3) == [
        Request(q.id, 0, prompt_for(q), (0.5, 2.0), 4, 5, 3, 0, 0, None if whole else grader.matchers[q.id], not whole)
        for q in QUESTIONS
    ]
    assert sweep.repetitions == 4


def test_a_question_whose_answers_can_only_be_graded_whole_brings_no_matcher():
    questions = [
        Question("free", "Capital of Italy?", ("Rome",)),
        Question("choice", "Capital of Italy?", choices=("Rome", "Paris"), correct=0),
        Question("open", "Capital of Italy?"),
        Question("nothing", "Capital of Italy?", ("", " ")),
    ]
    requests = TemperatureSweep(stop_on_match=True).requests(questions, Matching(), seed=0)
    assert [request.question_id for request in requests if request.matcher] == ["free"]
    matcher = requests[0].matcher
    assert [matcher.right(reply) for reply in ("It is Rome.", "Paris", "Romeo")] == [True, False, False]
    assert [each.matcher for each in TemperatureSweep(stop_on_match=True).requests(questions[1:3], Matching(), 0)] == [
        None,
        None,
    ]
    with pytest.raises(UserError, match=r"^sampler\.stop_on_match=true needs grader=matching with .*: remove it$"):
        TemperatureSweep(stop_on_match=True).requests(questions, Matching("substring"), seed=0)


HALF = partial(settled, threshold=0.5)
OF_TEN = Request("q", 0, Prompt("", (), "Why?"), (0.2, 0.4), 10, 5, 0)


def ask(
    outcomes: dict[TrialKey, bool | None], temperatures: list[float], trials: int, threshold: float
) -> tuple[float, int]:
    """Ask in waves: the breaking temperature, and how many answers it took."""
    verdicts: dict[TrialKey, bool | None] = {}
    rule = partial(settled, threshold=threshold)
    while lacking := next_wave(verdicts, temperatures, trials, rule)[1]:
        assert not verdicts.keys() & set(lacking)
        verdicts |= {condition: outcomes[condition] for condition in lacking}
    assert set(next_wave(outcomes, temperatures, trials, rule)[0]) == verdicts.keys()  # whatever else is there
    return breaking(verdicts, temperatures, threshold), len(verdicts)


def breaking(verdicts: dict[TrialKey, bool | None], temperatures: list[float], threshold: float) -> float:
    """The breaking temperature of one fact, by the share of right replies that are there."""
    accuracy = []
    for t in temperatures:
        replies = [right for (at, _), right in verdicts.items() if at == t and right is not None]
        accuracy.append(sum(replies) / len(replies) if replies else math.nan)
    return float(breaking_temperature([accuracy], temperatures, threshold)[0])


def one_by_one(outcomes: dict[TrialKey, bool | None], temperatures: list[float], trials: int, threshold: float) -> int:
    """How many answers settle it where the next is asked only once the last has come."""
    asked = 0
    for t in temperatures:
        right = wrong = 0
        for trial in range(trials):
            asked += 1
            right += outcomes[t, trial] is True
            wrong += outcomes[t, trial] is False
            if settled(right, wrong, trials - trial - 1, threshold):
                break
        if settled(right, wrong, trials - trial - 1, threshold) != "holds":
            break
    return asked


@pytest.mark.parametrize("part", range(2))
def test_the_breaking_temperature_is_that_of_all_answers_and_never_more_are_asked(part: int):
    generator = np.random.default_rng(part)
    for _ in range(1000):
        trials, grid = int(generator.integers(1, 16)), int(generator.integers(1, 8))
        threshold = float(generator.choice([0.5, 1.0, 0.3, 1 / 3, 0.7, generator.uniform(0.01, 1)]))
        temperatures = [round(0.2 * (place + 1), 1) for place in range(grid)]
        rightness, missing = generator.uniform(size=grid), generator.choice([0.0, 0.1, 0.5, 0.95])
        outcomes: dict[TrialKey, bool | None] = {
            (t, k): None if generator.random() < missing else bool(generator.random() < right)
            for t, right in zip(temperatures, rightness, strict=True)
            for k in range(trials)
        }
        found, asked = ask(outcomes, temperatures, trials, threshold)
        expected = breaking(outcomes, temperatures, threshold)
        assert found == expected or (math.isnan(found) and math.isnan(expected))
        assert asked == one_by_one(outcomes, temperatures, trials, threshold) <= len(outcomes)


def test_a_wave_is_as_many_answers_as_could_settle_it():
    assert next_wave({}, [0.2], 10, HALF) == ([], [(0.2, trial) for trial in range(5)])
    three_of_five: dict[TrialKey, bool | None] = {(0.2, trial): trial < 3 for trial in range(5)}
    assert next_wave(three_of_five, [0.2], 10, HALF) == (list(three_of_five), [(0.2, 5), (0.2, 6)])
    lost: dict[TrialKey, bool | None] = {(0.2, trial): None for trial in range(9)}
    assert next_wave(lost, [0.2, 0.4], 10, HALF)[1] == [(0.2, 9)]
    assert next_wave(lost | {(0.2, 9): None}, [0.2, 0.4], 10, HALF) == ([(0.2, trial) for trial in range(10)], [])


def answers(*found: tuple[float, int, bool | None]) -> pa.Table:
    return answer_table(
        answer_row(
            "q",
            temperature=temperature,
            trial=trial,
            text={True: "right", False: "wrong", None: ""}[right],
            outcome="error" if right is None else "ok",
            weight=0.1,
        )
        for temperature, trial, right in found
    )


def verdicts(table: pa.Table) -> list[bool | None]:
    return [{"right": True, "wrong": False, "": None}[text] for (text,) in rows(table, "text")]


def test_nothing_is_asked_while_answers_of_a_wave_are_awaited_and_nothing_that_is_there():
    waves = Waves([OF_TEN], HALF, verdicts)

    def take(*found: tuple[float, int, bool | None]) -> None:
        came = answers(*found)
        waves.tables["q", 0] = merge_answers(waves.tables.get(("q", 0)), came, OF_TEN)
        waves.take(came)

    take((0.2, 1, True))
    (first,) = waves.next()
    assert first.pending == [(0.2, trial) for trial in (0, 2, 3, 4)]
    assert first.max_answers == 4
    take((0.2, 0, True), (0.2, 2, False))
    assert waves.next() == []
    take((0.2, 4, None), (0.2, 3, True))
    (second,) = waves.next()
    assert second.pending == [(0.2, 5), (0.2, 6)]
    (left,) = waves.may_follow()
    assert left.pending == [(0.2, trial) for trial in range(5, 10)] + [(0.4, trial) for trial in range(10)]
    take((0.2, 5, True), (0.2, 6, True))
    (third,) = waves.next()
    assert third.pending == [(0.4, trial) for trial in range(5)]
    assert waves.finished == 0
    take(*((0.4, trial, False) for trial in range(5)))
    (fourth,) = waves.next()
    assert fourth.pending == [(0.4, 5)]
    take((0.4, 5, False))
    assert (waves.next(), waves.finished, waves.may_follow()) == ([], 1, [])
    used = [(0.2, trial) for trial in range(7)] + [(0.4, trial) for trial in range(6)]
    found = waves.answers().table
    assert list(rows(found, "temperature", "trial")) == used
    assert set(found["weight"].to_pylist()) == {1 / 10}
    assert waves.tables == {}
