"""What our tasks leave in a log of inspect_ai, beside what a run of ours makes of the same answers."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from capitals_server import RIGHT, WRONG_OF_TEN, score
from inspect_ai.log import EvalLog, read_eval_log
from inspect_evals import LEVELS

import robust_eval


@pytest.fixture(scope="module")
def evaluated(inspect_folder: Path) -> Path:
    return inspect_folder / "tasks"


@pytest.fixture(scope="module")
def requests(evaluated: Path) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = json.loads((evaluated / "requests.json").read_text())
    return found


def log_in(folder: Path) -> EvalLog:
    (file,) = folder.glob("*.eval")
    return read_eval_log(str(file))


def figures(log: EvalLog) -> dict[str, float]:
    assert log.status == "success", log.error and log.error.message
    assert log.results is not None
    return {name: each.value for name, each in log.results.scores[0].metrics.items()}


def imported(folder: Path, *wanted: str) -> dict[str, list[float]]:
    """Value and ends of the figures that a run of ours has of the same log."""
    (loaded,) = robust_eval.load_answers(folder)
    found = loaded.score(list(wanted), tracking="none").metrics.set_index("name")
    return {str(name): list(row) for name, row in zip(found.index, found[["value", "low", "high"]].values, strict=True)}


def ends(found: dict[str, float], name: str) -> list[float]:
    return [found.get(f"{name}{end}", math.nan) for end in ("", "_low", "_high")]


def test_frs_is_that_of_its_import_and_the_same_where_trials_end_early(
    evaluated: Path, requests: dict[str, list[dict[str, Any]]]
):
    assert len(requests["whole"]) == 3 + 3 * 2 * 10
    assert {body["temperature"] for body in requests["whole"]} == {0, *LEVELS}
    found, ours = figures(log_in(evaluated / "whole")), imported(evaluated / "whole", "frs")
    assert found["frs"] == pytest.approx(sum(score(name, LEVELS) for name in RIGHT) / 3, abs=1e-12)
    assert ends(found, "frs") == ours["frs"]
    assert ends(found, "breaking_temperature") == ours["frs.breaking_temperature.mean_broken"]
    assert ends(found, "unbroken_share") == ours["frs.unbroken_share"]
    early = log_in(evaluated / "early")
    assert figures(early) == found
    assert early.results is not None
    assert early.results.early_stopping is not None
    skipped = early.results.early_stopping.metadata["skipped"]
    assert len(requests["early"]) == 3 * 3 * 10 - skipped < len(requests["whole"])
    assert imported(evaluated / "early", "frs")["frs"] == ours["frs"]
    (loaded,) = robust_eval.load_answers(evaluated / "early")
    assert loaded.metrics == ["frs"]
    assert "sampler.early_stop=true" in loaded.lacking()["certainty"]


def test_certainty_and_multiqa_are_those_of_their_import(evaluated: Path):
    log = log_in(evaluated / "certainty")
    found, ours = figures(log), imported(evaluated / "certainty", "certainty", "reliability", "uncertainty")
    assert ends(found, "answer_entropy") == ours["certainty.entropy.t1"]
    for name, ending in {"pass_hat_k1": "pass_hat.k1", "pass_hat_k10": "pass_hat.k10"}.items():
        assert ends(found, name) == ours[f"reliability.{ending}"]
    assert found["auroc_answer_entropy"] == ours["uncertainty.auroc.answer_entropy"][0]
    shares = [wrong / 10 for wrong in WRONG_OF_TEN.values()]
    entropy = -sum(p * math.log(p) + (1 - p) * math.log(1 - p) for p in shares) / 3
    assert found["answer_entropy"] == pytest.approx(entropy, abs=1e-12)
    assert found["error_rate"] == pytest.approx(sum(shares) / 3, abs=1e-12)
    (reduced,) = log_in(evaluated / "reduced").reductions or []
    assert reduced.reducer == "robust_eval/answer_entropy"
    assert sum(one.value for one in reduced.samples) / 3 == pytest.approx(entropy, abs=1e-12)
    log = log_in(evaluated / "multiqa")
    found, ours = figures(log), imported(evaluated / "multiqa", "agreement")
    assert log.results is not None
    assert log.results.total_samples == 9
    for name, figure in {"base": "accuracy", "worst": "worst", "mode": "plurality", "kappa": "kappa"}.items():
        assert ends(found, name) == pytest.approx(ours[f"agreement.{figure}.t1"], abs=0, nan_ok=True)


def test_facts_that_are_not_known_are_asked_once(evaluated: Path, requests: dict[str, list[dict[str, Any]]]):
    log = log_in(evaluated / "unknown")
    assert log.results is not None
    assert log.results.early_stopping is not None
    reasons = {each.id: each.reason for each in log.results.early_stopping.early_stops if each.epoch == 1}
    assert reasons == {f"none t={t:g}": "the greedy answer is wrong" for t in LEVELS}
    assert len(requests["unknown"]) == 4 + 3 * 2 * 2
    found = figures(log)
    assert found["auroc_greedy_surprisal"] == found["auroc_initial_entropy"] == 0.5  # the server is as sure of each


def test_without_log_probabilities_there_is_no_frs(evaluated: Path):
    found = figures(log_in(evaluated / "without"))
    assert {name for name in found if name.startswith("frs")} == set()
    assert {"unbroken_share", "breaking_temperature"} <= found.keys()


def test_a_task_of_ones_own_without_our_samples_ends_in_a_sentence(evaluated: Path):
    log = log_in(evaluated / "unmarked")
    assert log.error is not None
    assert "create the task with frs, certainty or multiqa" in log.error.message
