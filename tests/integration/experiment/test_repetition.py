"""Answer certainty under repetition: whole runs of the embedded model on the built-in physics questions."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from experiments import run_experiment
from scipy import stats
from sklearn.metrics import roc_auc_score

from robust_eval.report.wording import sentence
from robust_eval.tracking.result import Result

Ask = Callable[..., tuple[Result, Path]]
TRIALS = 5000


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """Run experiment=certainty; all runs share a store."""
    mlruns = tmp_path_factory.mktemp("mlruns")

    def run(*overrides: str, figures: bool = False) -> tuple[Result, Path]:
        folder = tmp_path_factory.mktemp("run")
        settings = ["experiment=certainty", "engine.threads=1", "tracking=none", f"paths.mlruns={mlruns}"]
        return run_experiment(folder, *settings, *overrides, figures=figures), folder

    return run


def shares(folder: Path) -> dict[str, dict[str | None, float]]:
    """For each question the share of each letter among the answers at temperature 0.7; None is no letter."""
    found: dict[str, dict[str | None, float]] = {}
    graded = pq.read_table(folder / "graded.parquet")
    for row in graded.filter(pa.compute.equal(graded["temperature"], 0.7)).to_pylist():
        letters = found.setdefault(row["question_id"], {})
        letters[row["label"]] = letters.get(row["label"], 0.0) + row["weight"]
    return found


def test_repetition_and_the_exact_distribution_agree_within_sampling_error(ask: Ask):
    """One token is an answer, so that what is drawn is what is enumerated: the letters, and everything else."""
    few = ("dataset.limit=2", "model.prompt_style=plain")
    once = ("prompts=builtin:zero_shot.yaml", "max_new_tokens=1")
    repeated, drawn = ask(*few, *(f"sampler.repetition.{setting}" for setting in (f"trials={TRIALS}", *once)))
    whole = ("selection=none", "temperatures=[0.7]", *once)
    enumerated, exact = ask(*few, "sampler=exact", *(f"sampler.exact.{setting}" for setting in whole))
    counted, known = shares(drawn), shares(exact)
    assert counted.keys() == known.keys()
    assert len(counted) == 2
    for question_id, letters in known.items():
        assert sum(letters.values()) == pytest.approx(1, abs=1e-5)
        for letter in letters.keys() | counted[question_id].keys():
            p = letters.get(letter, 0.0)
            error = np.sqrt(p * (1 - p) / TRIALS)
            # 4.5 standard errors: one test in some ten thousand would fail by chance
            assert abs(counted[question_id].get(letter, 0.0) - p) <= 4.5 * error + 1 / TRIALS, (question_id, letter)
    name = "certainty.entropy"
    by_trials, by_letters = (
        result.scores["certainty"].by_question[f"{name}.t0.7"] for result in (repeated, enumerated)
    )
    assert by_trials == pytest.approx(by_letters, abs=0.06)
    assert repeated.scores["certainty"].curves[f"{name}_miller_madow"][0.7].value == pytest.approx(
        enumerated.scores["certainty"].curves[name][0.7].value, abs=0.03
    )


def test_a_run_as_the_paper_has_it(ask: Ask):
    result, folder = ask("dataset.limit=6", "sampler.repetition.prompts=builtin:physics.yaml", figures=True)
    graded = pq.read_table(folder / "graded.parquet")
    sampled = graded.filter(pa.compute.equal(graded["temperature"], 0.7)).to_pylist()
    assert len(sampled) == 6 * 20
    assert all(row["weight"] == 0.05 for row in sampled)
    table = pq.read_table(folder / "certainty.parquet").to_pylist()
    for row in table:
        own = [answer for answer in sampled if answer["question_id"] == row["question_id"]]
        valid = [answer["label"] for answer in own if answer["label"] is not None]
        assert row["invalid"] == len(own) - len(valid)
        counts = [valid.count(letter) for letter in sorted(set(valid))]
        assert row["labels"] == len(counts)
        assert row["entropy"] == pytest.approx(stats.entropy(counts), rel=1e-12)
        right = sum(answer["correct"] for answer in own if answer["label"] is not None)
        assert row["error_rate"] == pytest.approx(1 - right / len(valid), rel=1e-12)
    assert result.counts()["prompts.asked"] == 12
    assert {file.name for file in (folder / "figures").glob("*.png")} == {
        "answer_entropy.png",
        "error_rate_by_entropy.png",
        "error_rate_by_category.png",
    }
    error = result.scores["certainty"].curves["certainty.error_rate"][0.7]
    assert sentence(result).startswith(
        "6 of 6 questions were kept and asked again and again at t = 0.7 (95 % intervals in brackets): the mean entropy"
    )
    assert (
        f"their mean error rate {error.value:.3f} ({error.low:.3f} to {error.high:.3f}); "
        "on 0 of them the model is certain and wrong."
    ) in sentence(result)
    assert "By category" in (folder / "report.html").read_text(encoding="utf-8")


def test_free_text_has_clusters_as_labels(ask: Ask):
    _, folder = ask("dataset=facts", "dataset.limit=3", "aggregator=clusters", "sampler.repetition.trials=6")
    graded = pq.read_table(folder / "graded.parquet")
    assert graded["ensemble"].null_count == 3  # the greedy answers have no vote
    table = pq.read_table(folder / "certainty.parquet").to_pylist()
    assert [row["most"] for row in table] == pytest.approx([np.log(6)] * 3)
    for row in table:
        labels = {
            answer["label"]
            for answer in graded.to_pylist()
            if answer["question_id"] == row["question_id"] and answer["temperature"] > 0 and answer["label"]
        }
        assert row["labels"] == len(labels)


def test_an_earlier_run_is_scored_by_uncertainty_and_reliability_without_a_request(ask: Ask):
    few = ("dataset=facts", "dataset.limit=12", "sampler.repetition.trials=4")
    first, _ = ask(*few)
    again, folder = ask(*few, "metric=[certainty,uncertainty,reliability]", figures=True)
    assert first.counts()["prompts.asked"] > 0
    assert again.counts()["prompts.asked"] == 0
    for name, estimate in first.scores["certainty"].metrics().items():
        np.testing.assert_equal(tuple(again.scores["certainty"].metrics()[name]), tuple(estimate))
    table = pq.read_table(folder / "uncertainty.parquet")
    entropy = pq.read_table(folder / "certainty.parquet")["entropy"].to_numpy()
    assert table["answer_entropy"].to_numpy() == pytest.approx(entropy, abs=1e-9)
    wrong = 1 - table["correct"].to_numpy()
    auroc = again.scores["uncertainty"].values["uncertainty.auroc.answer_entropy"].value
    assert auroc == pytest.approx(roc_auc_score(wrong, entropy.round(9)))
    error_rate = again.scores["certainty"].curves["certainty.error_rate"][0.7].value
    figures = again.scores["reliability"].metrics()
    assert figures["reliability.pass_hat.k1"].value == pytest.approx(1 - error_rate)
    assert figures["reliability.pass_at.k4"].value >= figures["reliability.pass_hat.k4"].value
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "The 20 % of answers that it is least sure of contain" in page
    assert "in all of 4 trials" in page
    assert {"risk_by_coverage.png", "uncertainty_of_right_and_wrong.png"} <= {
        file.name for file in (folder / "figures").iterdir()
    }
