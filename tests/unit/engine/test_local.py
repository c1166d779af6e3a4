from collections.abc import Iterator, Sequence, Set
from typing import Any

from robust_eval.engine.local import LocalRunner
from robust_eval.model.base import Item, Reply, Request
from robust_eval.prompt.prompt import Prompt


class Echo:
    """Answers nothing, two requests at a time."""

    def check(self, requests: Sequence[Request]) -> None:
        pass

    def status(self) -> str:
        return ""

    def complete(self, requests: Sequence[Request], missing: Set[Item]) -> Iterator[list[Reply]]:
        asked = [request for request in requests if request.item in missing]
        for start in range(0, len(asked), 2):
            yield [Reply(request, []) for request in asked[start : start + 2]]

    def description(self) -> dict[str, Any]:
        return {}


def test_the_model_is_asked_for_what_is_missing_a_block_at_a_time():
    requests = [Request(name, 0, Prompt("", (), name), (0.5,), 1, 5, seed=0) for name in "abcd"]
    blocks = LocalRunner(Echo()).answers(requests, {("a", 0), ("c", 0), ("d", 0)}, "test")
    assert [[arrived.request.question_id for arrived in block] for block in blocks] == [["a", "c"], ["d"]]
