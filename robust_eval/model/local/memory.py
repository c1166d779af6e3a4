"""Free memory, and the memory that the answers to a question need."""

import ctypes
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # whoever reads settings need not wait for torch
    import torch


def has_cuda() -> bool:
    """Return whether torch can use a CUDA device; torch is imported only where a driver is installed."""
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    import torch

    return torch.cuda.is_available()


def free_memory(device: "torch.device") -> int:
    """Return the free memory in bytes."""
    if device.type == "cuda":
        import torch

        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    import psutil

    return int(psutil.virtual_memory().available)


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an error means out of memory; torch's CPU allocator raises a plain RuntimeError."""
    import torch

    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def bytes_per_question(model: Any, packed: bool, prompt_tokens: int, answers: int, new_tokens: int) -> int:
    """Return the maximum memory of a question in flight, in bytes: every answer differs from the first token on.

    These are the keys and values of prompt and answers in every layer of ``model``, and the activations of one layer
    for each answer. Without ``packed`` prefixes, each answer has a copy of its prompt's keys and values and a row of
    logits, which are copied when rows are reordered.
    """
    settings = model.config.get_text_config()
    heads, hidden = settings.num_attention_heads, settings.hidden_size
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
