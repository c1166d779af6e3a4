"""MultiQ&A from the questions to the report, with a tiny random model."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from experiments import Runs, runs_of_tiny_model

from robust_eval.aggregator.base import ENSEMBLE
from robust_eval.answer import SAMPLER, SCHEMA
from robust_eval.error import UserError

OF_QUESTIONS = [
    *("accuracy", "worst", "best", "plurality", "difficulty", "base_minus_difficulty"),
    *("certainty", "m2", "semantic_entropy"),
]
SHORT = ["sampler.perturbation.prompts=builtin:zero_shot.yaml", "sampler.perturbation.max_new_tokens=4"]
OF_ALL = ["kappa", "kappa_free", "alpha", "alpha_of_raters", "count.unrated", "count.incomplete"]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Run an experiment on three questions."""
    settings = ("dataset=physics", "dataset.limit=3", *SHORT)
    return runs_of_tiny_model(tmp_path_factory, *settings, letters=False, shared=False)


def sampled(folder: Path) -> pa.Table:
    graded = pq.read_table(folder / "graded.parquet")
    return graded.filter(pc.greater(graded["temperature"], 0))


def of_ensemble(graded: pa.Table) -> list[tuple[str, float]]:
    marked = graded.filter(graded[ENSEMBLE])
    return sorted(zip(marked["question_id"].to_pylist(), marked["temperature"].to_pylist(), strict=True))


def voting(graded: pa.Table) -> list[tuple[str, float]]:
    """The questions, at each temperature, with an answer that has a label."""
    labelled = graded.filter(graded["label"].is_valid())
    return sorted(set(zip(labelled["question_id"].to_pylist(), labelled["temperature"].to_pylist(), strict=True)))


@pytest.mark.parametrize("dataset", ["physics", "passages"])
def test_the_preset_leaves_votes_a_table_of_agreement_and_its_curves(ask: Runs, dataset: str):
    result, folder = ask("experiment=multiqa", "aggregator=text", f"dataset={dataset}")
    both = pq.read_table(folder / "graded.parquet")
    assert both.schema.names == [*SCHEMA.names, SAMPLER, ENSEMBLE]
    assert both.filter(pc.equal(both["temperature"], 0))[ENSEMBLE].to_pylist() == [None] * 3
    graded = sampled(folder)
    questions = [question.id for question in result.questions]
    assert [question.id for question in result.kept] == questions
    conditions = graded.select(["question_id", "rewrite", "temperature", "trial"]).to_pylist()
    assert sorted(conditions, key=lambda row: (row["question_id"], row["rewrite"])) == [
        {"question_id": question_id, "rewrite": rewrite, "temperature": 1.0, "trial": 0}
        for question_id in questions
        for rewrite in range(6)
    ]
    assert of_ensemble(graded) == voting(graded)

    summary = json.loads((folder / "summary.json").read_text())
    figures = {name for name in summary if name.startswith("agreement.") and name.endswith(".t1")}
    as_labelled = ["kappa_as_labelled"] if dataset == "physics" else []
    assert figures == {f"agreement.{name}.t1" for name in (*OF_QUESTIONS, *OF_ALL, *as_labelled)}
    assert summary["agreement.difficulty.t1"] == pytest.approx(np.mean(graded["correct"].to_pylist()), abs=1e-12)

    table = pq.read_table(folder / "agreement.parquet")
    assert table["question_id"].to_pylist() == questions
    labels = [[row["label"] for row in graded.to_pylist() if row["question_id"] == q] for q in questions]
    assert table["labels"].to_pylist() == [len({*each} - {None}) for each in labels]
    assert (folder / "report.html").is_file()


def test_what_ranked_the_answers_is_on_the_record_where_it_is_not_what_was_named(ask: Runs, tmp_path: Path):
    one_cluster = ("experiment=multiqa", "dataset=passages", "dataset.limit=2", "aggregator.threshold=2")
    result, _ = ask(*one_cluster, f"aggregator.cross_encoder={tmp_path}/gone")
    assert result.description["aggregator.cross_encoder"] == f"{tmp_path}/gone"
    sentence_model = result.description["aggregator.model"]
    assert result.description["loaded.aggregator.ranked_by"] == f"sentence-embedding model {sentence_model}"


