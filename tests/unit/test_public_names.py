"""The names that others import stay where they are; the methods of the papers name them."""

import inspect
import re
from importlib import import_module

import pytest

import robust_eval
from robust_eval.config.groups import PROJECT

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
    "robust_eval.stats.auroc": ["uncertainty", "correct"],
    "robust_eval.stats.prediction_rejection_ratio": ["uncertainty", "correct"],
    "robust_eval.stats.risk_coverage": ["uncertainty", "correct"],
    "robust_eval.stats.calibration_error": ["probability", "correct"],
    "robust_eval.stats.pass_at_k": ["right", "n", "k"],
    "robust_eval.stats.pass_hat_k": ["right", "n", "k"],
    "robust_eval.stats.g_pass_at_k": ["right", "n", "k", "share"],
    "robust_eval.reader.letters.anchored_letter": ["reply", "choices", "strict"],
    "robust_eval.grader.graded_reply.grade_reply": ["reply", "answers", "choices", "reader", "grader"],
    "robust_eval.stats.bootstrap": ["statistic", "arrays", "groups", "level", "seed"],
}


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_takes_what_it_took(name: str):
    module, _, function = name.rpartition(".")
    taken = list(inspect.signature(getattr(import_module(module), function)).parameters)
    assert taken[: len(PUBLIC[name])] == PUBLIC[name]


def test_the_api_reference_has_every_public_name():
    page = (PROJECT / "docs" / "api.rst").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\.\. auto(?:class|data|function):: (?:robust_eval\.[\w.]+\.)?(\w+)$", page, re.M))
    assert documented == {*robust_eval.__all__} - {"__version__"}
