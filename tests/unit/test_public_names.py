"""The names that others import stay where they are; the methods of the papers name them."""

import inspect
import re
from importlib import import_module

import pytest

import robust_eval
from robust_eval.config.groups import PROJECT

SIGNATURES = [
    "stats.factual_robustness_score(entropy, breaking_temperature, d, unbroken='one')",
    "stats.breaking_temperature(accuracy, temperatures, threshold=0.5, estimator='first')",
    "stats.top_entropy(probabilities, k=10, renormalize=True)",
    "stats.settled(right, wrong, outstanding, threshold=0.5)",
    "stats.fleiss_kappa(counts)",
    "stats.gibbs_m2(counts, categories)",
    "stats.normalized_certainty(counts, categories)",
    "stats.remapped_kappa(counts, categories, draws=1000, seed=0)",
    "stats.free_marginal_kappa(counts, categories)",
    "stats.cronbach_alpha(correct)",
    "stats.robustness(correct, ensemble_correct)",
    "stats.answer_entropy(counts)",
    "stats.mean_interval(values, groups=None, level=0.95)",
    "stats.share_interval(successes, groups=None, level=0.95)",
    "stats.paired_share_interval(a, b, groups=None, level=0.95)",
    "stats.bootstrap(statistic, *arrays, groups=None, level=0.95, seed=0)",
    "stats.verdict(differences, margin, level=0.95, groups=None)",
    "stats.confidence_sequence(differences, level=0.95)",
    "stats.corrected_mean(verdicts, labels, strata=None, level=0.95)",
    "stats.corrected_rate(rate, sensitivity, specificity)",
    "stats.auroc(uncertainty, correct)",
    "stats.prediction_rejection_ratio(uncertainty, correct)",
    "stats.risk_coverage(uncertainty, correct)",
    "stats.calibration_error(probability, correct)",
    "stats.pass_at_k(right, n, k)",
    "stats.pass_hat_k(right, n, k)",
    "stats.g_pass_at_k(right, n, k, share)",
    "grade_reply(reply, answers=(), choices=(), reader='reply', grader='matching')",
    "reader.letters.anchored_letter(reply, choices, strict=False)",
]
"""Parameters and defaults of public functions; others may follow."""


@pytest.mark.parametrize("expected", SIGNATURES)
def test_a_public_name_takes_what_it_took(expected: str):
    name = expected.partition("(")[0]
    module, _, function = f"robust_eval.{name}".rpartition(".")
    signature = inspect.signature(getattr(import_module(module), function))
    parameters = [each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values()]
    found = str(inspect.Signature(parameters))
    assert f"{name}{found[:-1]},".startswith(f"{expected[:-1]},")


def test_the_api_reference_has_every_public_name():
    page = (PROJECT / "docs" / "api.rst").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\.\. auto(?:class|data|function):: (?:robust_eval\.[\w.]+\.)?(\w+)$", page, re.M))
    assert documented == {*robust_eval.__all__} - {"__version__"}
