"""Runs of models behind services that speak the protocol each in its way: with reasoning, without a temperature."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dialects import DIALECTS, FACTS, THOUGHT, Dialect
from experiments import ask, run_experiment
from scripted_server import Body, ScriptedServer, certain_choice, scripted_server

from robust_eval.error import UserError
from robust_eval.tracking.result import Result

FEW = ["dataset=facts", "dataset.limit=3"]
CERTAINTY = ["experiment=certainty", *FEW, "sampler.repetition.trials=3"]
ROOM = ["sampler.repetition.max_new_tokens=64"]
BOTH = [
    *("experiment=certainty", *FEW, "dataset.shuffle=true", "sampler=[repetition,perturbation]"),
    *(
        "metric=[certainty,agreement]",
        "aggregator=text",
        "sampler.repetition.trials=3",
        "sampler.perturbation.rewrites=2",
    ),
    *(*ROOM, "sampler.perturbation.max_new_tokens=64"),
]
OWN = ("openai", "no temperature")


@pytest.fixture(params=DIALECTS, scope="module")
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def server(dialect: str) -> Iterator[ScriptedServer]:
    with scripted_server(DIALECTS[dialect]) as server:
        yield server


@pytest.fixture(scope="module")
def repeated(server: ScriptedServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    """A run in which each question is asked again and again, and in other words."""
    folder = tmp_path_factory.mktemp("repeated") / "run"
    return ask(server.url, folder, *BOTH), folder


def test_each_question_is_asked_again_and_again_and_in_other_words(dialect: str, repeated: tuple[Result, Path]):
    result, _ = repeated
    table = result.graded_by_sampler["repetition"]
    own = dialect in OWN
    assert set(table["outcome"].to_pylist()) == {"ok"}
    assert set(map(str, table["temperature"].to_pylist())) == {"nan" if own else "0.7"}
    assert all(read in (*FACTS_SAID, "Xanadu", "It is Xanadu.") for read in table["answer"].to_pylist())
    assert sum(table["correct"].to_pylist()) > table.num_rows / 2
    figures = result.summary()
    assert figures[f"certainty.entropy.{'own' if own else 't0.7'}"] is not None
    assert set(result.graded_by_sampler["perturbation"]["outcome"].to_pylist()) == {"ok"}
    at = "own" if own else "t1"
    assert 0 <= figures[f"agreement.worst.{at}"] <= figures[f"agreement.best.{at}"] <= 1
    assert ("accuracy.greedy" in figures) == (not own)
    thinks = DIALECTS[dialect].thinks
    asked = result.graded_baseline.num_rows + sum(each.num_rows for each in result.graded_by_sampler.values())
    assert figures["tokens.answering.reasoning"] == (40 * asked if thinks else 0)
    if dialect in ("deepseek", "vllm", "mistral"):
        assert set(table["reasoning"].to_pylist()) == {THOUGHT}


FACTS_SAID = [text for fact in FACTS for text in (fact.answers[0], f"It is {fact.answers[0]}.")]


@pytest.mark.parametrize("dialect", ["openai", "mistral"], scope="module", indirect=True)
def test_a_second_run_asks_nothing_and_a_recorded_one_says_the_same(
    server: ScriptedServer, repeated: tuple[Result, Path], tmp_path: Path
):
    first, folder = repeated
    asked = len(server.received)
    again = ask(server.url, folder.with_name("again"), *BOTH, "reader=first_line", "seed=0")
    assert (len(server.received), again.prompts_asked) == (asked, 0)  # read in another way, and not asked again
    recorded = run_experiment(
        tmp_path,
        *(
            "sampler=recorded",
            f"sampler.recorded.file={folder / 'answers.parquet'}",
            "model=recorded",
            "model.name=m",
            "metric=[certainty,agreement]",
            "aggregator=text",
        ),
        *(*FEW, "dataset.shuffle=true", "tracking=none", f"paths.mlruns={tmp_path}"),
    )
    assert _figures(recorded) == _figures(first)


def _figures(result: Result) -> dict[str, Any]:
    return {name: value for name, value in result.summary().items() if name.startswith("certainty.")}


@pytest.mark.parametrize("name", OWN)
def test_without_a_temperature_a_fact_cannot_be_seen_to_break(name: str, tmp_path: Path):
    with scripted_server(DIALECTS[name]) as server, pytest.raises(UserError) as said:
        ask(server.url, tmp_path / "run", "dataset.limit=3")
    assert str(said.value) == (
        "sampler=temperature_sweep needs several temperatures, but m has only its own, so breaking temperatures and "
        "FRS cannot be measured: choose experiment=certainty (repeated answers), experiment=multiqa (several "
        "wordings), or experiment=profile (every perturbation that the model allows)"
    )
    assert not (tmp_path / "run").exists()


def test_reasoning_that_eats_the_limit_leaves_no_answer_and_more_room_leaves_one(tmp_path: Path):
    with scripted_server(DIALECTS["vllm"]) as server:
        eaten = ask(server.url, tmp_path / "eaten", *CERTAINTY)
        table = eaten.graded_by_sampler["repetition"]
        assert set(zip(table["outcome"].to_pylist(), table["reason"].to_pylist(), strict=True)) == {
            ("invalid", "reasoning not ended")
        }
        assert eaten.summary()["invalid.reasoning_not_ended"] == table.num_rows + eaten.graded_baseline.num_rows
        fed = ask(server.url, tmp_path / "fed", *CERTAINTY, "model.max_completion_tokens=500")
        assert set(fed.graded_by_sampler["repetition"]["outcome"].to_pylist()) == {"ok"}
        assert server.bodies[-1]["max_tokens"] == 500


def test_what_a_reasoning_model_is_told_is_sent_and_tells_answers_apart(tmp_path: Path):
    with scripted_server(DIALECTS["tags"]) as server:
        told = ["model.reasoning_effort=low", "model.thinking_token_budget=100"]
        ask(server.url, tmp_path / "low", *CERTAINTY, *told)
        assert {
            name: server.bodies[-1][name] for name in ("reasoning_effort", "thinking_token_budget", "max_tokens")
        } == {
            "reasoning_effort": "low",
            "thinking_token_budget": 100,
            "max_tokens": 116,
        }
        high = ask(server.url, tmp_path / "high", *CERTAINTY, "model.reasoning_effort=high", told[1])
    assert high.cache_hits == 0


def with_logprobs(dialect: Dialect, lowest: float, highest: float) -> Any:
    """A service that takes a range of temperatures and gives log-probabilities."""

    def answer(body: Body) -> tuple[int, dict[str, str], Any]:
        if not lowest <= body.get("temperature", 1.0) <= highest:
            return 400, {}, {"error": {"message": f"temperature: {lowest:g} to {highest:g}"}}
        status, headers, said = dialect(body)
        for choice in said["choices"] if body.get("logprobs") else ():
            choice["logprobs"] = certain_choice(0, choice["message"]["content"])["logprobs"]
        return status, headers, said

    return answer


def test_a_range_of_temperatures_that_ends_at_one_censors_facts_there(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    with scripted_server(with_logprobs(DIALECTS["tags"], 0, 1)) as server:
        result = ask(
            server.url,
            tmp_path / "run",
            "dataset.limit=6",
            "sampler.temperature_sweep.selection=contains",
            *("sampler.temperature_sweep.max_new_tokens=64", "sampler.temperature_sweep.trials=2"),
        )
    table = result.tables["frs_accuracy"]
    assert sorted(set(table["temperature"].to_pylist())) == [0.2, 0.4, 0.6, 0.8, 1.0]
    assert result.summary()["frs.unbroken_share"] > 0
    assert (
        "m supports temperatures up to 1: sampler=temperature_sweep leaves out 1.2, 1.4, 1.6, 1.8, 2; a fact that is "
        "unbroken at the limit is censored there"
    ) in caplog.messages


def test_where_temperature_0_is_refused_the_most_frequent_answer_stands_for_the_greedy_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    settings = ["sampler.temperature_sweep.selection=contains", "sampler.temperature_sweep.max_new_tokens=64"]
    with scripted_server(with_logprobs(replace(DIALECTS["tags"], thinks=False), 0.1, 2)) as server:
        result = ask(server.url, tmp_path / "run", "dataset.limit=6", *settings, "sampler.temperature_sweep.trials=2")
    assert result.graded_baseline["temperature"].to_pylist() == [0.2] * 6
    assert len(result.kept) > 3
    assert result.description["loaded.greedy"] == "the most frequent of 5 answers at 0.2"
    assert "m does not accept temperature 0: the most frequent of 5 answers replaces the greedy one" in caplog.messages
