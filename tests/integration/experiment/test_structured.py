"""Runs with structured replies: of llama.cpp's own server, by its grammar, and refusals where there is nothing to
restrict.
"""

from pathlib import Path

import pytest
from api_server import api_server
from documented_server import SERVERS, DocumentedServer, asks
from experiments import ask as ask_server
from experiments import run_experiment
from scripted_server import scripted_server

from robust_eval.error import UserError
from robust_eval.experiment.plan import RESTRICTED
from robust_eval.tracking.result import Result

STRUCTURED = "sampler.repetition.structured=true"


def ask(url: str, folder: Path, *overrides: str) -> Result:
    few = ["dataset.limit=3", "sampler.repetition.trials=2"]
    return ask_server(url, folder, "experiment=certainty", *few, *overrides)


def test_each_reply_of_llama_cpp_is_a_letter(tmp_path: Path):
    with api_server(slots=2) as url:
        for style in ("chat", "plain"):
            result = ask(url, tmp_path / style, STRUCTURED, f"model.prompt_style={style}", "dataset.limit=2")
            assert result.description["loaded.capability.structured"] == "grammar"
            table = result.graded_by_sampler["repetition"]
            assert set(table["text"].to_pylist()) <= {*"ABCDE"}
            assert table["text"] == table["answer"]
            assert set(table["outcome"].to_pylist()) == {"ok"}


def test_free_and_structured_replies_are_stored_apart(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO")
    with scripted_server(DocumentedServer(**SERVERS["ollama"]), honest=False) as server:
        roomy = "model.max_completion_tokens=100"
        free = ask(server.url, tmp_path / "free", roomy)
        assert RESTRICTED not in caplog.messages
        structured = ask(server.url, tmp_path / "structured", roomy, STRUCTURED)
        assert RESTRICTED in caplog.messages
        requests = len(server.received)
        again = ask(server.url, tmp_path / "again", roomy, STRUCTURED)
    assert (structured.cache_hits, len(server.received), again.prompts_asked) == (0, requests, 0)
    assert all(text.startswith("The answer is ") for text in free.graded_by_sampler["repetition"]["text"].to_pylist())
    assert again.graded_by_sampler["repetition"] == structured.graded_by_sampler["repetition"]


def test_questions_without_choices_are_refused(tmp_path: Path):
    with scripted_server(DocumentedServer(**SERVERS["ollama"]), honest=False) as server:
        with pytest.raises(UserError) as refused:
            ask(server.url, tmp_path / "run", STRUCTURED, "dataset=facts")
        assert not any(map(asks, server.bodies))
    assert str(refused.value) == (
        "sampler.structured=true restricts replies to the letters of choices, but question facts-001 has none: "
        "remove it, or choose a data set in which every question has choices, such as dataset=physics"
    )


def test_a_model_that_is_loaded_here_is_refused(tmp_path: Path):
    with pytest.raises(UserError) as refused:
        run_experiment(tmp_path, "experiment=certainty", STRUCTURED, "tracking=none", f"paths.mlruns={tmp_path}")
    assert str(refused.value) == (
        "sampler.repetition.structured=true applies only to servers, but model smollm2-135m is local: choose "
        "sampler=exact, which computes the probabilities of its letters"
    )
