"""What a model of one's own has to say, and what it need not."""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import pytest

from robust_eval.answer import rows
from robust_eval.engine.local import Local
from robust_eval.error import UserError
from robust_eval.model.base import Completion, Enumeration, Item, LanguageModel, Reply, Request
from robust_eval.model.model_config import ModelConfig, Shards
from robust_eval.model.workload import ServiceLimits
from robust_eval.prompt.prompt import Prompt
from robust_eval.runtime.process import Stopwatch
from robust_eval.store.base import NoStore
from robust_eval.store.stored_model import StoredModel


@dataclass
class Parrot(ModelConfig):
    """A model with the four methods that one of one's own needs."""

    name: str = "parrot"

    def identity(self) -> Mapping[str, Any]:
        return {"kind": "parrot"}

    def load(self) -> "Speaking":
        return Speaking()


class Speaking(LanguageModel):
    def complete(
        self, requests: Sequence[Request], missing: Set[Item], batch_context: Any = None
    ) -> Iterator[list[Reply]]:
        for request in requests:
            if request.item in missing:
                said = Completion(1.0, 0, request.prompt.question, 1.0, *[None] * 7)
                yield [Reply(request, [said])]

    def description(self) -> dict[str, Any]:
        return {"name": "parrot"}


def request(question: str, **more: Any) -> Request:
    return Request(question, 0, Prompt("", (), question), (1.0,), 1, 4, 0, **more)


def test_four_methods_are_enough_for_a_model_to_be_asked():
    with NoStore().open() as entries:
        model = StoredModel(Parrot(), Local(threads=1), entries, Stopwatch())
        asked = [request("Who?"), request("What?")]
        model.check(asked)
        assert list(rows(model.answers(asked, "answers").table, "question_id", "text", "outcome")) == [
            ("Who?", "Who?", "ok"),
            ("What?", "What?", "ok"),
        ]


def test_a_model_that_says_no_more_costs_nothing_is_asked_here_and_takes_each_request_by_itself():
    parrot, requests = Parrot(), [request("Who?"), request("What?")]
    assert (parrot.remote, parrot.recorded, parrot.tokenizer_file()) == (False, False, None)
    assert parrot.service_limits() == ServiceLimits(chat=False)
    assert parrot.shard(requests) == Shards([[requests[0]], [requests[1]]], None)
    assert parrot.on("cuda") is parrot
    assert parrot.load().status() == ""


@pytest.mark.parametrize("more", [{"min_logprobs": 10}, {"enumeration": Enumeration(8, (1.0,))}])
def test_what_needs_log_probabilities_is_refused_unless_the_model_says_otherwise(more: dict[str, Any]):
    with pytest.raises(UserError, match=r"^parrot returns no log-probabilities: choose sampler=repetition or "):
        Parrot().load().check([request("Who?", **more)])
    Parrot().load().check([request("Who?")])
