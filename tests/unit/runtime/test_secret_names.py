import pytest

from robust_eval.runtime.text import holds_password, secret_setting


@pytest.mark.parametrize(
    "name",
    [
        *("authorization", "Authorization", "Proxy-Authorization", "x-auth", "api_key", "apiKey", "API_KEY", "apikey"),
        *("x-api-key", "Ocp-Apim-Subscription-Key", "token", "access_token", "accessToken", "hf_token", "password"),
        *("db.password", "client_secret", "cookie"),
    ],
)
def test_a_text_under_the_name_of_a_secret_is_found_wherever_it_stands(name: str):
    assert secret_setting({name: "abc"}) == name
    assert secret_setting({"a": [1, {"b": {name: ["abc"]}}]}) == f"a.1.b.{name}"


@pytest.mark.parametrize(
    "name",
    [
        *("max_tokens", "token_limit", "stop_token_ids", "tokenizer", "eos_token", "stop_token", "min_token", "key"),
        *("prompt_cache_key", "skip_special_tokens", "author", "authority", "keyboard", "passage", ""),
    ],
)
def test_other_names_hold_no_secret(name: str):
    assert secret_setting({name: "abc", "a": {name: ["abc"]}}) is None


def test_what_is_no_text_is_no_secret():
    assert secret_setting({"api_key": None, "token": 3, "auth": True, "password": ""}) is None
    schema = {"properties": {"password": {"type": "string"}}, "required": ["password"]}
    assert secret_setting({"response_format": {"json_schema": schema}}) is None


@pytest.mark.parametrize(
    ("address", "holds"),
    [
        ("https://me:abc@host/path", True),
        ("https://abc@host", True),
        ("postgresql://me:abc@host/runs", True),
        ("https://host/?a=1&api_key=abc", True),
        ("postgresql://me@host/runs", False),
        ("postgresql://host/runs?sslmode=require&user=me", False),
        ("sqlite:////data/me@home/mlflow.db", False),
        ("http://[::1", False),
    ],
)
def test_an_address_with_a_password_is_told_from_others(address: str, holds: bool):
    assert holds_password(address) == holds
