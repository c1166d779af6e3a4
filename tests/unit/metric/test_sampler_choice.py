import math
from dataclasses import dataclass, field

import pytest

from robust_eval.error import UserError
from robust_eval.metric.agreement_metric import AnswerAgreement
from robust_eval.metric.certainty_metric import AnswerCertainty
from robust_eval.metric.challenge_metric import PushbackRobustness
from robust_eval.metric.frs_metric import FactualRobustness
from robust_eval.metric.order_metric import ChoiceOrder
from robust_eval.metric.reliability_metric import TrialReliability
from robust_eval.metric.sampler_choice import choose_available_samplers, choose_samplers
from robust_eval.metric.uncertainty_metric import ErrorDetection
from robust_eval.metric.variance_metric import VarianceDecomposition
from robust_eval.sampler.challenge import Challenge
from robust_eval.sampler.exact import Exact
from robust_eval.sampler.perturbation import Perturbation
from robust_eval.sampler.repetition import Repetition
from robust_eval.sampler.temperature_sweep import TemperatureSweep

METRICS = {"frs": FactualRobustness(), "agreement": AnswerAgreement(), "certainty": AnswerCertainty()}
SAMPLERS = {"sweep": TemperatureSweep(), "rewrites": Perturbation(), "trials": Repetition()}


@dataclass
class Single:
    """One answer to each question."""

    axis: str = "trial"
    temperatures: list[float] = field(default_factory=lambda: [1.0])
    repetitions: float = 1
    estimator: str = "trials"


def test_each_metric_reads_the_sampler_that_varies_what_it_is_about_in_whatever_order():
    expected = {"frs": "sweep", "agreement": "rewrites", "certainty": "trials"}
    assert choose_samplers(METRICS, SAMPLERS) == expected
    assert choose_samplers(METRICS, dict(reversed(SAMPLERS.items()))) == expected
    assert choose_samplers(METRICS, SAMPLERS | {"sweep": Exact()}) == expected
    assert choose_samplers(METRICS, SAMPLERS | {"trials": Repetition(temperatures=[0.3, 0.7], trials=2)}) == expected


def test_metrics_without_a_sampler_are_refused_or_left_out():
    metrics = {"order": ChoiceOrder(), "certainty": AnswerCertainty()}
    assert choose_available_samplers(metrics, SAMPLERS) == {"certainty": "trials"}
    assert choose_available_samplers(metrics, {}) == {}
    with pytest.raises(UserError, match=r"^metric=order needs a sampler: "):
        choose_samplers(metrics, {})


def test_without_such_a_sampler_it_reads_the_first_that_it_can_score():
    only_sweep = {"sweep": TemperatureSweep()}
    assert choose_samplers(METRICS, only_sweep) == dict.fromkeys(METRICS, "sweep")
    exact_first = {"exact": Exact(), "rewrites": Perturbation()}
    assert choose_samplers(METRICS, exact_first) == {"frs": "exact", "agreement": "rewrites", "certainty": "exact"}
    enumerated = {"exact": Exact(), "trials": Repetition()}  # they are not counted
    assert choose_samplers(METRICS, enumerated) == {
        "frs": "exact",
        "agreement": "trials",
        "certainty": "trials",
    }


def test_a_sampler_of_its_axis_that_lacks_something_is_passed_over():
    single = {"once": Single(), "sweep": TemperatureSweep()}
    assert choose_samplers({"certainty": AnswerCertainty()}, single) == {"certainty": "sweep"}


def test_where_nothing_can_be_scored_it_is_said_what_is_lacking():
    with pytest.raises(UserError, match="metric=frs needs answers at several temperatures"):
        choose_samplers(METRICS, {"rewrites": Perturbation(), "trials": Repetition()})
    with pytest.raises(UserError, match="metric=certainty needs repeated answers"):
        choose_samplers({"certainty": AnswerCertainty()}, {"once": Single()})


FEW = "needs a finite number of answers to each question, at least 2: choose sampler"
ENUMERATED = "counts answers, but the sampler enumerates them: choose sampler"


@pytest.mark.parametrize(
    ("metric", "temperatures", "repetitions", "message"),
    [
        *((AnswerAgreement(), [0.5, 1.0], number, f"agreement {FEW}") for number in (1, math.inf)),
        *((TrialReliability(), [1.0], number, f"reliability {FEW}") for number in (1, math.inf)),
        *((VarianceDecomposition(), [1.0], number, f"variance {FEW}") for number in (1, math.inf)),
        (AnswerCertainty(), [0.7], 1, "certainty needs repeated answers to the same question"),
        (ChoiceOrder(), [1.0], math.inf, f"order {ENUMERATED}"),
        (PushbackRobustness(), [1.0], math.inf, f"challenge {ENUMERATED}"),
        (FactualRobustness(), [], 10, "frs needs answers at several .* but the sampler has none: "),
        (FactualRobustness(), [1.0], 10, "frs needs answers at several .* but the sampler has only one, t = 1: "),
        (FactualRobustness(), [math.nan], 10, "frs .* the sampler has the model's own temperature: "),
        (FactualRobustness(), [0.2, 1.0, math.nan], 10, "frs .* the sampler has the model's own temperature: "),
    ],
)
def test_answers_that_a_metric_cannot_score_are_refused_before_any_is_sampled(
    metric, temperatures, repetitions, message
):
    with pytest.raises(UserError, match=f"^metric={message}"):
        metric.check(temperatures, repetitions)


def test_conversations_are_read_by_the_metrics_that_say_so():
    samplers = {"conversations": Challenge()}
    assert choose_samplers({"reliability": TrialReliability()}, samplers) == {"reliability": "conversations"}
    assert choose_samplers({"reliability": TrialReliability()}, samplers | SAMPLERS) == {"reliability": "trials"}
    with pytest.raises(UserError, match="metric=uncertainty cannot score answers after pushback"):
        choose_samplers({"uncertainty": ErrorDetection()}, samplers)
