"""Transfers of arrays to a model's device and of tensors back, with at most one wait for the device."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robust_eval.model.base import Floats


def to_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """Return an array as a tensor on a device, without waiting for the device.

    CUDA would wait for a copy from ordinary memory. So the array is first copied to pinned memory, which torch does not
    reuse before the device has read it.
    """
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def fetched(*tensors: Tensor) -> list[Floats]:
    """Return tensors as arrays of float64, with one wait for the device."""
    numbers = torch.cat([tensor.flatten().double() for tensor in tensors]).cpu().numpy()
    chunks = np.split(numbers, np.cumsum([tensor.numel() for tensor in tensors])[:-1])
    return [chunk.reshape(tensor.shape) for chunk, tensor in zip(chunks, tensors, strict=True)]
