"""Counts what a computation asks of a device, whichever device it runs on: operations, and places where it waits."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

PRODUCTS = ("linear", "_linear_pointwise", "matmul", "mm", "bmm")
READS = ("cpu", "item", "tolist", "__int__", "__float__", "__bool__")
"""Methods of a tensor for which a processor waits until the device has computed it."""
SIZED = ("nonzero", "_unique2", "unique_dim", "masked_select", "bincount")
"""Operations whose result has a size that only the device knows, so that the processor waits for it."""
CALIBRATION = 3000
"""Number of operators with which the cost of their measurement is measured."""
KERNEL = "within a kernel"
NUMBERS = ("item", "_local_scalar_dense")
"""Operations that read a number."""


class OpCounter(TorchDispatchMode):
    """Counts, by the part of the computation that is going on, kernels, FLOP of matrix products, and bytes that kernels
    read and write. Views of tensors cost nothing, and do not count.
    """

    def __init__(self) -> None:
        super().__init__()
        self.part = "outside"
        self.total: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.split("::")[1]
        given = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        made = [each for each in tree_leaves(result) if isinstance(each, Tensor)]
        view = any(each.alias_info and not each.alias_info.is_write for each in func._schema.returns)
        if view:  # or a copy, where reshape and the like cannot return a view
            memory = {each.untyped_storage().data_ptr() for each in given}
            view = all(each.untyped_storage().data_ptr() in memory for each in made)
        if view or "empty" in name or name in NUMBERS:
            return result
        self.count("kernels", 1)
        self.count("bytes", sum(each.numel() * each.element_size() for each in (*given, *made)))
        if name in PRODUCTS:
            self.count("flop", 2 * given[0].shape[-1] * made[0].numel())
        if "scaled_dot_product" in name:  # keys by queries, and weights by values
            self.count("flop", 4 * made[0].numel() * given[1].shape[-2])
        if name in SIZED:
            self.count("waits", 1)
        return result

    def kernel(self, size: int, compute: Callable[[], Tensor | None]) -> Tensor | None:
        """Return what ``compute`` does, counted as one kernel that reads and writes ``size`` bytes."""
        self.count("kernels", 1)
        self.count("bytes", size)
        part, self.part = self.part, KERNEL
        try:
            return compute()
        finally:
            self.part = part

    def count(self, what: str, number: int) -> None:
        self.total[f"{self.part}_{what}"] += number


class OpTimer(OpCounter):
    """Counts nanoseconds of the processor by the part of the computation that is going on: all of them, and those
    within operators, whose number is counted, too.
    """

    def __init__(self) -> None:
        self._entered = time.thread_time_ns()
        super().__init__()

    @property
    def part(self) -> str:
        return self._part

    @part.setter
    def part(self, name: str) -> None:
        now = time.thread_time_ns()
        if hasattr(self, "_part"):
            self.count("nanoseconds", now - self._entered)
        self._part, self._entered = name, now

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        start = time.thread_time_ns()
        result = func(*args, **(kwargs or {}))
        self.count("operator_nanoseconds", time.thread_time_ns() - start)
        self.count("operators", 1)
        return result

    def around(self) -> float:
        """Nanoseconds outside of the model and of operators, without those that the measurement of operators takes."""
        self.part = "outside"
        overhead, number = OpTimer(), torch.zeros(1)
        with overhead:
            for _ in range(CALIBRATION):
                number.add_(1)
        overhead.part = "outside"
        each = (overhead.total["outside_nanoseconds"] - overhead.total["outside_operator_nanoseconds"]) / CALIBRATION
        outside = self.total["outside_nanoseconds"] - self.total["outside_operator_nanoseconds"]
        return outside - each * self.total["outside_operators"]


Counting = TypeVar("Counting", bound=OpCounter)


@contextmanager
def counted(body: torch.nn.Module, head: torch.nn.Module, counter: Counting) -> Iterator[Counting]:
    """Count while the context lasts, apart: in the ``body`` of a model, in its output ``head``, and outside."""

    def part(name: str) -> Any:
        def enter(*_: Any) -> None:
            counter.part = name

        return enter

    def reading(method: Any) -> Any:
        def read(tensor: Tensor, *given: Any, **options: Any) -> Any:
            counter.count("waits", 1)
            return method(tensor, *given, **options)

        return read

    hooks = [body.register_forward_pre_hook(part("body")), body.register_forward_hook(part("outside"))]
    hooks += [head.register_forward_pre_hook(part("head")), head.register_forward_hook(part("outside"))]
    patches = [patch.object(Tensor, name, reading(getattr(Tensor, name))) for name in READS]
    try:
        for each in patches:
            each.start()
        with counter:
            yield counter
    finally:
        for each in patches:
            each.stop()
        for hook in hooks:
            hook.remove()
