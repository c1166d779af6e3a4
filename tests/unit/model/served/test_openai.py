from dataclasses import fields
from typing import Any

import pytest

from robust_eval.error import UserError
from robust_eval.model.generation import Generation
from robust_eval.model.served.openai import OpenAI

LOCAL = "http://localhost:8000/v1"


def configured(**settings: Any) -> OpenAI:
    return OpenAI(**({"name": "llama", "model": "meta/llama", "base_url": LOCAL, "api_key_env": None} | settings))


@pytest.mark.parametrize(
    "settings",
    [
        {"max_error_rate": 0.0, "retries": 0, "max_concurrency": 1, "timeout": 0.1, "total_timeout": 0.1},
        {"max_error_rate": 1.0, "requests_per_minute": 0.5, "tokens_per_minute": 1.0},
        {"prompt_price": 0.0, "completion_price": 0.0, "budget": 0.0},
        {"generation": Generation(preset="repository"), "extra_body": {}},
        {"base_url": "https://[::1]:8000/serving/v1/", "prompt_style": "plain"},
    ],
)
def test_takes_settings_at_their_bounds(settings: dict[str, Any]) -> None:
    taken = configured(**settings)
    assert {name: getattr(taken, name) for name in settings} == settings


def test_answers_are_those_of_a_server_a_model_a_prompt_and_what_decides_which_are_drawn() -> None:
    truncated = Generation(top_k=5)
    found = configured(base_url=f"{LOCAL}/", prompt_style="plain", generation=truncated, extra_body={"a": {"b": 1}})
    assert found.identity() == {
        "version": 1,
        "server": LOCAL,
        "model": "meta/llama",
        "prompt_style": "plain",
        "generation": {"preset": "full", "top_k": 5, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0},
        "extra_body": {"a": {"b": 1}},
    }


def test_how_fast_how_often_and_for_how_much_it_is_asked_is_no_part_of_the_answers() -> None:
    others: dict[str, Any] = {
        "name": "other",
        "api_key_env": "OTHER",
        "extra_body": {},
        "max_concurrency": 1,
        "requests_per_minute": 1.0,
        "tokens_per_minute": 1.0,
        "timeout": 1.0,
        "total_timeout": 1.0,
        "retries": 1,
        "max_error_rate": 0.5,
        "prompt_price": 1.0,
        "completion_price": 1.0,
        "cached_price": 0.5,
        "batch": True,
        "batch_price_share": 0.25,
        "poll_seconds": 1.0,
        "budget": 1.0,
        "takes_temperature": True,
        "highest_temperature": 1.0,
        "deterministic": True,
    }
    same = {"model", "base_url", "prompt_style", "generation"}
    where_given = {"max_completion_tokens", "reasoning_effort", "thinking_token_budget", "top_logprobs"}
    assert {field.name for field in fields(OpenAI)} == others.keys() | same | where_given
    assert configured(**others).identity() == configured().identity()


@pytest.mark.parametrize("value", [None, "", " \n"])
def test_a_key_that_is_missing_is_named_when_the_model_is_loaded_and_not_before(
    value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SOME_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("SOME_KEY", value)
    config = configured(api_key_env="SOME_KEY")
    config.identity()
    with pytest.raises(UserError) as refused:
        config.load()
    assert str(refused.value) == (
        "the environment variable SOME_KEY is not set: set it to the key for http://localhost:8000/v1, or set "
        "model.api_key_env=null if the server needs none"
    )


@pytest.mark.parametrize("variable", [None, "", "SOME_KEY"])
def test_loading_asks_nothing_and_shows_no_key(variable: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-secret\n")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    config = configured(api_key_env=variable)
    model = config.load()
    assert model.description() == {
        "name": "llama",
        "server": LOCAL,
        "pace.most_in_flight": 0,
        "pace.refusals": 0,
        "pace.paused_seconds": 0,
        "repeated_requests": 0,
    }
    assert model.status() == ""
    assert "sk-secret" not in f"{config} {model!r} {config.identity()} {model.description()}"


@pytest.mark.parametrize("key", ["sk-secret\nsk-other", "sk-secret-ä"])
def test_a_key_that_no_header_can_hold_is_refused_without_being_shown(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_KEY", key)
    with pytest.raises(UserError, match="SOME_KEY") as refused:
        configured(api_key_env="SOME_KEY").load()
    assert "secret" not in str(refused.value)
