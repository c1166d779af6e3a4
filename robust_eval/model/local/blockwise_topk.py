"""Top-k elements of long rows, and crossings of cumulative sums, by blocks.

A level of an answer tree has a million candidates for a question. The largest candidates lie in the blocks with the
largest maxima. A cumulative sum passes a value in the block in which the cumulative sum of whole blocks passes it. So
only a few blocks are read, whereas torch's ``topk`` and ``cumsum`` read everything.
"""

import torch
from torch import Tensor

BLOCK = 512
"""Number of elements of a block."""


def topk(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the ``count`` largest of each row (m, n), largest first, and their indices in the row.

    >>> topk(torch.arange(10_000.0)[None], 2)
    (tensor([[9999., 9998.]]), tensor([[9999, 9998]]))
    """
    blocks, tail = divmod(values.shape[1], BLOCK)
    if blocks <= count:
        largest = values.topk(count, dim=1)
        return largest.values, largest.indices
    whole = values[:, : blocks * BLOCK].view(len(values), blocks, BLOCK)
    first = whole.amax(dim=2).topk(count, dim=1).indices
    inside = torch.arange(BLOCK, device=values.device)
    rest = torch.arange(blocks * BLOCK, values.shape[1], device=values.device).expand(len(values), tail)
    place = torch.cat([(first[:, :, None] * BLOCK + inside).flatten(1), rest], dim=1)
    top, order = values.gather(1, place).topk(count, dim=1)
    return top, place.gather(1, order)


def search(values: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """Return the indices (k,) at which the cumulative sum of ``values`` (n,) first exceeds ``shares`` (k,) of the
    total, and the total, in float64.

    ``values`` are not negative. Rounding beyond the end falls on the last element above 0.

    >>> search(torch.tensor([0.0, 1.0, 0.0, 3.0]), torch.tensor([0.2, 0.25, 1.0]))
    (tensor([1, 3, 3]), tensor(4., dtype=torch.float64))
    """
    blocks = len(values) // BLOCK
    sums = values[: blocks * BLOCK].view(blocks, BLOCK).sum(dim=1, dtype=torch.float64)
    sums = torch.cat([sums, values[blocks * BLOCK :].sum(dtype=torch.float64)[None]])
    cumulative = sums.cumsum(0)
    target = shares * cumulative[-1]
    block = _passed(cumulative, target)
    place = block[:, None] * BLOCK + torch.arange(BLOCK, device=values.device)
    block_values = values[place.clamp(max=len(values) - 1)].double().masked_fill(place >= len(values), 0)
    inside = _passed(block_values.cumsum(1), (target - cumulative[block] + sums[block])[:, None])
    return block * BLOCK + inside[:, 0], cumulative[-1]


def _passed(cumulative: Tensor, target: Tensor) -> Tensor:
    """Return the first indices at which cumulative sums exceed targets, or else the last at which they rise."""
    last = torch.searchsorted(cumulative, cumulative[..., -1:].contiguous())
    return torch.minimum(torch.searchsorted(cumulative, target, right=True), last)
