"""A run whose rewrites come from one server and whose answers from another: planned, asked, filtered, counted."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from experiments import configuration, run_experiment
from scripted_server import Body, Scripted, ScriptedServer, chat_reply, scripted_server

from robust_eval.experiment.plan import stages_of, total

QUESTIONS = ["Which city is the capital of France?", "Who wrote Emma?", "What is the largest ocean?", "Who is Waldo?"]
FILTERED = (400, {}, {"error": {"message": "The prompt was filtered", "type": "invalid", "code": "content_filter"}})


def said(text: str, finish: str = "stop") -> Scripted:
    status, headers, reply = chat_reply(text)
    reply["choices"][0]["finish_reason"] = finish
    return status, headers, reply


def rewrites(body: Body) -> Scripted:
    """Two rewrites of any question but of the last, which is filtered."""
    asked = body["messages"][-1]["content"]
    question = asked.rpartition("Question: ")[2].removesuffix("?")
    if question == "Who is Waldo":
        return FILTERED
    return said(f"1. Tell me please: {question.lower()}?\n2. I would like to know this. {question}, if you know?")


def answers(body: Body) -> Scripted:
    """Filters the rewrites of Emma before they are answered, and the greedy reply about the ocean."""
    asked = body["messages"][-1]["content"].rpartition("Question: ")[2]
    if re.search("(?i)emma", asked) and "Who wrote Emma?\n" not in asked:
        return FILTERED
    if "ocean" in asked and body["temperature"] == 0:
        return said("The Pac", "content_filter")
    return said("Paris" if "France" in asked else "a long reply", "length")


@pytest.fixture
def writer() -> Iterator[ScriptedServer]:
    with scripted_server(rewrites) as server:
        yield server


@pytest.fixture
def measured() -> Iterator[ScriptedServer]:
    with scripted_server(answers) as server:
        yield server


@pytest.fixture
def settings(writer: ScriptedServer, measured: ScriptedServer, tmp_path: Path) -> list[str]:
    """Those of both models, and of four questions."""
    file = tmp_path / "questions.jsonl"
    records = [
        {"id": f"q{number}", "question": text, "answers": ["Paris"]} for number, text in enumerate(QUESTIONS, start=1)
    ]
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return [
        *("experiment=multiqa", "aggregator=text", "tracking=none", f"paths.mlruns={tmp_path / 'mlruns'}"),
        *("dataset=jsonl", "dataset.name=four", f"dataset.path={file}", "dataset.limit=4"),
        *("model=openai_compatible", f"model.base_url={measured.url}", "model.model=measured"),
        *(
            "rewriter=llm",
            "rewriter.rewrites=2",
            "sampler.perturbation.rewrites=2",
            "model@rewriter.model=openai_compatible",
        ),
        *(f"rewriter.model.base_url={writer.url}", "rewriter.model.model=writer"),
        *("model.prompt_price=1", "model.completion_price=3"),
    ]


def test_filters_are_counted_by_stage_and_never_asked_again(
    settings: list[str],
    tmp_path_factory: pytest.TempPathFactory,
    writer: ScriptedServer,
    measured: ScriptedServer,
    capsys: pytest.CaptureFixture[str],
):
    before = stages_of(configuration(*settings))
    assert [(stage.name, len(stage.missing), stage.is_upper_bound) for stage in before] == [
        ("rewrites, attempt 1", 4, False),
        ("greedy answers", 4, True),
        ("sampled answers", 12, True),
    ]
    assert total(before).cost is None  # the price of the writer is not known
    assert writer.received == measured.received == []

    result = run_experiment(tmp_path_factory.mktemp("run"), *settings)
    counts = result.counts()
    assert [question.id for question in result.kept] == ["q1", "q2", "q3"]  # the last has no rewrites
    outcomes = {name: count for name, count in counts.items() if "outcomes." in name and count}
    assert outcomes == {
        "rewriting.outcomes.ok": 3,
        "rewriting.outcomes.filtered_prompt": 1,
        "greedy.outcomes.ok": 2,
        "greedy.outcomes.filtered_reply": 1,
        "outcomes.ok": 7,
        "outcomes.filtered_prompt": 2,
    }
    assert counts["replies.truncated"] == 7
    (table,) = result.graded_by_sampler.values()
    finished = dict(zip(table["text"].to_pylist(), table["finish_reason"].to_pylist(), strict=True))
    assert finished == {"Paris": "length", "a long reply": "length", "": None}
    shown = capsys.readouterr().out
    assert (
        "no answer: rewriting: 1 prompts filtered; greedy answers: 1 replies filtered; sampled answers: 2 prompts "
        "filtered\n" in shown
    )
    assert re.search(r"; this run cost 0\.00\d\d USD$", shown, re.MULTILINE)

    asked = len(writer.received), len(measured.received)
    assert total(stages_of(configuration(*settings))).answers == 0
    again = run_experiment(tmp_path_factory.mktemp("run"), *settings)
    assert (len(writer.received), len(measured.received)) == asked
    same = {name: count for name, count in again.counts().items() if "outcomes." in name and count}
    assert same == outcomes
    more = stages_of(configuration(*settings, "sampler.perturbation.trials=3"))
    assert [(stage.name, stage.requests, len(stage.missing), stage.is_upper_bound) for stage in more] == [
        ("sampled answers", 9, 9, False)
    ]
    assert total(more).answers == 18
