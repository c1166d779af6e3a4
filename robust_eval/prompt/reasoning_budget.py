"""Reasoning budget in the tag of an answer, in the answer table (docs/thinking.md)."""

import re
from collections.abc import Iterable
from typing import NamedTuple

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""Services' words for reasoning budgets, ascending."""
Budget = int | str
"""Maximum number of reasoning tokens, or one of :data:`EFFORTS`."""
_TAG = re.compile(rf"(?:trace (\d{{1,9}}), )?budgets?((?: (?:\d{{1,9}}|{'|'.join(EFFORTS)}))+)")


class AfterReasoning(NamedTuple):
    """Reasoning before an answer: the number of its ``trace``, and the ``budgets`` at which it is that trace.

    A trace of None is drawn with the answer, and has the number of its trial.
    """

    trace: int | None
    budgets: tuple[Budget, ...]

    @property
    def tag(self) -> str:
        """Tag of trace and reasoning budgets in the answer table.

        >>> AfterReasoning(3, (64, 128)).tag, AfterReasoning(None, ("low",)).tag
        ('trace 3, budgets 64 128', 'budget low')
        """
        trace = "" if self.trace is None else f"trace {self.trace}, "
        return f"{trace}budget{'s' if len(self.budgets) > 1 else ''} {' '.join(map(str, self.budgets))}"


def read_reasoning(tag: str | None) -> AfterReasoning | None:
    """Return the reasoning budgets and trace of a tag of the answer table; None for any other tag.

    >>> read_reasoning("trace 3, budgets 64 128"), read_reasoning("choices CAB")
    (AfterReasoning(trace=3, budgets=(64, 128)), None)
    """
    match = _TAG.fullmatch(tag or "")
    if match is None:
        return None
    budgets = tuple(int(word) if word.isdecimal() else word for word in match[2].split())
    return AfterReasoning(None if match[1] is None else int(match[1]), budgets)


def sorted_budgets(budgets: Iterable[Budget]) -> list[Budget]:
    """Return reasoning budgets in ascending order.

    >>> sorted_budgets([64, 0]), sorted_budgets({"high", "low"})
    ([0, 64], ['low', 'high'])
    """
    return sorted(budgets, key=lambda budget: EFFORTS.index(budget) if isinstance(budget, str) else budget)
