import math
from types import SimpleNamespace

import pyarrow as pa
import pytest
from json_lines import cases

from robust_eval.metric.metric_spec import RUN, MetricSpec
from robust_eval.metric.score import Score
from robust_eval.question import Question
from robust_eval.report.run_summary import asked_words, headline_rows, main_metrics
from robust_eval.stats.estimate import Estimate, bounds, interval, with_interval


def test_the_main_metrics_are_first_those_that_stand_for_a_run_then_other_means_at_temperature_1():
    specs = [
        MetricSpec("first.d{}", "score {}", primary=True),
        MetricSpec("first.mean", "mean"),
        MetricSpec("first.count", "count", shown=RUN, mean=False),
        MetricSpec("second.curve", "curve", short="curve"),
        MetricSpec("second.kappa", "κ", mean=False),
        MetricSpec("second.place{}", "place {}"),
    ]
    names = ["first.count", *(f"first.d{d}" for d in range(9)), *(f"second.place{place}" for place in range(3))]
    score = Score(
        values=dict.fromkeys([*names, "second.kappa", "first.mean"], Estimate(0.5)),
        curves={"second.curve": dict.fromkeys((0.2, 1.0, 2.0), Estimate(0.5))},
        specs=specs,
    )
    rows = headline_rows(score)
    assert len(rows) == 18
    scores = [f"score {d}" for d in range(9)]
    assert [row.label for row in main_metrics(rows)] == [*scores, "mean", "curve at t = 1"]
    more = Score(values={f"first.d{d}": Estimate(0.5) for d in range(20)}, specs=specs)
    assert [row.label for row in main_metrics(headline_rows(more))] == [f"score {d}" for d in range(12)]


def test_few_figures_are_all_main_metrics():
    rows = headline_rows(Score(values={f"mine.{place}": Estimate(0.5) for place in range(12)}))
    assert main_metrics(rows) == rows


def test_bounds_have_the_digits_that_tell_them_apart():
    assert bounds(0.25, 0.5) == "0.250 to 0.500"
    assert bounds(0.64958, 0.65022) == "0.6496 to 0.6502"
    assert bounds(0.0, 0.0006, ".0%") == "0.0 % to 0.1 %"
    assert bounds(-0.0004, -0.00035, "+.3f") == "-0.0004 to -0.0003"


def test_an_estimate_without_bounds_is_shown_without():
    assert (interval(Estimate(0.5)), with_interval(Estimate(0.5))) == ("", "0.500")
    narrow = Estimate(0.65, 0.64958, 0.65022)
    assert (interval(narrow), with_interval(narrow)) == ("0.6496 to 0.6502", "0.650 (0.6496 to 0.6502)")
    assert with_interval(Estimate(math.nan)) == "undefined"


@pytest.mark.parametrize(("kept", "said"), cases(__file__, "it_is_said_which_questions_were_asked_again"))
def test_it_is_said_which_questions_were_asked_again(kept: str, said: str):
    questions = {name: Question(name, f"What is {name}?", ("x",)) for name in "abcd"}
    verdicts = {"a": (True, True), "b": (True, True), "c": (True, False), "d": (False, False)}
    rows = [
        {"question_id": name, "correct": right, "exact": exact, "outcome": "ok"}
        for name, (right, exact) in verdicts.items()
    ]
    settings = {"trials": 10, "temperatures": [0.2, 2.0]}
    result = SimpleNamespace(
        questions=list(questions.values()),
        kept=[questions[name] for name in kept],
        candidates=lambda: list(questions.values()),
        graded_baseline=pa.Table.from_pylist(rows),
        graded_by_sampler={"sweep": None},
        description={"model.name": "m", "dataset.name": "letters"}
        | {f"sampler.sweep.{name}": value for name, value in settings.items()},
        origin={"time": "1 May 2026, 10:00"},
    )
    assert asked_words(result) == (  # type: ignore[arg-type]
        f"m was asked 4 questions from the data set letters on 1 May 2026: once at temperature 0, and {said} 10 times "
        "at each of 2 temperatures (0.2 to 2)."
    )


def test_an_interval_has_the_digits_of_its_value():
    specs = [
        MetricSpec("mine.a", "a", form=".1f"),
        MetricSpec("mine.b", "b", form=".0%"),
        MetricSpec("mine.c", "c", form="g"),
    ]
    score = Score(values={spec.name: Estimate(0.5, 0.25, 0.75) for spec in specs}, specs=specs)
    rows = [(row.value, row.interval) for row in headline_rows(score)]
    assert rows == [("0.5", "0.3 to 0.8"), ("50 %", "25 % to 75 %"), ("0.5", "0.250 to 0.750")]
