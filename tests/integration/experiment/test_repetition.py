"""Answer certainty under repetition: whole runs of a tiny model on the built-in physics questions and on facts."""

from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from experiments import Runs, runs_of_tiny_model
from tiny_model import KNOWN

from robust_eval.report.run_summary import sentence

TRIALS = 5000
ONCE = ("prompts=builtin:zero_shot.yaml", "max_new_tokens=1")


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return runs_of_tiny_model(tmp_path_factory, "experiment=certainty")


def shares(folder: Path) -> dict[str, dict[str | None, float]]:
    """For each question the share of each letter among the answers at temperature 0.7; None is no letter."""
    found: dict[str, dict[str | None, float]] = {}
    graded = pq.read_table(folder / "graded.parquet")
    for row in graded.filter(pc.equal(graded["temperature"], 0.7)).to_pylist():
        letters = found.setdefault(row["question_id"], {})
        letters[row["label"]] = letters.get(row["label"], 0.0) + row["weight"]
    return found


def test_repetition_and_the_exact_distribution_agree_within_sampling_error(ask: Runs):
    """One token is an answer, so that what is drawn is what is enumerated: the letters, and everything else."""
    repeated, drawn = ask("dataset.limit=2", *(f"sampler.repetition.{each}" for each in (f"trials={TRIALS}", *ONCE)))
    whole = ("selection=none", "temperatures=[0.7]", *ONCE)
    enumerated, exact = ask("dataset.limit=2", "sampler=exact", *(f"sampler.exact.{each}" for each in whole))
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
    by_trials, by_letters = (
        result.scores["certainty"].by_question["certainty.entropy.t0.7"] for result in (repeated, enumerated)
    )
    assert by_trials == pytest.approx(by_letters, abs=0.15)  # few replies are letters


def test_a_run_as_the_paper_has_it(ask: Runs):
    asked = [f"sampler.repetition.{each}" for each in ONCE]
    result, folder = ask("dataset.limit=6", "seed=1", *asked, figures=True)  # no other test asks with this seed
    graded = pq.read_table(folder / "graded.parquet")
    sampled = graded.filter(pc.equal(graded["temperature"], 0.7))
    assert sampled["weight"].to_pylist() == [0.05] * 6 * 20
    counts = result.counts()  # the greedy answers may be in the store: they have no seed
    assert counts["prompts.asked"] + counts["prompts.cached"] == 12
    assert {file.name for file in (folder / "figures").glob("*.png")} == {
        "answer_entropy.png",
        "error_rate_by_entropy.png",
        "error_rate_by_category.png",
    }
    assert sentence(result).startswith(
        "6 of 6 questions were kept and asked repeatedly at t = 0.7 (95 % intervals in brackets): the mean entropy"
    )
    assert "By category" in (folder / "report.html").read_text(encoding="utf-8")


FREE = (*KNOWN, "dataset=facts", "aggregator=clusters", "sampler.repetition.max_new_tokens=5")


def test_free_text_has_clusters_as_labels(ask: Runs):
    _, folder = ask(*FREE, "dataset.limit=3", "sampler.repetition.trials=6")
    graded = pq.read_table(folder / "graded.parquet")
    assert graded["ensemble"].null_count == 3  # the greedy answers have no vote
    sampled = graded.filter(pc.greater(graded["temperature"], 0)).to_pylist()
    table = pq.read_table(folder / "certainty.parquet").to_pylist()
    assert [row["most"] for row in table] == pytest.approx([np.log(6)] * 3)
    for row in table:
        own = {answer["label"] for answer in sampled if answer["question_id"] == row["question_id"]}
        assert row["labels"] == len(own - {None})


def test_an_earlier_run_is_scored_by_uncertainty_and_reliability_without_a_request(ask: Runs):
    few = (*FREE, "dataset.limit=12", "sampler.repetition.trials=4")
    first, _ = ask(*few)
    again, folder = ask(*few, "metric=[certainty,uncertainty,reliability]")
    assert (first.counts()["prompts.asked"] > 0, again.counts()["prompts.asked"]) == (True, 0)
    for name, estimate in first.scores["certainty"].metrics().items():
        np.testing.assert_equal(tuple(again.scores["certainty"].metrics()[name]), tuple(estimate))
    entropy = pq.read_table(folder / "certainty.parquet")["entropy"].to_numpy()
    assert pq.read_table(folder / "uncertainty.parquet")["answer_entropy"].to_numpy() == pytest.approx(entropy)
    error_rate = again.scores["certainty"].curves["certainty.error_rate"][0.7].value
    assert again.scores["reliability"].metrics()["reliability.pass_hat.k1"].value == pytest.approx(1 - error_rate)
    assert "in all 4 trials" in (folder / "report.html").read_text(encoding="utf-8")
