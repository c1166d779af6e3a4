"""The top of a question's answer tree: how the answers that were seen begin, and how probable each beginning is."""

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from robust_eval.runs.question_status import VERDICTS, verdict
from robust_eval.runtime.text import number

BRANCHES = 24
"""Beginnings shown of one question at most."""
LEAST = 0.002
"""Probability of a beginning that is shown at least."""
ONE_WAY = 0.9
"""Share of a beginning's probability from which on what follows stands with it."""

Tokens = tuple[int, ...]


class Path(NamedTuple):
    """An answer as the model wrote it: its tokens with their log-probabilities (natural, at temperature 1), how many of
    them carry the answer (an end token does not), and whether it is right.
    """

    tokens: Tokens
    logprobs: Sequence[float]
    answer_tokens: int
    correct: bool | None


@dataclass
class Branch:
    """A beginning of answers. ``text`` is what it adds to the beginning before it, ``probability`` that of all answers
    that begin so, at temperature 1. ``verdict`` is that on the answer that ends here, empty where none does; ``seen``
    counts the different answers that begin so by their verdicts.
    """

    text: str
    probability: float
    verdict: str
    seen: Counter[str]
    branches: list["Branch"] = field(default_factory=list)

    @property
    def hidden(self) -> Counter[str]:
        """The answers among ``seen`` that end neither here nor in a branch."""
        shown = Counter([self.verdict] if self.verdict else [])
        return self.seen - sum((branch.seen for branch in self.branches), shown)

    def as_data(self) -> list[Any]:
        """[text, probability in percent as it is shown, verdict, seen, hidden, branches] for a page; of counts the
        [verdict, number] of each.
        """
        parted = [[[said, counts[said]] for said in VERDICTS if counts[said]] for counts in (self.seen, self.hidden)]
        branches = [branch.as_data() for branch in self.branches]
        shown = number(self.probability, ".1%" if self.probability < 0.01 else ".0%").removesuffix("%")
        return [self.text, shown, self.verdict, *parted, branches]


def top_branches(paths: Iterable[Path], decode: Callable[[list[int]], str]) -> Branch:
    """Return the most probable beginnings of the answers, as a tree; one that nearly always goes on in one way stands
    with what follows.

    Parameters
    ----------
    paths
        Answers to one prompt; the same one may come several times. Those without log-probabilities are left out.
    decode
        The text of some tokens.

    Returns
    -------
    The beginning without a token, with its branches, the most probable first. A beginning's probability is the product
    of those of its tokens, so it is exact, however few answers were drawn; what is lacking to 1, or to the branch
    before, was not seen. Answers are different where their tokens are.

    Examples
    --------
    >>> right, wrong = Path((1, 2), [-0.5, -0.2], 2, True), Path((1, 3), [-0.5, -3.0], 2, False)
    >>> paths = [right, wrong, Path((4,), [-2.0], 1, False)]
    >>> first, second = top_branches(paths, lambda tokens: "".join("abcde"[token] for token in tokens)).branches
    >>> first.text, round(first.probability, 3), [branch.text for branch in first.branches], second.text
    ('b', 0.607, ['c', 'd'], 'e')
    >>> dict(first.seen)
    {'right': 1, 'wrong': 1}
    """
    probabilities, verdicts = _prefixes(paths)
    seen: dict[Tokens, Counter[str]] = {}
    for answer, said in verdicts.items():
        for length in range(len(answer) + 1):
            seen.setdefault(answer[:length], Counter())[said] += 1
    chosen = set(_most_probable(probabilities))
    children: dict[Tokens, list[Tokens]] = {}
    for prefix in chosen:
        children.setdefault(prefix[:-1], []).append(prefix)
    for found in children.values():
        found.sort(key=lambda prefix: (-probabilities[prefix], prefix))
    firsts = [_branch((), first, children, probabilities, verdicts, seen, decode) for first in children.get((), [])]
    return Branch("", 1.0, "", seen.get((), Counter()), firsts)


def _prefixes(paths: Iterable[Path]) -> tuple[dict[Tokens, float], dict[Tokens, str]]:
    """Return the probability of each beginning, and the verdicts on the answers that are whole."""
    probabilities: dict[Tokens, float] = {}
    verdicts: dict[Tokens, str] = {}
    for tokens, logprobs, answer_tokens, correct in paths:
        answer = tokens[:answer_tokens]
        if answer in verdicts or not answer or len(logprobs) < len(answer):
            continue
        total = 0.0
        for length, logprob in enumerate(logprobs[: len(answer)], start=1):
            total += logprob
            probabilities.setdefault(answer[:length], math.exp(total))
        verdicts[answer] = verdict(correct, "ok")
    return probabilities, verdicts


def _most_probable(probabilities: Mapping[Tokens, float]) -> list[Tokens]:
    """Return the beginnings to be shown: no probable one is, unless the one before it is."""
    children: dict[Tokens, list[Tokens]] = {}
    for prefix in probabilities:
        children.setdefault(prefix[:-1], []).append(prefix)
    waiting = [(-probabilities[prefix], prefix) for prefix in children.get((), [])]
    heapq.heapify(waiting)
    chosen: list[Tokens] = []
    while waiting and len(chosen) < BRANCHES:
        negative, prefix = heapq.heappop(waiting)
        if -negative < LEAST and chosen:
            break
        chosen.append(prefix)
        for child in children.get(prefix, []):
            heapq.heappush(waiting, (-probabilities[child], child))
    return chosen


def _branch(
    before: Tokens,
    prefix: Tokens,
    children: Mapping[Tokens, list[Tokens]],
    probabilities: Mapping[Tokens, float],
    verdicts: Mapping[Tokens, str],
    seen: Mapping[Tokens, Counter[str]],
    decode: Callable[[list[int]], str],
) -> Branch:
    while prefix not in verdicts and len(children.get(prefix, [])) == 1:
        (child,) = children[prefix]
        if probabilities[child] < ONE_WAY * probabilities[prefix]:
            break
        prefix = child
    branch = Branch(
        decode(list(prefix)).removeprefix(decode(list(before))) if before else decode(list(prefix)),
        min(1.0, probabilities[prefix]),  # a sum of rounded logarithms may come out above 0
        verdicts.get(prefix, ""),
        seen[prefix],
    )
    branch.branches = [
        _branch(prefix, child, children, probabilities, verdicts, seen, decode) for child in children.get(prefix, [])
    ]
    return branch
