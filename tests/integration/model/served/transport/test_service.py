import asyncio
import json
import logging
import math
import traceback
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_server import Answer, Body, ScriptedServer, scripted_server

from robust_eval.model.served.transport.service import Choice, Service, ServiceResponse, UnansweredError
from robust_eval.model.served.transport.token_logprobs import Token
from robust_eval.prompt.prompt import Prompt

KEY = "sk-proj-0123456789abcdefSECRET"
PROMPT = Prompt("Be brief.", (("Question: Capital of Italy?\nAnswer:", "Rome"),), "Question: Of France?\nAnswer:")
TURNS = [
    {"role": "user", "content": "Question: Capital of Italy?\nAnswer:"},
    {"role": "assistant", "content": "Rome"},
    {"role": "user", "content": "Question: Of France?\nAnswer:"},
]
AZURE = {
    "message": "The response was filtered due to the prompt triggering the content management policy.",
    "type": None,
    "param": "prompt",
    "code": "content_filter",
    "status": 400,
    "innererror": {
        "code": "ResponsibleAIPolicyViolation",
        "content_filter_result": {"violence": {"filtered": True, "severity": "medium"}},
    },
}


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    with scripted_server(lambda body: (200, {}, {})) as server:
        yield server


def asked(
    server: ScriptedServer,
    answer: Answer,
    chat: bool = True,
    key: str | None = KEY,
    system_role: bool = True,
    **settings: Any,
) -> ServiceResponse:
    """What comes of one request that is answered so."""

    async def ask() -> ServiceResponse:
        async with Service(server.url, "gpt", key, chat, 2) as service:
            return await service.ask(PROMPT, system_role, settings)

    server.answer = answer
    server.received.clear()
    return asyncio.run(ask())


def unanswered(server: ScriptedServer, answer: Answer, **how: Any) -> UnansweredError:
    with pytest.raises(UnansweredError) as caught:
        asked(server, answer, **how)
    return caught.value


