"""Linear layers in float32 on the CPU by oneDNN, if faster than the library behind ``torch.nn.Linear``.

torch multiplies float32 matrices with MKL, which on some processors leaves half of their vector width unused; oneDNN,
which torch ships as well, does not. The first model of a size on a machine measures both on its widest layer, and the
faster one is remembered.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from robust_eval.runtime.measured_choices import get_or_measure

ROWS = 128
"""Number of tokens in the measurement; the answer tree evaluates some hundred at a time."""
MIN_SPEEDUP = 1.1
"""Minimum speed-up for which oneDNN is used."""
BACKENDS = ("oneDNN", "torch")


class OneDnnLinear(nn.Module):
    """A linear layer by oneDNN; its weights are brought into oneDNN's own order unless an embedding shares them."""

    def __init__(self, linear: nn.Linear, shared: bool) -> None:
        super().__init__()
        weight = linear.weight.detach()
        if not shared:
            weight = torch.ops.mkldnn._reorder_linear_weight(weight, ROWS)
        self.register_buffer("weight", weight, False)
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach(), False)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return result


@torch.inference_mode()
def use_faster_linear(model: Any) -> str:
    """Replace the model's float32 linear layers by oneDNN's if these are faster; return "oneDNN" or "torch"."""
    if model.device.type != "cpu" or model.dtype != torch.float32 or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return "torch"
    shared = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    sizes = {name: module.weight.numel() for name, module in model.named_modules() if type(module) is nn.Linear}
    if not sizes:
        return "torch"
    widest = model.get_submodule(max(sizes, key=lambda name: sizes[name]))
    candidate = OneDnnLinear(widest, id(widest.weight) in shared)
    x = torch.randn(ROWS, widest.in_features, generator=torch.Generator().manual_seed(0))
    expected = widest(x)
    if not torch.allclose(candidate(x), expected, atol=1e-4 * float(expected.std())):
        return "torch"
    size = f"{widest.in_features}x{widest.out_features}"
    circumstances = f"torch-{torch.__version__} threads-{torch.get_num_threads()} {size}"
    if (
        get_or_measure("linear", circumstances, lambda: _faster(candidate, widest, x), BACKENDS.__contains__)
        != "oneDNN"
    ):
        return "torch"
    for name in sizes:  # one after the other, so that no layer is in memory twice for long
        layer = model.get_submodule(name)
        model.set_submodule(name, OneDnnLinear(layer, id(layer.weight) in shared))
    return "oneDNN"


def _faster(one_dnn: OneDnnLinear, plain: nn.Linear, x: Tensor) -> str:
    return "oneDNN" if _seconds(one_dnn, x) * MIN_SPEEDUP <= _seconds(plain, x) else "torch"


def _seconds(layer: Callable[[Tensor], Tensor], x: Tensor) -> float:
    """Return the shortest of several passes."""
    durations = []
    for _ in range(5):
        start = time.perf_counter()
        layer(x)
        durations.append(time.perf_counter() - start)
    return min(durations)
