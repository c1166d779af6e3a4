import torch
from support.op_counter import counted
from torch import nn


@torch.inference_mode()
def test_products_kernels_and_waits_are_counted_by_the_part_that_is_going_on():
    body, head = nn.Linear(3, 5, bias=False), nn.Linear(5, 7, bias=False)
    x = torch.ones(2, 3)
    with counted(body, head) as counter:
        hidden = body(x)
        logits = head(hidden[:1].view(1, 5))  # views are no kernels
        score = (logits @ logits.T).exp()
        assert score.item() == float(score)
        torch.nonzero(logits)
    assert counter.total == {
        "body_kernels": 1,
        "body_flop": 2 * 2 * 3 * 5,
        "body_bytes": 4 * (2 * 3 + 3 * 5 + 2 * 5),
        "head_kernels": 1,
        "head_flop": 2 * 1 * 5 * 7,
        "head_bytes": 4 * (5 + 5 * 7 + 7),
        "outside_kernels": 3,
        "outside_flop": 2 * 7,
        "outside_bytes": 4 * (7 + 7 + 1) + 4 * (1 + 1) + 4 * 7 + 8 * 2 * int((logits != 0).sum()),
        "outside_waits": 3,
    }
    assert torch.ones(1).item() == 1
    assert counter.total["outside_waits"] == 3  # no more is counted behind it
