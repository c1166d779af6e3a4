from robust_eval.engine.ray.actors import PendingBlocks
from robust_eval.engine.ray.worker import Outcome, ReplyBytes
from robust_eval.model.base import Completion, Reply, Request
from robust_eval.model.reply_tables import tables_of, to_bytes
from robust_eval.prompt.prompt import Prompt


def test_a_part_of_an_adaptive_request_lacks_only_its_own_trials():
    part = Request("q", 0, Prompt("", (), "Why?"), (0.5,), trials=2, max_new_tokens=5, seed=0, first_trial=5)
    blocks = PendingBlocks([[part]], [part], {part.item})
    for trial in (5, 6):
        lacking = [(answer.temperature, answer.trial) for reply in blocks.errors() for answer in reply.completions]
        assert lacking == [(0.5, missing) for missing in range(trial, 7)]
        (table,) = tables_of([Reply(part, [Completion(0.5, trial, "so", weight=0.5)])])
        blocks.take(Outcome([ReplyBytes(part.item, to_bytes(table.answers), None, 0.5)], [], {}, None, {}, []))
    assert blocks.errors() == []