def replied(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    return lambda _: (status, headers or {}, body)


def completion(*choices: Body, usage: Any = None) -> Body:
    return {"object": "chat.completion", "choices": list(choices), "usage": usage}


def said(content: str | None, index: int = 0, finish_reason: str | None = "stop", **more: Any) -> Body:
    message = {"role": "assistant", "content": content, **more}
    return {"index": index, "message": message, "finish_reason": finish_reason, "logprobs": None}


def with_logprobs(logprobs: Any, chat: bool = True) -> Body:
    text = {"message": {"content": "né"}} if chat else {"text": "né"}
    return completion({"index": 0, "finish_reason": "length", "logprobs": logprobs, **text})


# what is sent


@pytest.mark.parametrize(
    ("chat", "system_role", "path", "body"),
    [
        (True, True, "/v1/chat/completions", {"messages": [{"role": "system", "content": "Be brief."}, *TURNS]}),
        (
            True,
            False,
            "/v1/chat/completions",
            {
                "messages": [
                    {"role": "user", "content": "Be brief.\n\nQuestion: Capital of Italy?\nAnswer:"},
                    *TURNS[1:],
                ]
            },
        ),
        (
            False,
            True,
            "/v1/completions",
            {"prompt": "Question: Capital of Italy?\nAnswer: Rome\n\nQuestion: Of France?\nAnswer:"},
        ),
    ],
    ids=["chat", "chat without system role", "plain"],
)
def test_sends_the_prompt_the_model_and_the_settings_as_they_are_and_nothing_else(
    server: ScriptedServer, chat: bool, system_role: bool, path: str, body: Body
) -> None:
    settings: Body = {
        "temperature": 0.7,
        "top_k": 0,
        "chat_template_kwargs": {"enable_thinking": False},
        "max_tokens": 3,
    }
    choice = said("Paris") if chat else {"index": 0, "text": "Paris", "finish_reason": "stop"}
    asked(server, replied(completion(choice)), chat, system_role=system_role, **settings)
    (request,) = server.received
    assert (request.path, request.body) == (path, {"model": "gpt", **body, **settings})
    assert request.headers["authorization"] == f"Bearer {KEY}"


def test_sends_nothing_of_the_environment_to_a_server_that_wants_no_key(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("API_KEY", "ADMIN_KEY", "ORG_ID", "PROJECT_ID"):
        monkeypatch.setenv(f"OPENAI_{name}", "of-mine")
    asked(server, replied(completion(said("Paris"))), key=None)
    assert "mine" not in str(server.received)


# answers


@pytest.mark.parametrize(
    ("body", "answered"),
    [
        (
            completion(
                said("third", 2, "content_filter"),
                said("first", 0),
                said(None, 1, None),
                usage={"prompt_tokens": 7, "completion_tokens": 9, "total_tokens": 16},
            ),
            ServiceResponse(
                [
                    Choice("first", "stop", False, None),
                    Choice("", "", False, None),
                    Choice("third", "filter", False, None),
                ],
                7,
                9,
            ),
        ),
        (
            completion(said(None, refusal="I'm sorry, I can't help.")),
            ServiceResponse([Choice("I'm sorry, I can't help.", "stop", True, None)], 0, 0),
        ),
        (completion(said("Paris", refusal=None)), ServiceResponse([Choice("Paris", "stop", False, None)], 0, 0)),
        (completion(said("Paris", refusal="No.")), ServiceResponse([Choice("Paris", "stop", True, None)], 0, 0)),
        (
            completion(said("Paris"), usage={"prompt_tokens": None}),
            ServiceResponse([Choice("Paris", "stop", False, None)], 0, 0),
        ),
    ],
    ids=["out of order", "refusal", "no refusal", "refusal beside text", "uncounted"],
)
def test_reads_choices_in_their_order_and_what_was_counted(
    server: ScriptedServer, body: Body, answered: ServiceResponse
) -> None:
    assert asked(server, replied(body)) == answered


ENDS = json.loads(Path(__file__).with_name("ends.json").read_text())
"""Choices of replies, and what becomes of them."""


@pytest.mark.parametrize("case", ENDS)
def test_the_end_of_a_reply_says_what_becomes_of_it(server: ScriptedServer, case: str) -> None:
    choices, chat = ENDS[case]["choices"], "text" not in ENDS[case]["choices"][0]
    answer = replied({"choices": choices, "usage": {"prompt_tokens": 1, "completion_tokens": 1}})
    if "choices_read" in ENDS[case]:
        read = [(each.text, each.finish_reason, each.unknown_reason) for each in asked(server, answer, chat).choices]
        assert read == [tuple(each) for each in ENDS[case]["choices_read"]]
    else:
        problem = unanswered(server, answer, chat=chat)
        assert [problem.kind, problem.reason] == ENDS[case]["unanswered"]


CHAT_LOGPROBS = {
    "content": [
        {
            "token": "n",
            "bytes": [110],
            "logprob": -0.25,
            "top_logprobs": [{"token": "m", "logprob": -2.5}, {"token": "n", "logprob": -0.25}],
        },
        {"token": "\\xc3", "bytes": [195], "logprob": -1, "top_logprobs": []},
        {"token": "é", "bytes": None, "logprob": -0.5},
        {"token": "", "bytes": [], "logprob": -0.0, "top_logprobs": None},
    ],
    "refusal": None,
}
CHAT_TOKENS = [Token(b"n", -0.25, [-0.25, -2.5], b"n"), Token(b"\xc3", -1, []), Token("é".encode(), -0.5, [])]
PLAIN_LOGPROBS = {
    "tokens": ["n", "é", ""],
    "token_logprobs": [-0.25, -3, -1e30],
    "top_logprobs": [{"m": -2.5, "n": -0.25}, {"a": -0.5, "b": -1.5, "é": -3}, None],
    "text_offset": [0, 1, 2],
}
PLAIN_TOKENS = [
    Token(b"n", -0.25, [-0.25, -2.5], b"n"),
    Token("é".encode(), -3, [-0.5, -1.5, -3], b"a"),
    Token(b"", -1e30, []),
]


@pytest.mark.parametrize("chat", [True, False], ids=["chat", "plain"])
@pytest.mark.parametrize(
    ("logprobs", "tokens"),
    [
        (CHAT_LOGPROBS, [*CHAT_TOKENS, Token(b"", 0.0, [])]),
        (PLAIN_LOGPROBS, PLAIN_TOKENS),
        ({"tokens": ["a"], "token_logprobs": [-1], "top_logprobs": None}, [Token(b"a", -1.0, [])]),
        ({"tokens": ["<0x0A>"], "token_logprobs": [-1], "top_logprobs": None}, [Token(b"\n", -1.0, [])]),
        (
            {"tokens": ["n"], "token_logprobs": [-math.inf], "top_logprobs": [{"m": 0.0, "n": -math.inf}]},
            [Token(b"n", -math.inf, [0.0, -math.inf], b"m")],
        ),
        ({"content": []}, []),
        ({"content": None, "refusal": [{"token": "No"}]}, None),
        ({}, None),
        (None, None),
    ],
    ids=["of chat", "older", "older without top", "byte", "impossible", "none", "of a refusal", "empty", "null"],
)
def test_reads_log_probabilities_in_either_format_from_either_kind_of_completion(
    server: ScriptedServer, chat: bool, logprobs: Any, tokens: list[Token] | None
) -> None:
    assert asked(server, replied(with_logprobs(logprobs, chat)), chat) == ServiceResponse(
        [Choice("né", "length", False, tokens)], 0, 0
    )


# refusals


def error(**fields: Any) -> Body:
    return {"error": {"message": "No.", "type": "some_error", "param": None, "code": None, **fields}}


STATUSES = {
    "wrong": (302, 400, 405, 413, 422),
    "fatal": (401, 402, 403, 404),
    "lost": (408, 409, 500, 502, 504, 529),
    "busy": (429, 503),
}


@pytest.mark.parametrize(("status", "kind"), [(status, kind) for kind in STATUSES for status in STATUSES[kind]])
def test_the_status_says_what_a_refusal_means(server: ScriptedServer, status: int, kind: str) -> None:
    problem = unanswered(server, replied(error(code=status), status))
    assert problem == UnansweredError(kind, f"{status} No.", None, status)
    assert str(problem) == f"{status} No."


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (429, error(code="insufficient_quota"), "fatal"),
        (429, error(type="insufficient_quota"), "fatal"),
        (429, error(code="rate_limit_exceeded", type="tokens"), "busy"),
        (400, {"error": AZURE}, "filtered"),
        (400, {"error": AZURE | {"code": None}}, "filtered"),
        (400, error(type="content_filter"), "filtered"),
        (403, error(code="content_filter"), "filtered"),
        (403, error(metadata={"reasons": ["violence"], "flagged_input": "me"}), "filtered"),  # as OpenRouter says it
        (400, error(metadata={"raw": json.dumps(error(code="content_filter"))}), "filtered"),
        (400, error(metadata={"raw": "content_filter"}), "wrong"),
        (400, error(message="content_filter is no setting"), "wrong"),
        (400, error(innererror=None), "wrong"),
        (400, {"object": "error", "message": "No.", "type": "BadRequestError", "code": 400}, "wrong"),
        (429, {"error": None}, "busy"),
        (503, b"<html>upstream connect error</html>", "busy"),
        (500, b"", "lost"),
        (400, [error()], "wrong"),
        (404, {"error": "model not found"}, "fatal"),
        (404, error(message="No endpoints found that can handle the requested parameters."), "wrong"),  # OpenRouter
    ],
)
def test_the_code_and_the_type_say_what_the_status_does_not(
    server: ScriptedServer, status: int, body: Any, kind: str
) -> None:
    problem = unanswered(server, replied(body, status))
    assert (problem.kind, problem.status, problem.retry_after) == (kind, status, None)


