"""Memory of a device, transfers to and from it, and linear layers for the CPU.

torch multiplies float32 matrices with MKL, which on some processors leaves half of their vector width unused; oneDNN,
which torch ships as well, does not. The first model of a size on a machine measures both on its widest layer, and the
faster one is remembered.
"""

import timeit
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from robust_eval.model.base import Floats
from robust_eval.runtime.cache import get_or_measure


def to_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """Return an array as a tensor on a device, without waiting for the device.

    CUDA would wait for a copy from ordinary memory. So the array is first copied to pinned memory, which torch does not
    reuse before the device has read it.
    """
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def sent(device: torch.device, *arrays: NDArray[Any]) -> list[Tensor]:
    """Return arrays as tensors on a device, with one transfer; see :func:`to_device`."""
    starts = np.cumsum([0, *(-(-array.nbytes // 8) * 8 for array in arrays)])  # the widest numbers have 8 bytes
    packed = np.zeros(max(8, starts[-1]), dtype=np.uint8)
    for array, start in zip(arrays, starts[:-1], strict=True):
        packed[start : start + array.nbytes].view(array.dtype)[:] = array.ravel()
    on_device = to_device(packed, device)
    return [
        on_device[start : start + array.nbytes].view(torch.from_numpy(array).dtype).view(array.shape)
        for array, start in zip(arrays, starts[:-1].tolist(), strict=True)
    ]


def fetched(*tensors: Tensor) -> list[Floats]:
    """Return tensors of a device as arrays of float64, with one wait for the device."""
    sizes = [tensor.numel() for tensor in tensors]
    packed = torch.empty(sum(sizes), dtype=torch.float64, device=tensors[0].device)
    numbers = torch.cat([tensor.flatten() for tensor in tensors], out=packed).cpu().numpy()
    chunks = np.split(numbers, np.cumsum(sizes)[:-1])
    return [chunk.reshape(tensor.shape) for chunk, tensor in zip(chunks, tensors, strict=True)]


def free_memory(device: torch.device) -> int:
    """Return the free memory of a device in bytes."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(psutil.virtual_memory().available)


BYTES_PER_BATCH = 16 * 2**20
"""Size of a batch of logits in float32 on the CPU: below that of memory which its allocator reuses (32 MiB)."""
BATCHES_PER_DEVICE = 32
"""Memory of a CUDA device as a multiple of a batch of logits. Fewer batches launch fewer kernels; everything computed
from a batch takes 4 to 6 times its size. With the free memory instead, rounding would vary between runs."""


def rows_per_batch(vocabulary: int, device: torch.device) -> int:
    """Return the number of rows of logits in a batch, by the memory of the device."""
    size = BYTES_PER_BATCH
    if device.type == "cuda":
        size = torch.cuda.get_device_properties(device).total_memory // BATCHES_PER_DEVICE
    return max(1, size // (4 * vocabulary))


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an error means that a device is out of memory; torch's CPU allocator raises a RuntimeError."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def bytes_per_question(model: Any, packed: bool, prompt_tokens: int, answers: int, new_tokens: int) -> int:
    """Return the maximum memory of a question in flight, in bytes: every answer differs from the first token on.

    These are the keys and values of prompt and answers in every layer of ``model``, and the activations of one layer
    for each answer. Without ``packed`` prefixes, each answer has a copy of its prompt's keys and values and a row of
    logits, which are copied when rows are reordered.
    """
    settings = model.config.get_text_config()
    heads, hidden = getattr(settings, "num_attention_heads", None) or 1, settings.hidden_size  # recurrent: none
    groups = getattr(settings, "num_key_value_heads", None) or heads
    size = getattr(settings, "head_dim", None) or hidden // heads
    inner = getattr(settings, "intermediate_size", None) or 4 * hidden
    item = model.dtype.itemsize
    cached: int = 2 * groups * size * settings.num_hidden_layers * item  # of a token
    attention = 4 * heads * (4 * prompt_tokens + 4 * new_tokens) + 4 * groups * size * new_tokens * item
    each: int = new_tokens * cached + attention + item * (8 * hidden + 4 * inner)
    if packed:
        return 2 * prompt_tokens * cached + answers * each
    logits: int = 4 * model.get_output_embeddings().weight.shape[0]
    return answers * (each + 2 * (prompt_tokens * cached + logits))


ROWS = 128
"""Number of tokens in the measurement; the answer tree evaluates some hundred at a time."""
MIN_SPEEDUP = 1.1
"""Minimum speed-up for which oneDNN is used."""
BACKENDS = ("oneDNN", "torch")


class OneDnnLinear(nn.Module):
    """Linear layer for the CPU by oneDNN; its weights are in oneDNN's own order unless an embedding shares them."""

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
    """Replace the model's float32 linear layers on the CPU by oneDNN's if faster; return "oneDNN" or "torch"."""
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
    """Return the shortest time of several passes through a linear layer."""
    return min(timeit.repeat(lambda: layer(x), number=1, repeat=5))
