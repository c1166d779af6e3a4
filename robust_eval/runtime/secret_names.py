"""Find secrets in a configuration by the names of settings: a run writes its configuration down."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^a-zA-Z0-9]+")
"""Where a word of a name ends: ``x-api-key``, ``X_API_KEY`` and ``xApiKey`` have the same three."""
_SECRETS = frozenset(
    (
        *("apikey", "apitoken", "accesskey", "accesstoken", "auth", "authorization", "bearer", "cookie", "credential"),
        *("credentials", "jwt", "passphrase", "passwd", "password", "pwd", "secret"),
    )
)
"""Words that make the name of a secret wherever they stand."""
_KEYS = frozenset(
    ("access", "account", "api", "auth", "encryption", "master", "private", "service", "signing", "subscription")
)
"""Words after which ``key`` is a secret: a ``prompt_cache_key`` is none."""
_MARKS = frozenset(
    (
        *("bos", "cls", "end", "eos", "first", "image", "last", "mask", "max", "min", "next", "pad", "per", "sep"),
        *("special", "start", "stop", "think", "unk"),
    )
)
"""Words after which ``token`` is a piece of text, or counts them."""


def secret_setting(settings: Any, path: str = "") -> str | None:
    """Return the first setting, however deep, that holds a text under the name of a secret; None where there is none.

    >>> secret_setting({"max_tokens": 5, "headers": {"X-Api-Key": "abc"}})
    'headers.X-Api-Key'
    """
    entries = settings.items() if isinstance(settings, Mapping) else enumerate(settings)
    for name, value in entries:
        here = f"{path}{name}"
        if _names_a_secret(str(name)) and any(isinstance(text, str) and text for text in _listed(value)):
            return here
        if isinstance(value, Mapping | list) and (found := secret_setting(value, f"{here}.")):
            return found
    return None


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _names_a_secret(name: str) -> bool:
    words = [word.lower() for word in _WORD.split(name) if word]
    if not words:
        return False
    *_, before, last = ["", *words]
    return (
        not _SECRETS.isdisjoint(words)
        or (last == "key" and before in _KEYS)
        or (last == "token" and before not in _MARKS)
    )


def holds_password(address: str) -> bool:
    """Return whether an address holds a password, a user name for a web server, or a secret in its query.

    >>> holds_password("https://me:abc@host/path"), holds_password("postgresql://me@host/runs")
    (True, False)
    """
    try:
        parts = urlsplit(address)
    except ValueError:  # of what is no address, which others say
        return False
    asked = (entry.partition("=") for entry in parts.query.split("&"))
    named = parts.password or (parts.username and parts.scheme in ("http", "https"))
    return bool(named) or any(value and _names_a_secret(name) for name, _, value in asked)