@pytest.mark.parametrize(
    "body",
    [
        [error()],
        {"error": "No."},
        {"detail": "No."},
        {"detail": [{"loc": ["body", "seed"], "msg": "No."}]},
        b"No.",
        error(message="Provider returned error", metadata={"raw": json.dumps(error()), "provider_name": "Azure"}),
        error(message="Provider returned error", metadata={"raw": "No."}),
    ],
    ids=["Gemini", "Ollama, TGI", "FastAPI", "pydantic (Mistral)", "proxies", "OpenRouter", "OpenRouter, a text"],
)
def test_says_what_the_server_said_wherever_it_stands(server: ScriptedServer, body: Any) -> None:
    assert "No." in str(unanswered(server, replied(body, 422)))


def test_a_reason_is_one_short_line(server: ScriptedServer) -> None:
    problem = unanswered(server, replied(error(message="too\n\n  long " + "x" * 1000), 400))
    assert str(problem) == "400 too long " + "x" * 291


# what is no answer


UNREADABLE = json.loads(Path(__file__).with_name("unreadable.json").read_text())
"""Bodies, as JSON or as what cannot be read as such."""


@pytest.mark.parametrize(
    "body", [b"\xff\xfe", *(each.encode() if isinstance(each, str) else each for each in UNREADABLE)]
)
def test_a_reply_that_cannot_be_read_is_garbled(server: ScriptedServer, body: Any) -> None:
    sent = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
    text = " ".join(sent.decode(errors="replace").split())
    kind = "lost" if text.startswith('{"error"') else "garbled"  # of a gateway whose server is down
    assert unanswered(server, replied(sent)) == UnansweredError(kind, f"the server sent no completion: {text[:80]!r}")


