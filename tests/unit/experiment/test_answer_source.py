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
