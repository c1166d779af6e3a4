"""Replies restricted to the signs of choices: means of a server, their fields, and the signs of replies."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from json_lines import cases

from robust_eval.error import OutageError
from robust_eval.model.served.structured import find_restriction, restricted_sign, restriction
from robust_eval.model.served.transport.service import Choice, ServiceResponse, UnansweredError


@pytest.mark.parametrize(
    ("reply", "sign"), [*cases(__file__, "a_reply_has_a_sign_only_as_a_whole"), ("{[" * 100_000, None)]
)
def test_a_reply_has_a_sign_only_as_a_whole(reply: str, sign: str | None):
    assert restricted_sign(reply, ("A", "B")) == sign


def found(replies: Mapping[str, str | UnansweredError]) -> str:
    """The means of a server, which replies so to a request with a field."""

    async def ask(body: Mapping[str, Any]) -> ServiceResponse:
        reply = next((reply for field, reply in replies.items() if field in body), "A quail.")
        if isinstance(reply, UnansweredError):
            raise reply
        return ServiceResponse([Choice(reply, "stop", False, None)], 1, 1)

    return asyncio.run(find_restriction(ask, "the server"))


REFUSED = UnansweredError("wrong", "unknown field")


@pytest.mark.parametrize(
    ("replies", "means"),
    [
        ({"grammar": "Q"}, "grammar"),
        ({"regex": " X"}, "grammar"),
        ({"grammar": REFUSED, "response_format": '{"answer": "X"}'}, "schema"),
        ({"response_format": '{"animal": "quail"}'}, "unsupported"),
        ({"grammar": REFUSED, "response_format": REFUSED}, "unsupported"),
    ],
)
def test_the_means_of_a_server_is_the_first_that_it_heeds(replies: Mapping[str, str | UnansweredError], means: str):
    assert found(replies) == means


def test_a_server_that_fails_meanwhile_is_an_outage():
    with pytest.raises(OutageError) as failed:
        found({"grammar": UnansweredError("lost", "no connection")})
    assert str(failed.value) == "the server failed while structured replies were probed: no connection"


def test_each_server_reads_its_own_field_of_a_grammar():
    assert restriction("grammar", ("1", "2")) == {
        "grammar": 'root ::= " "? ("1" | "2")',
        "regex": " ?(1|2)",
        "structured_outputs": {"regex": " ?(1|2)"},
    }
    schema = restriction("schema", ("A", "B"))["response_format"]["json_schema"]
    assert schema["strict"]
    assert json.loads(json.dumps(schema["schema"]))["properties"]["answer"]["enum"] == ["A", "B"]
