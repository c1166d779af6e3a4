"""The probability of a right answer at every temperature, from one weighted tree of answers instead of draws.

The logits after a prefix serve every temperature, and so does the tree: level by level, the prefixes that weigh most
over all temperatures are kept, the others thinned by unbiased systematic sampling, and what is kept is evaluated once.
The next-token probabilities at each prefix are then summed, not drawn: over the tokens that end the answer rightly,
those that end it wrongly, and those after which it is right whatever follows, so that nothing more need be evaluated.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from robust_eval.model.base import Curve, Floats, Request
from robust_eval.model.enumerated import EnumeratedAnswers, normalize_to_accuracy
from robust_eval.model.generation import Generation
from robust_eval.model.local.answer_tree import Prefixes
from robust_eval.model.local.draw import answer_uniforms
from robust_eval.model.local.level_outcomes import (
    SPREAD_BEGUN,
    SPREAD_OPEN,
    SPREAD_OTHER,
    Outcomes,
    outcomes,
)
from robust_eval.model.local.output_head import rows_at_once
from robust_eval.model.local.tempered import offset_logprobs, offsets_of
from robust_eval.model.local.thinning import Kept, thin
from robust_eval.model.local.token_outcomes import next_kinds
from robust_eval.model.local.transfers import fetched, to_device
from robust_eval.model.local.vocabulary import Vocabulary
from robust_eval.model.token_texts import Ids

OPEN_IS_RIGHT = 0.95
"""An answer that is right if it ends here, and may go on, is taken to be right with this probability until it is known
("Paris" becomes "Parisian" now and then). Only the difference is left to the sample: any value is unbiased."""
PRIOR = 1.0
"""How many observations that assumption is worth in the standard error. Without it one that happened to see none of the
rare prefixes that do lead to a right answer would claim to be certain."""
RANKED = 0.5
"""The part of the nodes that goes to the likeliest prefixes, at temperatures up to RANKED_UP_TO, at which bounds can be
tight."""
RANKED_UP_TO = 1.0
PARTS = (0.125, 0.25, 0.5, 1)
"""The parts of its nodes with which a question is enumerated, one after another, until it is as precise as asked."""
STEERS_BEYOND = 0.1
"""What say a temperature that only the curve shows has in how the nodes are spent, beside one that is asked for. Each
has exp(−t) of it: the hotter, the more is left to prefixes of which hardly any becomes right."""


@dataclass
class TreeLevel:
    """The n prefixes of one length in the tree of one question, with figures at T temperatures.

    ``parents`` (n,) are rows of the level before; ``tokens`` and ``texts`` are what the prefixes consist of, ``paths``
    (n, tokens, T) the log-probabilities of their tokens. ``weight`` (n, T) is the probability of a prefix over that
    with which it was kept, ``value`` (n, T) what its subtree adds to the estimated probability of a right answer,
    ``spread`` (n,) how uncertain that was held to be. ``kept`` (n,) is the probability with which a prefix was kept,
    ``chance`` (n,) the product of its ancestors'.
    """

    parents: Ids
    tokens: list[tuple[int, ...]]
    texts: list[bytes]
    paths: Floats
    weight: Floats
    value: Floats
    spread: Floats
    kept: Floats
    chance: Floats

    @classmethod
    def root(cls, temperatures: int) -> "TreeLevel":
        """Return the prefix of no tokens."""
        ones, zeros, one = np.ones((1, temperatures)), np.zeros((1, temperatures)), np.ones(1)
        path = np.zeros((1, 0, temperatures))
        return cls(np.zeros(1, dtype=np.intp), [()], [b""], path, ones, zeros, np.zeros(1), one, one)

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True)
class Enumerated:
    """The enumerated answers to one prompt, at the temperatures of its request's enumeration."""

    answers: list[EnumeratedAnswers[int]]
    curve: Curve


@torch.inference_mode()
def enumerate_answers(
    prefixes: Prefixes,
    requests: Sequence[Request],
    prompts: Sequence[Sequence[int]],
    vocabulary: Vocabulary,
    generation: Generation,
) -> list[Enumerated]:
    """Enumerate the answers to a block of requests that differ in nothing but prompts, seeds, matchers and budgets.

    Where a precision is asked for, questions are enumerated with a small part of their nodes first, and anew with more
    as long as a standard error is above it.
    """
    found: dict[int, Enumerated] = {}
    for part in PARTS:
        left = [i for i, request in enumerate(requests) if _goes_on(request, found.get(i), part)]
        if left:
            trees = [_Tree(requests[i], vocabulary, part) for i in left]
            _grow_all(prefixes, trees, [prompts[i] for i in left], vocabulary, generation)
            found.update(zip(left, (tree.result() for tree in trees), strict=True))
    return [found[i] for i in range(len(requests))]


