"""A run without its operators: only the processor's own work, as if a device computed everything instantly.

Operators on a CPU fill its caches with their data, which slows down the Python code between them; on a GPU they do not.
So a run is recorded once, and then repeated with results that are looked up.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from support.op_counter import KERNEL, OpCounter, OpTimer
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map


@dataclass(frozen=True)
class Made:
    """A tensor that an operator returned: one of those that it got, by its place, or a new one."""

    given: int | None
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype

    @property
    def size(self) -> int:
        return 1 + sum((length - 1) * stride for length, stride in zip(self.shape, self.strides, strict=True))


class Recording(NamedTuple):
    """The operators and kernels of a run in order, by name, with their results; and the arrays that were read."""

    operators: list[tuple[str, Any]]
    reads: list[np.ndarray]


class Recorder(OpCounter):
    """Records the operators of a run, and the kernels, but not the operators that stand in for one."""

    def __init__(self) -> None:
        super().__init__()
        self.recording = Recording([], [])

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not _is_view(func) and self.part != KERNEL:
            self._record(str(func), result, _tensors(args, kwargs))
        return result

    def kernel(self, size: int, compute: Callable[[], Tensor | None]) -> Tensor | None:
        result = super().kernel(size, compute)
        self._record(KERNEL, result, [])
        return result

    def _record(self, name: str, result: Any, given: list[Tensor]) -> None:
        places = {id(tensor): place for place, tensor in enumerate(given)}

        def described(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor):
                return leaf
            return Made(places.get(id(leaf)), tuple(leaf.shape), leaf.stride(), leaf.dtype)

        self.recording.operators.append((name, tree_map(described, result)))


class Replay(OpTimer):
    """Times a run whose operators return tensors of the recorded shapes, without computing them. Views are real."""

    def __init__(self, recording: Recording) -> None:
        self._operators = iter(recording.operators)
        sizes: dict[torch.dtype, int] = defaultdict(int)
        for leaf in tree_leaves(recording.operators):
            if isinstance(leaf, Made):
                sizes[leaf.dtype] = max(sizes[leaf.dtype], leaf.size)
        # one memory for all results of a type, because nothing is written
        self._memory = {dtype: torch.empty(size, dtype=dtype) for dtype, size in sizes.items()}
        super().__init__()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        start = time.thread_time_ns()
        result = func(*args, **(kwargs or {})) if _is_view(func) else self._next(str(func), _tensors(args, kwargs))
        self.count("operator_nanoseconds", time.thread_time_ns() - start)
        self.count("operators", 1)
        return result

    def kernel(self, size: int, compute: Callable[[], Tensor | None]) -> Tensor | None:
        result: Tensor | None = super().kernel(size, partial(self._next, KERNEL, []))
        return result

    def _next(self, name: str, given: list[Tensor]) -> Any:
        recorded, results = next(self._operators, ("none", None))
        if recorded != name:
            raise RuntimeError(f"the run has {name} where the recorded one had {recorded}")
        return tree_map(partial(self._made, given), results)

    def _made(self, given: list[Tensor], leaf: Any) -> Any:
        if not isinstance(leaf, Made):
            return leaf
        if leaf.given is not None:
            return given[leaf.given]
        return self._memory[leaf.dtype].as_strided(leaf.shape, leaf.strides)


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
