"""The names that others import stay where they are; the methods of the papers name them."""

import inspect
from importlib import import_module

import pytest

PUBLIC = {
    "robust_eval.metric.frs.factual_robustness_score": ["entropy", "breaking_temperature", "d", "unbroken"],
    "robust_eval.metric.frs.breaking_temperature": ["accuracy", "temperatures", "threshold", "estimator"],
    "robust_eval.metric.frs.top_entropy": ["probabilities", "k", "renormalize"],
    "robust_eval.metric.frs.settled": ["right", "wrong", "outstanding", "threshold"],
    "robust_eval.metric.verdict.verdict": ["differences", "margin", "level", "groups"],
    "robust_eval.metric.verdict.confidence_sequence": ["differences", "level"],
    "robust_eval.metric.agreement.fleiss_kappa": ["counts"],
    "robust_eval.metric.agreement.gibbs_m2": ["counts", "categories"],
    "robust_eval.metric.agreement.normalized_certainty": ["counts", "categories"],
    "robust_eval.metric.agreement.remapped_kappa": ["counts", "categories", "draws", "seed"],
    "robust_eval.metric.agreement.free_marginal_kappa": ["counts", "categories"],
    "robust_eval.metric.reliability.cronbach_alpha": ["correct"],
    "robust_eval.metric.robustness.robustness": ["correct", "ensemble_correct"],
    "robust_eval.metric.answer_entropy.answer_entropy": ["counts"],
    "robust_eval.reader.letters.anchored_letter": ["reply", "choices", "strict"],
    "robust_eval.grader.graded_reply.grade_reply": ["reply", "answers", "choices", "reader", "grader"],
    "robust_eval.metric.interval.bootstrap": ["statistic", "arrays", "groups", "level", "seed"],
}


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_takes_what_it_took(name: str):
    module, _, function = name.rpartition(".")
    taken = list(inspect.signature(getattr(import_module(module), function)).parameters)
    assert taken[: len(PUBLIC[name])] == PUBLIC[name]
