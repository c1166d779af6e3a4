"""Rewrites by a language model, from the questions to the report."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from experiments import run_experiment
from tiny_model import save_tiny_model

from robust_eval.answer import OUTCOMES, SCHEMA
from robust_eval.error import UserError
from robust_eval.model.local.transformers_model import TransformersModel
from robust_eval.prompt.prompt import prompt_for, rewriting_prompt
from robust_eval.prompt.templates import FEW_SHOT, ZERO_SHOT
from robust_eval.rewriter.base import FATES, FOUND
from robust_eval.tracking.result import Result

Ask = Callable[..., tuple[Result, Path]]
TABLES = ["rewriting.parquet", "rewrites.parquet", "graded.parquet"]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """Run an experiment in which rewrites are written; all share a store."""
    mlruns = tmp_path_factory.mktemp("mlruns")

    def run(*overrides: str) -> tuple[Result, Path]:
        folder = tmp_path_factory.mktemp("run")
        settings = ["experiment=multiqa", "rewriter=llm", "aggregator=text", "engine.threads=1", "tracking=none"]
        return run_experiment(folder, *settings, f"paths.mlruns={mlruns}", *overrides), folder

    return run


def summary(folder: Path) -> dict[str, float | None]:
    return json.loads((folder / "summary.json").read_text())


REAL = [
    *("dataset=facts", "dataset.limit=2", "rewriter.drift=drop", "rewriter.similarity=0.3"),
    *("rewriter.rewrites=2", "rewriter.attempts=2", "rewriter.max_new_tokens=24"),
    *("sampler.perturbation.prompts=builtin:zero_shot.yaml", "sampler.perturbation.max_new_tokens=8"),
]


@pytest.fixture(scope="module")
def written(ask: Ask) -> tuple[Result, Path]:
    """The embedded model rewrites two questions and answers them."""
    return ask(*REAL)


def test_what_a_model_offers_is_written_down_with_its_replies(written: tuple[Result, Path]):
    result, folder = written
    found, replies = (pq.read_table(folder / name) for name in ("rewrites.parquet", "rewriting.parquet"))
    assert (found.schema, replies.schema) == (FOUND, SCHEMA)
    assert (found, replies) == (result.rewritten.found, result.rewritten.replies)
    ids = [question.id for question in result.asked]
    kept = [(row["question_id"], row["attempt"], row["text"]) for row in found.to_pylist() if row["fate"] == "kept"]
    lacking = [q for q in ids if sum(row[:2] == (q, 0) for row in kept) < 2]
    asked = [(row["question_id"], row["rewrite"], row["temperature"]) for row in replies.to_pylist()]
    assert asked == [*((q, 0, 1.0) for q in ids), *((q, 1, 1.0) for q in lacking)]
    texts = {(row["question_id"], row["rewrite"]): row["text"] for row in replies.to_pylist()}
    assert all(texts[q, 0] != texts[q, 1] for q in lacking)
    for row in found.to_pylist():
        assert not row["drifted"] or row["fate"] == "drifted"
    for question in result.asked:
        assert question.rewrites == tuple(text for name, _, text in kept if name == question.id)
    assert [question.id for question in result.kept] == [q.id for q in result.asked if q.rewrites]
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

    def length(text: str) -> int:
        return len(embedded.tokenizer(text).input_ids)

    by_id = {question.id: question for question in result.asked}
    assert {name: value for name, value in figures.items() if name.startswith("tokens.")} == {
        "tokens.rewriting.prompt": sum(
            length(rewriting_prompt(by_id[row["question_id"]], 2, FEW_SHOT).text()) for row in replies
        ),
        "tokens.rewriting.completion": sum(len(row["token_ids"]) for row in replies),
        "tokens.rewriting.reasoning": 0,
        "tokens.rewriting.cached": 0,
        "tokens.answering.reasoning": 0,
        "tokens.answering.cached": 0,
        "tokens.answering.prompt": sum(
            length(prompt_for(by_id[row["question_id"]], row["rewrite"], ZERO_SHOT).text()) for row in graded
        ),
        "tokens.answering.completion": sum(len(row["token_ids"]) for row in graded),
    }
    assert all(len(row["token_ids"]) <= 24 for row in replies)
    assert (figures["prompts.asked"], figures["prompts.found"]) == (
        len(replies) + sum(2 + len(question.rewrites) for question in result.kept),
        0,
    )


def test_a_second_run_asks_nothing_and_finds_the_same_rewrites(written: tuple[Result, Path], ask: Ask):
    first, one = written
    again, other = ask(*REAL)
    assert (again.prompts_asked, again.prompts_found) == (0, first.prompts_asked)
    assert again.asked == first.asked
    for name in TABLES:
        assert pq.read_table(one / name) == pq.read_table(other / name)
    for name in ("rewriting.", "tokens.", "agreement."):
        assert {key: value for key, value in summary(one).items() if key.startswith(name)} == {
            key: value for key, value in summary(other).items() if key.startswith(name)
        }


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Settings of a tiny model with random weights, which is measured."""
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny_model(folder)
    return ["model=transformers", f"model.path={folder}", "model.name=tiny"]


