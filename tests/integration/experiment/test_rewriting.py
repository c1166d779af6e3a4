"""Rewrites by a language model, from the questions to the report."""

import json
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from experiments import Runs, configuration, runs_of_tiny_model

from robust_eval.answer import OUTCOMES, SCHEMA
from robust_eval.error import UserError
from robust_eval.experiment.models import Models
from robust_eval.model.local.transformers_model import TransformersModel
from robust_eval.question import fingerprint
from robust_eval.rewriter.base import FATES, MODEL_REWRITES
from robust_eval.runtime.process import Stopwatch
from robust_eval.tracking.result import Result

TABLES = ["rewriting.parquet", "rewrites.parquet", "graded.parquet"]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Run an experiment that measures a tiny model, and in which rewrites are written."""
    settings = ("experiment=multiqa", "rewriter=llm", "aggregator=text", "model.prompt_style=chat")
    return runs_of_tiny_model(tmp_path_factory, *settings, letters=False)


def summary(folder: Path) -> dict[str, float | None]:
    return json.loads((folder / "summary.json").read_text())


OTHER = ["model@rewriter.model=smollm2_135m", "rewriter.model.name=other", "rewriter.model.prompt_style=plain"]
REAL = [
    *("dataset=facts", "dataset.limit=2", "rewriter.drift=drop", "rewriter.similarity=0.3"),
    *("rewriter.rewrites=2", "rewriter.attempts=2", "rewriter.max_new_tokens=24"),
    *("sampler.perturbation.prompts=builtin:zero_shot.yaml", "sampler.perturbation.max_new_tokens=8"),
    *(*OTHER, "rewriter.prompts=builtin:zero_shot.yaml"),
]


@pytest.fixture(scope="module")
def written(ask: Runs) -> tuple[Result, Path]:
    """The embedded model rewrites two questions, and the tiny one answers them."""
    return ask(*REAL)


def test_what_a_model_offers_is_written_down_with_its_replies(written: tuple[Result, Path]):
    result, folder = written
    found, replies = (pq.read_table(folder / name) for name in ("rewrites.parquet", "rewriting.parquet"))
    assert (found.schema, replies.schema) == (MODEL_REWRITES, SCHEMA)
    assert (found, replies) == (result.rewritten.model_rewrites, result.rewritten.replies)
    ids = [question.id for question in result.questions]
    kept = [(row["question_id"], row["attempt"], row["text"]) for row in found.to_pylist() if row["fate"] == "kept"]
    lacking = [q for q in ids if sum(row[:2] == (q, 0) for row in kept) < 2]
    asked = [(row["question_id"], row["rewrite"], row["temperature"]) for row in replies.to_pylist()]
    assert asked == [*((q, 0, 1.0) for q in ids), *((q, 1, 1.0) for q in lacking)]
    texts = {(row["question_id"], row["rewrite"]): row["text"] for row in replies.to_pylist()}
    assert all(texts[q, 0] != texts[q, 1] for q in lacking)
    for row in found.to_pylist():
        assert not row["drifted"] or row["fate"] == "drifted"
    for question in result.questions:
        assert question.rewrites == tuple(text for name, _, text in kept if name == question.id)
    assert [question.id for question in result.kept] == [q.id for q in result.questions if q.rewrites]
    assert len(result.kept) > 0
    assert (folder / "report.html").is_file()


def test_the_summary_counts_fates_outcomes_and_tokens(written: tuple[Result, Path], embedded: TransformersModel):
    result, folder = written
    figures = summary(folder)
    found, replies, graded = (
        pq.read_table(folder / name).to_pylist() for name in ("rewrites.parquet", "rewriting.parquet", "graded.parquet")
    )
    fates, outcomes = (Counter(row[name] for row in of) for of, name in ((found, "fate"), (replies, "outcome")))
    expected = {f"rewriting.{fate}": fates[fate] for fate in FATES} | {"rewriting.kept_drifted": 0}
    expected |= {f"rewriting.outcomes.{outcome}": outcomes[outcome] for outcome in OUTCOMES}
    assert {name: value for name, value in figures.items() if name.startswith("rewriting.")} == expected
    for stage, table in (("rewriting", replies), ("answering", graded)):
        prompt, completion = sum(row["prompt_tokens"] for row in table), sum(len(row["token_ids"]) for row in table)
        counts = {"prompt": prompt, "completion": completion, "reasoning": 0, "cached": 0}
        assert {name: figures[f"tokens.{stage}.{name}"] for name in counts} == counts
    for row in replies:  # as the other model is asked: its tokens, in plain text
        (question,) = [question for question in result.questions if question.id == row["question_id"]]
        shown = f"Rewrite the question in 2 radically different ways.\nQuestion: {question.text}"
        assert row["prompt_tokens"] == len(embedded.tokenizer(shown).input_ids)
        assert len(row["token_ids"]) <= 24
    asked = len(replies) + sum(2 + len(question.rewrites) for question in result.kept)
    assert (figures["prompts.asked"], figures["prompts.cached"]) == (asked, 0)


def test_a_second_run_asks_nothing_and_both_models_are_described(written: tuple[Result, Path], ask: Runs):
    first, one = written
    described = {
        "loaded.name": "tiny",
        "loaded.parameters": 32_096,
        "loaded.prompt_style": "chat",
        "loaded.rewriter.name": "other",
        "loaded.rewriter.parameters": 134_515_008,
        "loaded.rewriter.prompt_style": "plain",
    }
    again, other = ask(*REAL)
    for result in (first, again):
        assert {name: result.description[name] for name in described} == described
    assert first.description["identity.files"] != first.description["identity.rewriter.files"]
    own, others = (
        {name.removeprefix(prefix) for name in first.description if name.startswith(prefix)}
        for prefix in ("loaded.", "loaded.rewriter.")
    )
    assert {name for name in own if not name.startswith(("rewriter.", "dataset."))} == others
    assert (again.prompts_asked, again.cache_hits) == (0, first.prompts_asked)
    assert again.questions == first.questions
    for name in TABLES:
        assert pq.read_table(one / name) == pq.read_table(other / name)
    for name in ("rewriting.", "tokens.", "agreement."):
        assert {key: value for key, value in summary(one).items() if key.startswith(name)} == {
            key: value for key, value in summary(other).items() if key.startswith(name)
        }


def models_of(folder: Path, *overrides: str) -> Models:
    config = configuration("experiment=multiqa", "rewriter=llm", f"paths.mlruns={folder}", *overrides)
    with config.store.open() as entries:
        return Models(config, entries, Stopwatch())


def test_equal_models_of_a_run_are_the_same(tmp_path: Path):
    for named, same in (([], True), (["model@rewriter.model=smollm2_135m"], True), (OTHER, False)):
        models = models_of(tmp_path, *named)
        assert (models.writer is models.measured) == same
        assert models.judge is models.measured
    judge = [line.replace("rewriter.", "grader.") for line in OTHER]
    models = models_of(tmp_path, *OTHER, "grader=judge", *judge)
    assert models.judge is models.writer is not models.measured


def test_the_requests_to_a_writer_count_before_and_after_its_release(tmp_path: Path):
    models = models_of(tmp_path, *OTHER)
    models.writer.prompts_asked, models.writer.cache_hits = 3, 2
    counted = models.prompts_asked, models.cache_hits, models.served(), models.description()
    models.release_writer()
    assert (models.prompts_asked, models.cache_hits, models.served(), models.description()) == counted
    assert counted[:2] == (3, 2)
    assert counted[2].keys() == {"", "rewriter."}
    assert counted[3]["loaded.rewriter.name"] == "other"


def test_the_fingerprint_of_the_data_leaves_out_the_rewrites_of_a_model(written: tuple[Result, Path]):
    (data, limit), (result, _) = REAL[:2], written
    questions = configuration(data, limit).dataset.load()
    assert any(question.rewrites for question in result.questions)
    assert result.description["loaded.dataset.fingerprint"] == fingerprint(questions)


def test_where_no_rewrites_come_a_capable_model_is_advised(ask: Runs, tmp_path: Path):
    file = tmp_path / "mine.jsonl"
    file.write_text('{"id": "1", "question": "Why?", "answers": ["x"]}\n')
    with pytest.raises(UserError) as problem:
        ask("dataset=jsonl", f"dataset.path={file}", "rewriter.max_new_tokens=30")
    assert str(problem.value).startswith("none of the questions has rewrites, which sampler=perturbation needs: ")
    assert str(problem.value).endswith("let a capable model write them (rewriter=llm rewriter.model=…)")
