"""Copies arrays to the device of a model and tensors back, so that the processor waits for the device once at most."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robust_eval.model.base import Floats


def to_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """Return an array as a tensor on a device, without waiting for what the device was asked for before.

    CUDA would wait for a copy from ordinary memory. So what goes there is first copied to pinned memory, which torch
    does not hand out again before the device has read it.
    """
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def fetched(*tensors: Tensor) -> list[Floats]:
    """Return tensors as arrays of float64, for which the device is waited for once."""
    numbers = torch.cat([tensor.flatten().double() for tensor in tensors]).cpu().numpy()
    parts = np.split(numbers, np.cumsum([tensor.numel() for tensor in tensors])[:-1])
    return [part.reshape(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]