def test_the_answers_of_two_models_are_counted_and_both_are_described(
    ask: Ask, tiny_model: list[str], embedded: TransformersModel
):
    settings = [*REAL, *tiny_model, "rewriter.prompts=builtin:zero_shot.yaml"]
    settings += ["model@rewriter.model=smollm2_135m", "rewriter.model.name=other", "rewriter.model.prompt_style=plain"]
    first, folder = ask(*settings)
    replies = pq.read_table(folder / "rewriting.parquet").to_pylist()
    asked = len(replies) + sum(2 + len(question.rewrites) for question in first.kept)
    assert len(first.kept) > 0
    assert (first.prompts_asked, first.prompts_found) == (asked, 0)
    for row in replies:  # as the other model is asked: its tokens, in plain text
        (question,) = [question for question in first.asked if question.id == row["question_id"]]
        shown = f"Rewrite the question in 2 radically different ways.\nQuestion: {question.text}"
        assert row["prompt_tokens"] == len(embedded.tokenizer(shown).input_ids)
    described = {
        name: first.description[name]
        for prefix in ("", "rewriter.")
        for name in (f"loaded.{prefix}name", f"loaded.{prefix}parameters", f"loaded.{prefix}prompt_style")
    }
    assert described == {
        "loaded.name": "tiny",
        "loaded.parameters": 32_096,
        "loaded.prompt_style": "chat",
        "loaded.rewriter.name": "other",
        "loaded.rewriter.parameters": 134_515_008,
        "loaded.rewriter.prompt_style": "plain",
    }
    assert first.description["identity.files"] != first.description["identity.rewriter.files"]
    own, others = (
        {name.removeprefix(prefix) for name in first.description if name.startswith(prefix)}
        for prefix in ("loaded.", "loaded.rewriter.")
    )
    assert {name for name in own if not name.startswith(("rewriter.", "dataset."))} == others

    again, other = ask(*settings)
    assert (again.prompts_asked, again.prompts_found) == (0, asked)
    assert {name: again.description[name] for name in described} == described
    for name in TABLES:
        assert pq.read_table(folder / name) == pq.read_table(other / name)


def test_the_model_that_is_measured_rewrites_where_no_other_or_the_same_is_named(
    ask: Ask, written: tuple[Result, Path]
):
    one, first = written
    same, second = ask(*REAL, "model@rewriter.model=smollm2_135m")
    assert (same.prompts_asked, same.prompts_found) == (0, one.prompts_asked)
    assert pq.read_table(first / "rewrites.parquet") == pq.read_table(second / "rewrites.parquet")
    for result in (one, same):
        described = {name for name in result.description if name.startswith(("loaded.rewriter.", "identity.rewriter."))}
        assert described == set()


def test_where_no_rewrites_come_a_capable_model_is_advised(ask: Ask, tiny_model: list[str], tmp_path: Path):
    file = tmp_path / "mine.jsonl"
    file.write_text('{"id": "1", "question": "Why?", "answers": ["x"]}\n')
    with pytest.raises(UserError) as problem:
        ask(*tiny_model, "dataset=jsonl", f"dataset.path={file}", "rewriter.max_new_tokens=30")
    assert str(problem.value).startswith("none of the 1 questions has rewrites, which sampler=perturbation asks: ")
    assert str(problem.value).endswith("have a capable model write them (rewriter=llm rewriter.model=…)")
