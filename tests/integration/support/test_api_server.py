"""What the server of tests/support/api_server.py does, as far as clients and their tests rely on it."""

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import api_server as module
import pytest
from api_server import api_server

Body = dict[str, Any]

QUESTION = {"messages": [{"role": "user", "content": "What is the capital of France?"}]}
PLAIN = {"prompt": "Q: What is the capital of France?\nA:"}
UNTRUNCATED = {"top_k": 0, "top_p": 1, "min_p": 0}
LOGPROBS = {"logprobs": True, "top_logprobs": 5}


class Reply(NamedTuple):
    status: int
    body: Body

    @property
    def texts(self) -> list[str]:
        return [choice["message"]["content"] if "message" in choice else choice["text"] for choice in self.choices]

    @property
    def choices(self) -> list[Body]:
        return list(self.body["choices"])


class Server:
    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)

    def ask(self, request: Body) -> Reply:
        """The reply to a chat, or to a plain prompt where the request has one."""
        assert self._url.hostname
        connection = HTTPConnection(self._url.hostname, self._url.port or 80, timeout=60)
        path = "/completions" if "prompt" in request else "/chat/completions"
        try:
            content = json.dumps({"model": "any"} | request)
            connection.request("POST", self._url.path + path, content, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return Reply(response.status, json.loads(response.read()))
        finally:
            connection.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with api_server() as url:
        yield Server(url)


def drawn(seed: int, n: int = 1, **settings: Any) -> Body:
    return QUESTION | UNTRUNCATED | {"temperature": 1, "max_tokens": 8, "seed": seed, "n": n} | settings


def test_n_is_at_most_the_number_of_slots(server: Server) -> None:
    assert len(server.ask(drawn(1, n=10, max_tokens=1)).choices) == 10
    assert server.ask(drawn(1, n=11)) == Reply(
        400,
        {
            "error": {
                "code": 400,
                "message": "Field 'n': Value must be between 1 <= value <= 10, but got 11",
                "type": "invalid_request_error",
            }
        },
    )


def test_choice_i_of_a_seed_is_what_that_seed_plus_i_gives_alone_and_among_others(server: Server) -> None:
    together = server.ask(drawn(5, n=6)).texts
    assert len(set(together)) == 6
    assert [server.ask(drawn(5 + index)).texts[0] for index in range(6)] == together
    with ThreadPoolExecutor(12) as pool:
        crowd = list(pool.map(server.ask, [drawn(5 + index) for index in range(6)] * 2))
    assert [reply.texts[0] for reply in crowd] == together * 2


def test_the_same_seed_gives_the_same_answers_without_the_prompt_cache(server: Server) -> None:
    cached, uncached = (server.ask(drawn(3, n=3, cache_prompt=cached)).texts for cached in (True, False))
    assert cached == uncached


def test_usage_counts_the_first_choice_only(server: Server) -> None:
    usage = server.ask(drawn(1, n=4, ignore_eos=True)).body["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (37, 8, 45)


def test_more_logprobs_are_given_than_openai_allows_and_those_of_the_whole_vocabulary_sum_to_one(
    server: Server,
) -> None:
    request = QUESTION | {"temperature": 0, "max_tokens": 1, "logprobs": True}
    few = server.ask(request | {"top_logprobs": 25}).choices[0]["logprobs"]["content"][0]["top_logprobs"]
    every = server.ask(request | {"top_logprobs": 49152}).choices[0]["logprobs"]["content"][0]["top_logprobs"]
    assert [entry["id"] for entry in few] == [entry["id"] for entry in every[:25]]
    assert len(every) == 49152
    assert sum(math.exp(entry["logprob"]) for entry in every) == pytest.approx(1, abs=1e-3)


def test_logprobs_depend_neither_on_temperature_nor_on_truncation(server: Server) -> None:
    settings: list[Body] = [{"temperature": 0}, {"temperature": 2}, {"temperature": 2} | UNTRUNCATED]
    tops = []
    for setting in settings:
        content = server.ask(QUESTION | LOGPROBS | setting | {"max_tokens": 1, "seed": 0}).choices[0]["logprobs"]
        tops.append({entry["token"]: entry["logprob"] for entry in content["content"][0]["top_logprobs"]})
    assert list(tops[0]) == ["L", "The", "La", "Al", "Le"]
    assert tops[1:] == [pytest.approx(tops[0], abs=1e-4)] * 2


def test_rare_tokens_are_cut_off_unless_all_three_fields_say_otherwise(server: Server) -> None:
    request = QUESTION | {"temperature": 0, "max_tokens": 1, "logprobs": True, "top_logprobs": 40}
    frequent = {entry["id"] for entry in server.ask(request).choices[0]["logprobs"]["content"][0]["top_logprobs"]}

    def rare(settings: Body) -> int:
        """How many of 40 first tokens at temperature 2 are none of the 40 most probable."""
        hot = QUESTION | {"temperature": 2, "max_tokens": 1, "logprobs": True, "top_logprobs": 1, "n": 10} | settings
        choices = [choice for seed in range(0, 40, 10) for choice in server.ask(hot | {"seed": seed}).choices]
        contents = [choice["logprobs"]["content"] for choice in choices if choice.get("logprobs")]
        return sum(content[0]["id"] not in frequent for content in contents)

    assert [rare({}), rare(UNTRUNCATED | {"top_k": 40}), rare(UNTRUNCATED | {"min_p": 0.05})] == [0, 0, 0]
    assert rare(UNTRUNCATED) > 20  # 29 are expected


def test_a_plain_prompt_honours_n_and_stop_and_has_logprobs_in_the_format_of_chats(server: Server) -> None:
    reply = server.ask(PLAIN | {"temperature": 0, "n": 2, "max_tokens": 20, "stop": ["\n"], "logprobs": 2})
    assert reply.texts == [" The capital of France is Paris."] * 2
    assert [choice["finish_reason"] for choice in reply.choices] == ["stop"] * 2
    content = reply.choices[0]["logprobs"]["content"]
    assert [entry["token"] for entry in content] == [" The", " capital", " of", " France", " is", " Paris", "."]
    assert [len(entry["top_logprobs"]) for entry in content] == [2] * 7
    assert reply.body["usage"]["completion_tokens"] == 8  # with the stop


def test_while_the_text_may_become_a_stop_tokens_have_no_text_of_their_own(server: Server) -> None:
    reply = server.ask(PLAIN | {"temperature": 0, "max_tokens": 4, "stop": [" capital of X"], "logprobs": 1})
    entries = [(entry["token"], entry["id"]) for entry in reply.choices[0]["logprobs"]["content"]]
    assert entries == [(" The", 378), ("", 3575), ("", 282), (" capital of France", 4649)]


def test_the_end_token_is_an_entry_without_text(server: Server) -> None:
    hello = {"messages": [{"role": "user", "content": "Say hi."}], "temperature": 0, "max_tokens": 60}
    reply = server.ask(hello | LOGPROBS)
    entries = reply.choices[0]["logprobs"]["content"]
    assert (reply.choices[0]["finish_reason"], entries[-1]["token"], entries[-1]["bytes"]) == ("stop", "", [])
    assert "".join(entry["token"] for entry in entries) == reply.texts[0]


def test_a_character_of_several_tokens_is_one_entry_and_none_if_it_is_cut(server: Server) -> None:
    emoji = {"messages": [{"role": "user", "content": "Name a colour and an animal."}], "temperature": 1, "seed": 1}
    whole, cut = (server.ask(emoji | LOGPROBS | {"max_tokens": most}) for most in (3, 2))
    assert [entry["token"] for entry in whole.choices[0]["logprobs"]["content"]] == whole.texts == ["👌"]
    assert whole.body["usage"]["completion_tokens"] == 3
    assert cut.texts == ["\ufffd"]
    assert cut.choices[0].get("logprobs") is None


def test_both_names_of_the_number_of_tokens_work_and_the_newer_wins(server: Server) -> None:
    greedy = QUESTION | {"temperature": 0}
    limits: list[Body] = [
        {"max_tokens": 3},
        {"max_completion_tokens": 3},
        {"max_tokens": 5, "max_completion_tokens": 3},
    ]
    replies = [server.ask(greedy | limit) for limit in limits]
    assert [reply.body["usage"]["completion_tokens"] for reply in replies] == [3, 3, 3]
    assert [reply.choices[0]["finish_reason"] for reply in replies] == ["length"] * 3


def test_a_system_message_takes_the_place_of_the_default_one(server: Server) -> None:
    system = {"role": "system", "content": "Answer in one word."}
    reply = server.ask({"messages": [system, *QUESTION["messages"]], "temperature": 0, "max_tokens": 6})
    assert reply.texts == ["The capital of France is Paris"]
    assert reply.body["usage"]["prompt_tokens"] == 26


def test_a_prompt_that_is_too_long_is_refused_with_its_length(server: Server) -> None:
    reply = server.ask({"messages": [{"role": "user", "content": "word " * 600}]})
    message = "request (631 tokens) exceeds the available context size (512 tokens), try increasing it"
    error = {"code": 400, "message": message, "type": "exceed_context_size_error", "n_prompt_tokens": 631, "n_ctx": 512}
    assert reply == Reply(400, {"error": error})


def test_the_server_ends_when_its_stdin_closes() -> None:
    command = [sys.executable, module.__file__, "--slots", "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("http://127.0.0.1:")
        try:
            assert process.communicate(timeout=30)[0] == ""
            assert process.returncode == 0
        finally:
            process.kill()  # or leaving the context would wait for it