def _goes_on(request: Request, found: Enumerated | None, part: float) -> bool:
    """Tell whether a question is to be enumerated with this part of its nodes, after what a smaller one has found."""
    assert request.enumeration is not None
    precision = request.enumeration.precision
    if found is None:
        return precision > 0 or part == 1
    errors = found.curve.standard_error[np.isin(found.curve.temperatures, request.temperatures)]
    return bool((errors > precision).any()) and precision > 0


def _grow_all(
    prefixes: Prefixes,
    trees: Sequence["_Tree"],
    prompts: Sequence[Sequence[int]],
    vocabulary: Vocabulary,
    generation: Generation,
) -> None:
    """Grow trees level by level until no answer goes on."""
    logits = prefixes.roots(prompts)
    for step in range(trees[0].depth):
        parents: list[Ids] = []
        for part, first, end in _parts(trees, rows_at_once(len(vocabulary.ends), logits.device)):
            before = [[*prompts[i], *tokens] for i in part for tokens in trees[i].level.tokens]
            own = generation.penalized(logits[first:end], before)
            parents.append(first + _grow([trees[i] for i in part], step, own, generation))
        tokens = [tokens[-1] for tree in trees for tokens in tree.level.tokens]
        if not tokens:
            break
        logits = prefixes.children(np.concatenate(parents), np.array(tokens))


def _parts(trees: Sequence["_Tree"], rows: int) -> Iterator[tuple[list[int], int, int]]:
    """Trees, by index, whose prefixes of the level are at most ``rows`` (one tree at least), with their first row and
    their end. A tree without any is left out: all its answers have ended, as they may where few tokens are possible.
    """
    part: list[int] = []
    first = end = 0
    for index, size in enumerate([len(tree.level) for tree in trees]):
        if not size:
            continue
        if part and end + size - first > rows:
            yield part, first, end
            part, first = [], end
        part.append(index)
        end += size
    yield part, first, end


