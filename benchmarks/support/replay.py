"""A run without its operators: only the processor's own work, as if a device computed everything instantly.

Operators on a CPU fill its caches with their data, which slows down the Python code between them; on a GPU they do not.
So a run is recorded once, and then repeated with results that are looked up.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from support.op_counter import OpTimer
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map


@dataclass(frozen=True)
class Made:
    """A tensor that an operator returned: one of those that it got, by its place, or a new one."""

    given: int | None
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype


class Recording(NamedTuple):
    """The operators of a run in order, with their names and results, and the arrays that the processor read."""

    operators: list[tuple[str, Any]]
    reads: list[np.ndarray]


class Recorder(TorchDispatchMode):
    """Records the operators of a run."""

    def __init__(self) -> None:
        super().__init__()
        self.recording = Recording([], [])

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not _is_view(func):
            given = {id(tensor): place for place, tensor in enumerate(_tensors(args, kwargs))}

            def described(leaf: Any) -> Any:
                if not isinstance(leaf, Tensor):
                    return leaf
                return Made(given.get(id(leaf)), tuple(leaf.shape), leaf.stride(), leaf.dtype)

            self.recording.operators.append((str(func), tree_map(described, result)))
        return result


class Replay(OpTimer):
    """Times a run whose operators return tensors of the recorded shapes, without computing them. Views are real."""

    def __init__(self, recording: Recording) -> None:
        self._operators = iter(recording.operators)
        self._memory: dict[torch.dtype, Tensor] = {}
        super().__init__()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        start = time.thread_time_ns()
        if _is_view(func):
            result = func(*args, **(kwargs or {}))
        else:
            name, results = next(self._operators, ("none", None))
            if name != str(func):
                raise RuntimeError(f"the run has {func} where the recorded one had {name}")
            given = _tensors(args, kwargs)
            result = tree_map(partial(self._made, given), results)
        self.count("operator_nanoseconds", time.thread_time_ns() - start)
        self.count("operators", 1)
        return result

    def _made(self, given: list[Tensor], leaf: Any) -> Any:
        if not isinstance(leaf, Made):
            return leaf
        if leaf.given is not None:
            return given[leaf.given]
        size = 1 + sum((length - 1) * stride for length, stride in zip(leaf.shape, leaf.strides, strict=True))
        memory = self._memory.get(leaf.dtype)
        if memory is None or len(memory) < size:  # one for all, because nothing is written
            memory = self._memory[leaf.dtype] = torch.empty(max(1, size), dtype=leaf.dtype)
        return memory.as_strided(leaf.shape, leaf.strides)


@contextmanager
def reads(recording: Recording, replayed: bool) -> Iterator[None]:
    """Record the arrays that the processor reads from the device, or return the recorded ones in their order."""
    read, recorded = Tensor.cpu, iter(recording.reads)

    def cpu(tensor: Tensor) -> Tensor:
        if replayed:
            return torch.from_numpy(next(recorded))
        recording.reads.append(read(tensor).numpy().copy())
        return read(tensor)

    with patch.object(Tensor, "cpu", cpu):
        yield


def _is_view(func: Any) -> bool:
    return any(each.alias_info and not each.alias_info.is_write for each in func._schema.returns)


def _tensors(args: Any, kwargs: Any) -> list[Tensor]:
    return [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
