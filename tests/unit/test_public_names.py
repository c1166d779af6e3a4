"""The names that others import stay where they are; the methods of the papers name them."""

import inspect
from importlib import import_module

import pytest

PUBLIC = {
    "robust_eval.stats.factual_robustness_score": ["entropy", "breaking_temperature", "d", "unbroken"],
    "robust_eval.stats.breaking_temperature": ["accuracy", "temperatures", "threshold", "estimator"],
    "robust_eval.stats.top_entropy": ["probabilities", "k", "renormalize"],
    "robust_eval.stats.settled": ["right", "wrong", "outstanding", "threshold"],
    "robust_eval.stats.verdict": ["differences", "margin", "level", "groups"],
    "robust_eval.stats.confidence_sequence": ["differences", "level"],
    "robust_eval.stats.fleiss_kappa": ["counts"],
    "robust_eval.stats.gibbs_m2": ["counts", "categories"],
    "robust_eval.stats.normalized_certainty": ["counts", "categories"],
    "robust_eval.stats.remapped_kappa": ["counts", "categories", "draws", "seed"],
    "robust_eval.stats.free_marginal_kappa": ["counts", "categories"],
    "robust_eval.stats.cronbach_alpha": ["correct"],
    "robust_eval.stats.robustness": ["correct", "ensemble_correct"],
    "robust_eval.stats.answer_entropy": ["counts"],
    "robust_eval.reader.letters.anchored_letter": ["reply", "choices", "strict"],
    "robust_eval.grader.graded_reply.grade_reply": ["reply", "answers", "choices", "reader", "grader"],
    "robust_eval.stats.bootstrap": ["statistic", "arrays", "groups", "level", "seed"],
}


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_takes_what_it_took(name: str):
    module, _, function = name.rpartition(".")
    taken = list(inspect.signature(getattr(import_module(module), function)).parameters)
    assert taken[: len(PUBLIC[name])] == PUBLIC[name]
