"""Top branches of a question's answer tree: prefixes of sampled answers, with their probabilities."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from robust_eval.runs.question_status import VERDICTS, verdict
from robust_eval.runtime.text import number

MAX_BRANCHES = 24
"""Maximum number of prefixes of one question."""
MIN_PROBABILITY = 0.002
"""Minimum probability of a prefix."""
MERGE_SHARE = 0.9
"""Share of a prefix's probability from which its only continuation is merged into it."""

Tokens = tuple[int, ...]


class Path(NamedTuple):
    """Answer as a path in the answer tree: its tokens, their log-probabilities (natural, at temperature 1), the number
    of tokens of the answer (without an end token), and its correctness.
    """

    tokens: Tokens
    logprobs: Sequence[float]
    answer_tokens: int
    correct: bool | None


@dataclass
class Branch:
    """Branch of the answer tree: a prefix of answers. ``text`` is its continuation of the parent prefix,
    ``probability`` that of all answers with the prefix, at temperature 1. ``verdict`` is that of the answer that ends
    here, or empty; ``counts`` are the different answers with the prefix, by verdict.
    """

    text: str
    probability: float
    verdict: str
    counts: Counter[str]
    branches: list["Branch"] = field(default_factory=list)

    @property
    def hidden(self) -> Counter[str]:
        """Answers in ``counts`` that neither end at this branch nor belong to one of its ``branches``."""
        own_verdict = Counter([self.verdict] if self.verdict else [])
        return self.counts - sum((branch.counts for branch in self.branches), own_verdict)

    def as_data(self) -> list[Any]:
        """Return the branch as [text, probability in percent as text, verdict, counts, hidden counts, branches] for a
        page; counts are lists of [verdict, number].
        """
        counts_by_verdict = [
            [[verdict_, counts[verdict_]] for verdict_ in VERDICTS if counts[verdict_]]
            for counts in (self.counts, self.hidden)
        ]
        branches = [branch.as_data() for branch in self.branches]
        percent = number(self.probability, ".1%" if self.probability < 0.01 else ".0%").removesuffix(" %")
        return [self.text, percent, self.verdict, *counts_by_verdict, branches]


def top_branches(paths: Iterable[Path], decode: Callable[[list[int]], str]) -> Branch:
    """Return the answer tree of the most probable prefixes; a prefix with one dominant continuation is merged with it.

    ``paths`` are the answers to one prompt, with duplicates; those without log-probabilities are left out. ``decode``
    turns tokens into text. The result is the empty prefix, with its branches, the most probable first. A prefix's
    probability is the product of those of its tokens, so it is exact, however few answers were drawn; the difference to
    1, or to the parent branch, was not sampled. Answers are different if their tokens are.

    >>> right, wrong = Path((1, 2), [-0.5, -0.2], 2, True), Path((1, 3), [-0.5, -3.0], 2, False)
    >>> paths = [right, wrong, Path((4,), [-2.0], 1, False)]
    >>> first, second = top_branches(paths, lambda tokens: "".join("abcde"[token] for token in tokens)).branches
    >>> first.text, round(first.probability, 3), [branch.text for branch in first.branches], second.text
    ('b', 0.607, ['c', 'd'], 'e')
    >>> dict(first.counts)
    {'right': 1, 'wrong': 1}
    """
    probabilities, verdicts = _prefixes(paths)
    counts: dict[Tokens, Counter[str]] = defaultdict(Counter)
    for answer, answer_verdict in verdicts.items():
        for length in range(len(answer) + 1):
            counts[answer[:length]][answer_verdict] += 1
    children: dict[Tokens, list[Tokens]] = defaultdict(list)  # the most probable first
    for prefix in sorted(probabilities, key=lambda prefix: (-probabilities[prefix], prefix))[:MAX_BRANCHES]:
        if probabilities[prefix] >= MIN_PROBABILITY or not children:
            children[prefix[:-1]].append(prefix)

    def branch(parent: Tokens, prefix: Tokens) -> Branch:
        while prefix not in verdicts and len(children[prefix]) == 1:
            (child,) = children[prefix]
            if probabilities[child] < MERGE_SHARE * probabilities[prefix]:
                break
            prefix = child
        return Branch(
            decode(list(prefix)).removeprefix(decode(list(parent)) if parent else ""),
            probabilities[prefix],
            verdicts.get(prefix, ""),
            counts[prefix],
            [branch(prefix, child) for child in children[prefix]],
        )

    return Branch("", 1.0, "", counts[()], [branch((), first) for first in children[()]])


def _prefixes(paths: Iterable[Path]) -> tuple[dict[Tokens, float], dict[Tokens, str]]:
    """Return the probability of each prefix of the answer tree, and the verdicts on complete answers."""
    probabilities: dict[Tokens, float] = {}
    verdicts: dict[Tokens, str] = {}
    for tokens, logprobs, answer_tokens, correct in paths:
        answer = tokens[:answer_tokens]
        if answer in verdicts or not answer or len(logprobs) < len(answer):
            continue
        total = 0.0
        for length, logprob in enumerate(logprobs[: len(answer)], start=1):
            total += logprob  # rounded: without a limit, a prefix could be more probable than its parent
            limit = probabilities.get(answer[: length - 1], 1.0)
            probabilities.setdefault(answer[:length], min(limit, math.exp(total)))
        verdicts[answer] = verdict(correct, "ok")
    return probabilities, verdicts
