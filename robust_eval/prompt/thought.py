"""What an answer table says of the thought before an answer (docs/thinking.md)."""

import re
from collections.abc import Iterable
from typing import NamedTuple

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""How services call so much thinking, from the least on."""
Budget = int | str
"""Tokens of thinking at most, or one of :data:`EFFORTS`."""
_TOLD = re.compile(rf"(?:trace (\d{{1,9}}), )?budgets?((?: (?:\d{{1,9}}|{'|'.join(EFFORTS)}))+)")


class AfterThought(NamedTuple):
    """The thought before an answer: the number of its ``trace``, and the ``budgets`` at which it is what was thought.

    A trace of None is a draw of its own, with the number of its trial.
    """

    trace: int | None
    budgets: tuple[Budget, ...]

    @property
    def told(self) -> str:
        """What an answer table says of it.

        >>> AfterThought(3, (64, 128)).told, AfterThought(None, ("low",)).told
        ('trace 3, budgets 64 128', 'budget low')
        """
        trace = "" if self.trace is None else f"trace {self.trace}, "
        return f"{trace}budget{'s' if len(self.budgets) > 1 else ''} {' '.join(map(str, self.budgets))}"


def thought_told(told: str | None) -> AfterThought | None:
    """Return the thought that an answer table tells of; None where it tells of none.

    >>> thought_told("trace 3, budgets 64 128"), thought_told("choices CAB")
    (AfterThought(trace=3, budgets=(64, 128)), None)
    """
    match = _TOLD.fullmatch(told or "")
    if match is None:
        return None
    budgets = tuple(int(word) if word.isdecimal() else word for word in match[2].split())
    return AfterThought(None if match[1] is None else int(match[1]), budgets)


def ascending(budgets: Iterable[Budget]) -> list[Budget]:
    """Return budgets from the least on.

    >>> ascending([64, 0]), ascending({"high", "low"})
    ([0, 64], ['low', 'high'])
    """
    return sorted(budgets, key=lambda budget: EFFORTS.index(budget) if isinstance(budget, str) else budget)
