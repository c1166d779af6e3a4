from types import SimpleNamespace
from typing import Any

import pytest
from experiments import configuration

from robust_eval.experiment.answer_source import PLURALITY_DRAWS, SampledSource
from robust_eval.model.base import Temperatures
from robust_eval.question import Question


@pytest.mark.parametrize(
    ("selection", "top_logprobs", "draws"),
    [("none", 0, []), ("none", 10, [PLURALITY_DRAWS]), ("exact_match", 0, [PLURALITY_DRAWS])],
)
def test_a_model_without_temperature_0_draws_baseline_answers_that_a_selection_or_a_metric_needs(
    selection: str, top_logprobs: int, draws: list[int]
):
    sampler = configuration(f"sampler.temperature_sweep.selection={selection}").sampler
    unused: Any = SimpleNamespace(first_line=True)
    supported = Temperatures(greedy=False)
    source = SampledSource(sampler, unused, unused, 0, top_logprobs=top_logprobs, supported_temperatures=supported)
    requests = source.baseline_requests([Question("q", "What is the capital of France?", answers=("Paris",))])
    assert [request.trials for request in requests] == draws


@pytest.mark.parametrize(("confidence", "top_logprobs", "needed"), [(0, 0, 0), (0.5, 0, 1), (0.5, 10, 10), (0, 10, 10)])
def test_a_minimum_confidence_needs_log_probabilities_which_metrics_may_not(
    confidence: float, top_logprobs: int, needed: int
):
    sampler = configuration(f"sampler.temperature_sweep.min_confidence={confidence}").sampler
    unused: Any = SimpleNamespace(first_line=True)
    source = SampledSource(sampler, unused, unused, 0, top_logprobs=top_logprobs)
    (request,) = source.baseline_requests([Question("q", "What is the capital of France?", answers=("Paris",))])
    assert request.min_logprobs == needed