@pytest.mark.parametrize("body", [{"choices": []}, {"choices": {}}])
def test_a_reply_without_choices_is_garbled(server: ScriptedServer, body: Body) -> None:
    assert unanswered(server, replied(body)) == UnansweredError("garbled", "the server sent no choices")


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000 + b"]" * 100_000,
        b'{"choices":' * 100_000 + b"1" + b"}" * 100_000,
        completion(said(["Paris"])),  # type: ignore[arg-type]
        completion(said(7)),  # type: ignore[arg-type]
        completion(said("Paris", finish_reason=["stop"])),  # type: ignore[arg-type]
    ],
    ids=["nested too deeply", "nested too deeply as well", "parts of a text", "a number", "a list of reasons"],
)
def test_a_reply_that_is_strange_is_garbled(server: ScriptedServer, body: Any) -> None:
    assert unanswered(server, replied(body)).kind == "garbled"


JUNK: list[Any] = [
    *(None, True, -1, 0.5, math.nan, math.inf, -math.inf, 10**400, 10**12, -9999.0, "", "-0.5", "NaN", "\ud83d"),
    *([], {}, [None], [-1], {"logprob": 3.0}, [[]]),
]


def parts(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each place in a reply, as what holds it and its name or number there."""
    for name in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, name
        yield from parts(value[name])


@pytest.fixture(scope="module")
def services(server: ScriptedServer) -> Iterator[dict[bool, Callable[[Answer], ServiceResponse]]]:
    """Ask again and again, by whether it is a conversation."""
    with asyncio.Runner() as runner:

        def asks(chat: bool) -> Callable[[Answer], ServiceResponse]:
            service = Service(server.url, "gpt", None, chat, 2)
            closing.append(service.__aexit__)

            def ask(answer: Answer) -> ServiceResponse:
                server.answer = answer
                return runner.run(service.ask(PROMPT, True, {}))

            return ask

        closing: list[Callable[..., Any]] = []
        yield {chat: asks(chat) for chat in (True, False)}
        for close in closing:
            runner.run(close(None, None, None))


@settings(max_examples=100, deadline=None)
@given(
    chat=st.booleans(),
    logprobs=st.sampled_from([CHAT_LOGPROBS, PLAIN_LOGPROBS]),
    changes=st.lists(st.tuples(st.integers(0, 200), st.sampled_from(JUNK)), min_size=1, max_size=2),
)
def test_whatever_stands_in_a_reply_it_is_an_answer_that_can_be_stored_or_lost(
    services: dict[bool, Callable[[Answer], ServiceResponse]],
    chat: bool,
    logprobs: Body,
    changes: list[tuple[int, Any]],
) -> None:
    reply = json.loads(json.dumps(with_logprobs(logprobs, chat) | {"usage": {"prompt_tokens": 1}}))
    for place, junk in changes:
        places = list(parts(reply))
        holder, name = places[place % len(places)]
        holder[name] = deepcopy(junk)  # the next change may be made in it
    came: ServiceResponse | UnansweredError
    try:
        came = services[chat](replied(reply))
    except UnansweredError as problem:
        came = problem
    if isinstance(came, UnansweredError):
        assert came.kind in ("lost", "garbled")
        return
    for choice in came.choices:
        assert choice.text.encode().decode() == choice.text
        for token in choice.tokens or ():
            assert isinstance(token.text, bytes)
            assert {type(value) for value in (token.logprob, *token.top)} == {float}
            assert not any(a < b for a, b in pairwise(value for value in token.top if not math.isnan(value)))


@pytest.mark.parametrize("counted", ["10e11", "1000000000000", "-1", "7.0", '"7"', "true", "NaN", "1e999", "[7]"])
@pytest.mark.parametrize("name", ["prompt_tokens", "completion_tokens"])
def test_a_count_that_is_none_is_a_fault(server: ScriptedServer, name: str, counted: str) -> None:
    choice = json.dumps(said("Paris"))
    body = f'{{"choices": [{choice}], "usage": {{"{name}": {counted}}}}}'.encode()
    told = unanswered(server, replied(body))
    counted = str(json.loads(counted))
    sentence = f"the server counted {counted!r} tokens, which is not a whole number from 0 to 2,147,483,647"
    assert told == UnansweredError("garbled", sentence)


def test_an_error_nested_without_end_is_told_as_any(server: ScriptedServer) -> None:
    deep = b'{"error": {"message": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}"
    told = unanswered(server, lambda _: (400, {}, deep))
    assert (told.kind, told.reason[:30]) == ("wrong", '400 {"error": {"message": [[[[')


def test_half_a_character_is_text_that_can_be_stored(server: ScriptedServer) -> None:
    (choice,) = asked(server, replied(completion(said("a \ud83d")))).choices
    assert choice.text == "a �"


def test_what_is_compressed_wrongly_is_lost(server: ScriptedServer) -> None:
    problem = unanswered(server, replied(b"no gzip", headers={"content-encoding": "gzip"}))
    assert (problem.kind, str(problem).split(":")[0]) == ("lost", "DecodingError")


def test_a_server_that_is_not_there_is_lost() -> None:
    with scripted_server(replied({})) as gone:
        pass
    problem = unanswered(gone, replied({}))
    assert (problem.kind, problem.status, problem.sent) == ("lost", None, False)
    assert str(problem) == "the connection was refused; start the server, or correct model.base_url"


def test_a_proxy_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, server: ScriptedServer) -> None:
    with scripted_server(replied({})) as gone:
        pass
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", gone.url.rsplit("/", 2)[0])
    problem = unanswered(server, replied({}))
    assert (problem.kind, problem.sent) == ("lost", False)
    assert str(problem).startswith("the proxy failed (ConnectionRefusedError: ")


@pytest.mark.parametrize(
    ("body", "fix"),
    [
        (
            {"detail": "Not Found"},
            "; correct model.base_url: it must not include /chat/completions, and usually ends in /v1",
        ),
        (
            b"404 page not found",
            "; correct model.base_url: it must not include /chat/completions, and usually ends in /v1",
        ),
        ({"error": "model not found"}, ""),
        (error(message="The model m does not exist."), ""),
    ],
)
def test_a_wrong_path_names_the_setting_of_the_address(server: ScriptedServer, body: Any, fix: str) -> None:
    assert str(unanswered(server, replied(body, 404))).partition(";")[1:] == (fix[:1], fix[1:])


# secrets


def everything_said(problem: BaseException, log: pytest.LogCaptureFixture) -> str:
    return "".join([*traceback.format_exception(problem), repr(problem), str(problem), log.text])


@pytest.mark.parametrize(
    "answer",
    [
        replied(error(message=f"Incorrect API key provided: {KEY}."), 401),
        replied(error(message=f"Bearer {KEY}\n{KEY}", code=KEY, type=KEY), 400),
        replied(error(code="content_filter", innererror={"key": KEY}), 400),
        replied(f"no such key: {KEY}".encode(), 500),
        replied({"error": f"no such key: {KEY}"}, 404),
        replied({"detail": KEY}, 422),
        replied(error(), 429, {"retry-after": KEY, "x-request-id": "x"}),
        replied(f"your key is {KEY}".encode()),
        replied({"echo": {"authorization": f"Bearer {KEY}"}}),
    ],
    ids=["message", "code", "filter", "text", "string", "detail", "headers", "no JSON", "no completion"],
)
def test_the_key_is_in_nothing_that_is_said_of_what_is_no_answer(
    server: ScriptedServer, answer: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    problem = unanswered(server, answer)
    said = [*traceback.format_exception(problem), repr(problem), str(problem), caplog.text]
    assert KEY not in "".join(said)


@pytest.mark.parametrize(("before", "reason"), [("No key", "400 No key …"), ("x" * 279, f"400 {'x' * 279} …")])
def test_another_text_stands_where_the_server_repeats_the_key_also_where_a_long_reason_is_cut(
    server: ScriptedServer, before: str, reason: str
) -> None:
    assert str(unanswered(server, replied(error(message=f"{before} {KEY}"), 400))) == reason
