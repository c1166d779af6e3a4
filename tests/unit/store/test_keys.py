from dataclasses import replace

import pytest

from robust_eval.grader.answer_matcher import AnswerMatcher
from robust_eval.model.base import Enumeration, Request
from robust_eval.prompt.prompt import Prompt
from robust_eval.store import keys_and_rows
from robust_eval.store.keys_and_rows import answers_key

LOCAL, SERVED = {"weights": "a model"}, {"server": "http://localhost", "model": "a model"}


def asked(draws: int, precision: float = 0.0) -> Request:
    enumeration = Enumeration(9, (0.5, 1.0), draws=draws, precision=precision)
    matcher = AnswerMatcher(["Paris"])
    return Request("q", 0, Prompt("", (), "Where?"), (0.5,), 0, 5, 0, matcher=matcher, enumeration=enumeration)


def test_enumerations_of_a_server_are_known_by_how_often_they_draw_and_those_of_this_process_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few, many = asked(8), asked(10)
    assert answers_key(LOCAL, few) == answers_key(LOCAL, many)
    assert answers_key(SERVED, few) != answers_key(SERVED, many)
    local, served = answers_key(LOCAL, few), answers_key(SERVED, few)
    monkeypatch.setattr(keys_and_rows, "FURTHER_DRAWS", 3)
    assert answers_key(LOCAL, few) == local
    assert answers_key(SERVED, few) != served


def test_greedy_answers_of_a_local_model_are_cached_for_every_seed() -> None:
    greedy = Request("q", 0, Prompt("", (), "Where?"), (0.0,), 1, 5, seed=0)
    sampled = replace(greedy, temperatures=(0.5,))
    for identity, request, is_shared in (
        ({"files": "1"}, greedy, True),
        ({"files": "1"}, sampled, False),
        ({"files": "1"}, replace(greedy, enumeration=Enumeration(8, (0.0, 1.0))), False),  # thinned by the seed
        (SERVED, greedy, False),
        ({"kind": "function"}, greedy, False),
    ):
        assert (answers_key(identity, replace(request, seed=1)) == answers_key(identity, request)) == is_shared


@pytest.mark.parametrize("identity", [LOCAL, SERVED])
def test_the_precision_of_an_enumeration_is_part_of_the_key_where_one_is_asked_for(identity: dict[str, str]) -> None:
    whole, precise, finer = asked(8), asked(8, 0.02), asked(8, 0.01)
    assert len({answers_key(identity, request) for request in (whole, precise, finer)}) == 3
