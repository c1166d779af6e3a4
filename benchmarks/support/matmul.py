"""Speed of this machine at multiplying matrices of a model's own shapes."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from robust_eval.model.local.device import OneDnnLinear


def matmul_shares(work: Mapping[str, int], seconds: float, network: Any) -> dict[str, float]:
    """How much of this machine's own rate of multiplying matrices the linear layers reached in some work.

    All of them multiply for every token but the output head, which does so only where logits are wanted. Attention,
    drawing and all else count as time, not as work. ``network`` has torch's own linear layers.
    """
    layers = [module for module in network.modules() if isinstance(module, nn.Linear)]
    head = network.get_output_embeddings().weight.numel()
    body = sum(layer.weight.numel() for layer in layers) - head
    operations = 2 * (body * work["tokens"] + head * work["head_tokens"])
    own, fastest_layer = _rates(layers, rows=round(work["tokens"] / work["passes"]))
    return {
        "matmul_gflops": own / 1e9,
        "matmul_gflops_fastest_layer": fastest_layer / 1e9,
        "matmul_share": operations / (work["nanoseconds"] / 1e9) / own,
        "matmul_share_whole": operations / seconds / own,
    }


@torch.inference_mode()
def _rates(layers: Sequence[nn.Linear], rows: int) -> tuple[float, float]:
    """Operations per second with ``rows`` tokens: of all layers one after the other, and of the fastest of them.

    The shortest of many passes through one layer counts, by torch's matmul or by oneDNN. That is a high measure: within
    a model no layer finds its weights in the processor's cache, as it does here.
    """
    shapes = Counter((layer.in_features, layer.out_features) for layer in layers)
    operations = {(width, height): 2 * rows * width * height for width, height in shapes}
    seconds = {}
    for width, height in shapes:
        layer = nn.Linear(width, height, bias=False, dtype=layers[0].weight.dtype)
        x = torch.randn(rows, width, dtype=layer.weight.dtype)
        products = [partial(torch.matmul, x, layer.weight.T), partial(OneDnnLinear(layer, shared=False), x)]
        seconds[width, height] = min(_seconds(product) for product in products for _ in range(10))
    own = sum(operations[shape] * count for shape, count in shapes.items())
    fastest = max(operations[shape] / seconds[shape] for shape in shapes)
    return own / sum(seconds[shape] * count for shape, count in shapes.items()), fastest


def _seconds(product: "partial[Any]") -> float:
    start = time.perf_counter()
    product()
    return time.perf_counter() - start