def test_all_metrics_score_the_same_answers_at_several_temperatures(ask: Runs):
    result, folder = ask(
        "sampler=perturbation",
        "sampler.perturbation.temperatures=[0.5,1.0]",
        "sampler.perturbation.trials=2",
        "metric=[agreement,certainty,frs]",
        "dataset=passages",
        "dataset.limit=2",
    )
    graded = sampled(folder)
    assert graded.num_rows == 2 * 6 * 2 * 2
    assert of_ensemble(graded) == voting(graded)
    summary = json.loads((folder / "summary.json").read_text())
    for t in ("t0.5", "t1"):
        of_t = graded.filter(pc.equal(graded["temperature"], float(t[1:])))
        right = np.mean(of_t["correct"].to_pylist())
        assert summary[f"agreement.difficulty.{t}"] == pytest.approx(right, abs=1e-12)
        assert summary[f"accuracy.{t}"] == pytest.approx(right, abs=1e-12)
        assert summary[f"agreement.semantic_entropy.{t}"] == pytest.approx(summary[f"certainty.entropy.{t}"], abs=1e-12)
    assert "frs.d1" in summary
    assert pq.read_table(folder / "agreement.parquet").num_rows == 2 * 2
    assert set(result.scores) == {"agreement", "certainty", "frs", "greedy"}


def test_rewrites_come_from_a_file_of_their_own_and_undefined_figures_are_null(ask: Runs, tmp_path: Path):
    file = tmp_path / "rewrites.jsonl"
    file.write_text('{"id": "physics-002", "rewrites": ["So?", "And why?"]}\n')
    result, folder = ask("experiment=multiqa", "aggregator=text", f"rewriter.file={file}")
    assert [(question.id, question.rewrites) for question in result.kept] == [("physics-002", ("So?", "And why?"))]
    assert sorted(sampled(folder)["rewrite"].to_pylist()) == [0, 1, 2]
    summary = json.loads((folder / "summary.json").read_text())
    assert [summary[f"questions.{name}"] for name in ("loaded", "asked", "kept")] == [3, 1, 1]  # two lack rewrites
    assert summary["agreement.alpha.t1"] is None  # of a single question
    questions = pq.read_table(folder / "questions.parquet")
    assert questions["agreement.difficulty.t1"].is_nan().to_pylist() == [True, False, True]


@pytest.mark.parametrize(
    ("more", "start"),
    [
        ([], "none of the questions has rewrites"),
        (["rewriter.file={}/none.jsonl"], r"rewriter\.file: .*/none\.jsonl cannot be read: "),
    ],
)
def test_questions_without_rewrites_are_refused_before_a_model_is_loaded(
    ask: Runs, more: list[str], start: str, tmp_path: Path
):
    (tmp_path / "mine.jsonl").write_text('{"id": "1", "question": "Why?", "answers": ["because"]}\n')
    (tmp_path / "config.json").write_text("{}")  # what looks like a model, and cannot be loaded
    own = [line.format(tmp_path) for line in ("dataset.path={}/mine.jsonl", "model.path={}", *more)]
    with pytest.raises(UserError, match=f"^{start}"):
        ask("experiment=multiqa", "dataset=jsonl", *own)


def test_questions_without_rewrites_are_counted_once_for_all_blocks(
    ask: Runs, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    file = tmp_path / "mine.jsonl"
    lines = [
        {"id": f"{n}", "question": f"Who is {n}?", "answers": ["k"], "rewrites": ["Who?"][n % 2 :]} for n in range(80)
    ]
    file.write_text("\n".join(map(json.dumps, lines)))
    own = ["dataset=jsonl", f"dataset.path={file}", "dataset.name=mine", "dataset.limit=80", "aggregator=text"]
    with caplog.at_level("INFO"):
        result, _ = ask("experiment=multiqa", *own, "target_half_width={agreement.difficulty.t1: 0.001}")
    assert len(result.kept) == 40
    (left_out,) = [message for message in caplog.messages if "left out" in message]
    assert left_out.startswith("40 of 80 questions left out: the sampler needs rewrites")