def _grow(trees: Sequence["_Tree"], step: int, logits: Tensor, generation: Generation) -> Ids:
    """Count what ends at the prefixes of a level of some trees, and choose those of the next, which become their level.

    ``logits`` (n, V) are those after the prefixes. Returns the rows (m,) of the parents of the next ones; none after
    the last token. The device is waited for twice: for what there is to choose from, and for what has been chosen.
    """
    size, temperatures = logits.shape[1], trees[0].temperatures
    for tree in trees:
        tree.read(step)
    first = np.cumsum([0, *(len(tree.level) for tree in trees)])
    kinds = [kind for tree in trees for kind in tree.kinds]
    weight = None if trees[0].last else np.concatenate([tree.level.weight * tree.steers for tree in trees])
    sure = np.concatenate([a + tree.sure() for tree, a in zip(trees, first[:-1], strict=True)])
    most = max(tree.ranked for tree in trees)
    seen, scores = outcomes(logits, kinds, weight, sure, most, temperatures, generation)
    candidates: list[tuple[Tensor, Tensor]] = []
    for tree, a, b in zip(trees, first[:-1], first[1:], strict=True):
        tree.count(seen, a, b, size)
        known = to_device(np.concatenate([tree.ending, tree.likeliest]), logits.device)
        chance = scores.new_ones(len(known), dtype=torch.float64)
        if not tree.last:
            own = scores[a:b].flatten()
            own.index_fill_(0, known[len(tree.ending) :], 0)
            thinned, kept = thin(own, tree.budget - len(tree.likeliest), tree.uniform)
            known, chance = torch.cat([known, thinned]), torch.cat([chance, kept])
        candidates.append((known + a * size, chance))
    places, chances = (torch.cat(part) for part in zip(*candidates, strict=True))
    offsets = offsets_of(logits, places // size, places % size, temperatures, generation)
    found, probability, offset, *possible = fetched(places, chances, *offsets)
    place = found.astype(np.intp)
    logprobs = offset_logprobs(offset, seen.log_total[place // size], temperatures, *(p > 0 for p in possible))
    bounds = np.cumsum([0, *(len(own) for own, _ in candidates)]).tolist()
    return np.concatenate(
        [
            a + tree.descend(place[start:stop] - a * size, probability[start:stop], logprobs[start:stop], size)
            for tree, a, (start, stop) in zip(trees, first[:-1], pairwise(bounds), strict=True)
        ]
    )


class _Tree:
    """The weighted tree of the answers to one question, level by level."""

    def __init__(self, request: Request, vocabulary: Vocabulary, part: float) -> None:
        assert request.matcher is not None
        assert request.enumeration is not None
        self.temperatures = request.enumeration.temperatures
        said = np.array([1.0 if t in request.temperatures else STEERS_BEYOND for t in self.temperatures])
        self.steers = said * np.exp(-np.array(self.temperatures))
        warmest = max(RANKED_UP_TO, request.temperatures[0])
        self._cold = np.array([t in request.temperatures and t <= warmest for t in self.temperatures])
        self._matcher = request.matcher
        self._vocabulary = vocabulary
        self.depth = request.max_new_tokens
        self._budgets = [*level_budgets(int(part * request.enumeration.nodes), self.depth - 1), 0]
        uniforms = answer_uniforms(request.seed, request.question_id, request.rewrite, 0.0, 0, request.max_new_tokens)
        self._uniforms = uniforms[:, 0]  # of the greedy answer, which needs none
        self.level = TreeLevel.root(len(self.temperatures))
        self._levels = [self.level]
        self._answers: list[EnumeratedAnswers[int]] = []
        self._lower, self._wrong = np.zeros((2, len(self.temperatures)))

    def read(self, step: int) -> None:
        """Read the prefixes of the level, after which another ``step`` is taken."""
        self.last = step == self.depth - 1
        self.budget, self.uniform = self._budgets[step], float(self._uniforms[step])
        self.ranked = int(RANKED * self.budget)
        self.kinds = [next_kinds(self._matcher, self._vocabulary, text, self.last) for text in self.level.texts]

    def sure(self) -> Ids:
        """Return the rows of the prefixes that were kept for certain, as were all of their beginnings."""
        return np.flatnonzero(self.level.kept * self.level.chance == 1)

    def count(self, seen: Outcomes, first: int, end: int, size: int) -> None:
        """Count what ends at the prefixes of the level, whose rows are those from ``first`` to ``end``.

        Places in (rows × ``size`` tokens) are chosen: the ``ending`` ones, that stand for all that end alike, and those
        of the ``likeliest`` prefixes of the next level, by their mean probability at the temperatures that are asked
        for, up to RANKED_UP_TO.
        """
        level = self.level
        right, wrong, open_ = seen.shares[first:end].transpose(1, 0, 2)
        if self.last:
            wrong = np.maximum(1 - right, 0)
        level.value += level.weight * (right + OPEN_IS_RIGHT * open_)
        probability = np.exp(level.paths.sum(axis=1))
        self._lower += (probability * right).sum(axis=0)
        self._wrong += (probability * wrong).sum(axis=0)
        self._masses = np.stack([right, wrong, OPEN_IS_RIGHT * open_], axis=1) * level.weight[:, None]
        ends = seen.ends[first:end]
        self._ending_rows, self._sides = np.nonzero(ends >= 0)
        self.ending = self._ending_rows * size + ends[self._ending_rows, self._sides]

        own = (seen.sure >= first) & (seen.sure < end)
        rows = seen.sure[own] - first
        mean = (level.weight[rows][:, None, self._cold] * np.exp(seen.logprobs[own][..., self._cold])).mean(axis=-1)
        places = rows[:, None] * size + seen.tokens[own]
        there = np.flatnonzero(seen.logprobs[own].max(axis=-1).ravel() > -np.inf)
        order = there[np.argsort(-mean.ravel()[there], kind="stable")[: self.ranked]]
        self.likeliest = places.ravel()[order]

    def descend(self, places: Ids, probability: Floats, logprobs: Floats, size: int) -> Ids:
        """Take the answers that end, and make the prefixes that were kept the level; return the rows of their parents.

        ``places`` (m,) in (rows × ``size`` tokens) are the ending ones and then all that may be kept, the latter with a
        ``probability`` (m,) that is 0 where they are not; ``logprobs`` (m, T) are those of their tokens.
        """
        ending = len(self.ending)
        self._answer(places[:ending] % size, logprobs[:ending])
        kept = Kept.of(places[ending:], probability[ending:])
        rows, tokens = np.divmod(kept.index, size)
        steps, before = logprobs[ending:][kept.place], self.level
        open_ = np.array([_holds(self.kinds[row].open, token) for row, token in zip(rows, tokens, strict=True)], bool)
        begun = np.array([_holds(self.kinds[row].begun, token) for row, token in zip(rows, tokens, strict=True)], bool)
        weight = before.weight[rows] * np.exp(steps) / kept.probability[:, None]
        raw = self._vocabulary.texts.raw
        self.level = TreeLevel(
            parents=rows,
            tokens=[(*before.tokens[row], token) for row, token in zip(rows.tolist(), tokens.tolist(), strict=True)],
            texts=[before.texts[row] + raw[token] for row, token in zip(rows.tolist(), tokens.tolist(), strict=True)],
            paths=np.concatenate([before.paths[rows], steps[:, None]], axis=1),
            weight=weight,
            value=np.where(open_[:, None], -OPEN_IS_RIGHT * weight, 0.0),  # its parent has counted it as right so often
            spread=np.where(open_, SPREAD_OPEN, np.where(begun, SPREAD_BEGUN, SPREAD_OTHER)),
            kept=kept.probability,
            chance=before.chance[rows] * before.kept[rows],
        )
        self._levels.append(self.level)
        return rows

    def _answer(self, tokens: Ids, logprobs: Floats) -> None:
        """Take the answers that end at the prefixes of the level with ``tokens`` (m,), and all that end alike."""
        level = self.level
        for row, side, token, step in zip(self._ending_rows, self._sides, tokens.tolist(), logprobs, strict=True):
            stops = _holds(self._vocabulary.ending(level.texts[row]), token)
            reason = "length" if self.last else "stop" if stops else "closed"
            path = np.vstack([level.paths[row], step])
            mass = self._masses[row, side]
            self._answers.append(EnumeratedAnswers(side != 1, mass, (*level.tokens[row], token), reason, path))

    def result(self) -> Enumerated:
        """Return the accuracy at every temperature, with its standard error and bounds, and the answers behind it."""
        variance = np.zeros(len(self.temperatures))
        for before, level in zip(self._levels[-2::-1], self._levels[:0:-1], strict=True):
            variance += _variance(level)
            np.add.at(before.value, level.parents, level.value)
        root = self._levels[0].value[0]
        lower = np.minimum(self._lower, 1)  # sums of probabilities may exceed 1 by rounding
        upper = np.maximum(1 - self._wrong, lower)
        curve = Curve(np.array(self.temperatures), root, np.sqrt(variance), lower, upper)
        return Enumerated(normalize_to_accuracy(self._answers, np.clip(root, lower, upper)), curve)


def _holds(ids: Ids, token: int) -> bool:
    """Return whether a token is among ascending ids."""
    place = int(np.searchsorted(ids, token))
    return place < len(ids) and int(ids[place]) == token


def _variance(level: TreeLevel) -> Floats:
    """Return (T,) what thinning one level adds to the variance of the estimate.

    That of Poisson sampling with the same probabilities, a little more than that of a systematic sample, and in several
    stages: terms of later ones are weighted by the probability that their ancestors were kept (Raj 1966). Where few
    prefixes carry all the weight, what is assumed of their spread counts beside what was seen.
    """
    thinned = level.kept < 1
    value, weight = level.value[thinned], level.weight[thinned]
    left_out = (level.chance * (1 - level.kept))[thinned, None]
    seen = (left_out * value**2).sum(axis=0)
    assumed = (left_out * (level.spread[thinned, None] * weight) ** 2).sum(axis=0)
    squares = (weight**2).sum(axis=0)
    effective = np.divide(weight.sum(axis=0) ** 2, squares, out=np.zeros_like(squares), where=squares > 0)
    return np.asarray((effective * seen + PRIOR * assumed) / (effective + PRIOR))


def level_budgets(nodes: int, levels: int) -> list[int]:
    """Return how many prefixes are evaluated at each level: fewer and fewer, for they weigh less and less.

    >>> level_budgets(100, 4)
    [32, 28, 23, 16]
    """
    shares = np.sqrt(np.arange(levels, 0, -1))
    return np.maximum(2, np.floor(nodes * shares / shares.sum())).astype(int).tolist() if levels else []
