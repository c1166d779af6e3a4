"""Probability of a right answer at every temperature, from one weighted tree of answers instead of draws.

The logits after a prefix serve every temperature, and so does the tree: level by level, the prefixes of the largest
weight over all temperatures are kept, the others thinned by unbiased systematic sampling, and each kept one is
evaluated once. The next-token probabilities at each prefix are summed, not drawn: over the tokens that end the answer
rightly, those that end it wrongly, and those after which it stays right, which need no further evaluation.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from robust_eval.model.base import Curve, EnumeratedAnswers, Floats, Request, normalize_to_accuracy
from robust_eval.model.generation import Generation
from robust_eval.model.local.device import fetched, rows_per_batch, sent, to_device
from robust_eval.model.local.draw import answer_uniforms, refuse_undefined
from robust_eval.model.local.level_outcomes import (
    SD_BEGUN,
    SD_OPEN,
    SD_OTHER,
    Outcomes,
    outcomes,
)
from robust_eval.model.local.prefixes import Prefixes
from robust_eval.model.local.tempered import offset_logprobs, possible_masks, tempered_logprobs, tempered_masses
from robust_eval.model.local.thinning import BLOCK, ThinnedSample, certain_and_random, systematic_shares
from robust_eval.model.local.vocabulary import NextTokenClassifier, NextTokenSets, TokenSets, Vocabulary
from robust_eval.model.token_texts import Ids, Mask

RIGHT, WRONG = 0, 1
"""Columns of ``Outcomes.shares`` for the next tokens that end an answer."""
OPEN_IS_RIGHT = 0.95
"""Prior probability that an unfinished answer that is right so far stays right ("Paris" may become "Parisian"). The
sample estimates only the difference: any value is unbiased."""
PRIOR = 1.0
"""Weight of the prior standard deviations in the standard error, in observations. Without it a sample that missed the
rare prefixes of right answers would have a standard error of 0."""
RANKED = 0.5
"""Fraction of the nodes for the likeliest prefixes at temperatures up to RANKED_UP_TO, where bounds can be tight."""
RANKED_UP_TO = 1.0
NODE_FRACTIONS = (0.125, 0.25, 0.5, 1)
"""Successive fractions of its nodes with which a question is enumerated until it reaches the requested precision."""
CURVE_ONLY_WEIGHT = 0.1
"""Weight in the allocation of nodes of a temperature that only the curve has, relative to a requested one. Each weight
is multiplied by exp(−t): hotter temperatures put more probability on prefixes that hardly ever become right."""


@dataclass
class TreeLevel:
    """Level of the trees of a block of questions: n prefixes of one length, with numbers at T temperatures.

    ``tree`` (n,), ascending, are the trees of the prefixes, ``parents`` (n,) rows of the previous level, ``tokens`` (n,
    tokens) and ``texts`` the content of the prefixes, ``paths`` (n, tokens, T) the log-probabilities of their tokens.
    ``weight`` (n, T) is the probability of a prefix divided by that of keeping it, ``value`` (n, T) the contribution of
    its subtree to the estimated probability of a right answer, ``prior_sd`` (n,) the prior standard deviation of that.
    ``keep_probability`` (n,) is the probability of keeping a prefix, ``ancestor_probability`` (n,) the product of its
    ancestors'.
    """

    tree: Ids
    parents: Ids
    tokens: Ids
    texts: list[bytes]
    paths: Floats
    weight: Floats
    value: Floats
    prior_sd: Floats
    keep_probability: Floats
    ancestor_probability: Floats

    @classmethod
    def roots(cls, trees: int, temperatures: int) -> "TreeLevel":
        """Return the level of the roots: one prefix without tokens for each tree."""
        tree, tokens, one = np.arange(trees), np.empty((trees, 0), dtype=np.intp), np.ones(trees)
        ones, zeros = np.ones((trees, temperatures)), np.zeros((trees, temperatures))
        path = np.zeros((trees, 0, temperatures))
        return cls(tree, tree, tokens, [b""] * trees, path, ones, zeros, np.zeros(trees), one, one)

    def __len__(self) -> int:
        return len(self.tree)

    def of_each_tree(self) -> Iterator[slice]:
        """Yield the rows of each tree that has prefixes at this level."""
        _, first = np.unique(self.tree, return_index=True)
        for start, stop in pairwise([*first.tolist(), len(self)]):
            yield slice(start, stop)


class _Children(NamedTuple):
    """Children of a batch of prefixes, m of them: their flat places (m,) in (rows × tokens of the padded vocabulary),
    the probability (m,) of keeping each, and the log-probabilities (m, T) of their last tokens.
    """

    places: Ids
    probability: Floats
    logprobs: Floats


class _Ended(NamedTuple):
    """Answers that end at one level, m of them, each of which represents all with the same end.

    ``tree``, ``sides`` (columns of ``Outcomes.shares``), ``masses`` (m, T), ``tokens`` (m, length), ``paths`` (m,
    length, T), and the finish reasons.
    """

    tree: Ids
    sides: Ids
    masses: Floats
    tokens: Ids
    paths: Floats
    reasons: list[str]


@dataclass(frozen=True)
class Enumerated:
    """Result of an exact tree: enumerated answers to one prompt, at the temperatures of its request's enumeration."""

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
    """Enumerate the answers to a block of requests that differ only in prompts, seeds, matchers and budgets.

    With a precision, questions are enumerated with a small fraction of their nodes first, and again with more while a
    standard error is above it.
    """
    enumerated: dict[int, Enumerated] = {}
    for fraction in NODE_FRACTIONS:
        pending = [i for i, request in enumerate(requests) if _needs_more_nodes(request, enumerated.get(i), fraction)]
        if pending:
            trees = _Trees([requests[i] for i in pending], vocabulary, generation, fraction)
            trees.grow(prefixes, [prompts[i] for i in pending])
            enumerated.update(zip(pending, trees.results(), strict=True))
    return [enumerated[i] for i in range(len(requests))]


def _needs_more_nodes(request: Request, previous: Enumerated | None, fraction: float) -> bool:
    """Return whether a question needs this fraction of its nodes, after the result with a smaller one."""
    assert request.enumeration is not None
    precision = request.enumeration.precision
    if previous is None:
        return precision > 0 or fraction == 1
    errors = previous.curve.standard_error[np.isin(previous.curve.temperatures, request.temperatures)]
    return bool((errors > precision).any()) and precision > 0


class _Trees:
    """Weighted trees of the answers to a block of questions, grown level by level."""

    def __init__(
        self, requests: Sequence[Request], vocabulary: Vocabulary, generation: Generation, fraction: float
    ) -> None:
        enumerations = [request.enumeration for request in requests if request.enumeration is not None]
        asked, self._temperatures = requests[0].temperatures, enumerations[0].temperatures
        shares = np.array([1.0 if t in asked else CURVE_ONLY_WEIGHT for t in self._temperatures])
        self._temperature_weights = shares * np.exp(-np.array(self._temperatures))
        warmest = max(RANKED_UP_TO, asked[0])
        self._cold = np.array([t in asked and t <= warmest for t in self._temperatures])
        self._classifiers = [NextTokenClassifier(r.matcher, vocabulary) for r in requests if r.matcher is not None]
        self._vocabulary, self._generation = vocabulary, generation
        self._size = -(-len(vocabulary.ends) // BLOCK) * BLOCK  # the vocabulary, filled up
        self._depth = requests[0].max_new_tokens
        nodes = [int(fraction * enumeration.nodes) for enumeration in enumerations]
        self._budgets = np.array([[*level_budgets(number, self._depth - 1), 0] for number in nodes])
        greedy = [(0.0, 0)]  # an answer that needs none
        uniforms = [answer_uniforms(r.seed, r.question_id, r.variant, greedy, self._depth) for r in requests]
        self._uniforms = np.concatenate(uniforms)[..., 0]
        self._level = TreeLevel.roots(len(requests), len(self._temperatures))
        self._levels = [self._level]
        self._ended: list[_Ended] = []
        self._lower, self._wrong = np.zeros((2, len(requests), len(self._temperatures)))

    def grow(self, prefixes: Prefixes, prompts: Sequence[Sequence[int]]) -> None:
        """Grow the trees after their prompts until all answers have ended."""
        logits = prefixes.roots(prompts)
        batch_rows = rows_per_batch(len(self._vocabulary.ends), logits.device)
        for step in range(self._depth):
            level, last = self._level, step == self._depth - 1
            sets = [
                self._classifiers[i].classify(t, last) for i, t in zip(level.tree.tolist(), level.texts, strict=True)
            ]
            children = []
            for first, end in self._batches(batch_rows):
                occurred: list[list[int]] = []
                if self._generation.repetition_penalty != 1.0:
                    pairs = zip(level.tree[first:end].tolist(), level.tokens[first:end].tolist(), strict=True)
                    occurred = [[*prompts[tree], *tokens] for tree, tokens in pairs]
                batch_logits = self._generation.penalized(logits[first:end], occurred)
                children.append(self._children(step, first, batch_logits, sets[first:end]))
            self._descend(sets, *map(np.concatenate, zip(*children, strict=True)))
            if not len(self._level):
                break
            logits = prefixes.children(self._level.parents, self._level.tokens[:, -1])

    def _batches(self, rows: int) -> Iterator[tuple[int, int]]:
        """Yield the first row and the end of batches of whole trees, with at most ``rows`` prefixes (or one tree)."""
        first = end = 0
        for of_tree in self._level.of_each_tree():
            if end > first and of_tree.stop - first > rows:
                yield first, end
                first = end
            end = of_tree.stop
        yield first, end

    def _children(self, step: int, first: int, logits: Tensor, sets: Sequence[NextTokenSets]) -> _Children:
        """Count the answers that end at a batch of prefixes, the rows from ``first``; return the kept longer prefixes.

        ``logits`` (n, V) follow the prefixes. After the last token there are no longer ones. The device is waited for
        twice: for the candidates, and for the chosen ones.
        """
        level, size, last = self._level, self._size, step == self._depth - 1
        batch = slice(first, first + len(sets))
        trees, counts = np.unique(level.tree[batch], return_counts=True)
        owner, bounds = np.repeat(np.arange(len(trees)), counts), np.cumsum([0, *counts])
        budgets, uniforms = self._budgets[trees, step], self._uniforms[trees, step]
        weight = level.weight[batch]
        certain = np.flatnonzero(level.keep_probability[batch] * level.ancestor_probability[batch] == 1)
        summary, scores = outcomes(
            logits,
            sets,
            None if last else weight * self._temperature_weights,
            certain,
            int(RANKED * budgets.max()),
            counts.tolist(),
            int(budgets.max()),
            self._temperatures,
            self._generation,
        )
        right, wrong, open_ = summary.shares.transpose(1, 0, 2)
        if last:
            wrong = np.maximum(1 - right, 0)
        level.value[batch] += weight * (right + OPEN_IS_RIGHT * open_)
        probability = np.exp(level.paths[batch].sum(axis=1))
        rightly, wrongly = probability * right, probability * wrong
        for tree, (start, stop) in zip(trees, pairwise(bounds), strict=True):
            self._lower[tree] += rightly[start:stop].sum(axis=0)
            self._wrong[tree] += wrongly[start:stop].sum(axis=0)
        rows, sides = np.nonzero(summary.ends >= 0)
        masses = np.stack([right, wrong, OPEN_IS_RIGHT * open_], axis=1)[rows, sides] * weight[rows]
        ends = summary.ends[rows, sides]

        likeliest, likeliest_scores, limits = self._likeliest(summary, weight, owner, budgets)
        draws, heavy = np.zeros(len(trees), dtype=np.intp), [likeliest]
        if not last:
            largest, at, total = summary.largest
            others = np.isin(at, likeliest, invert=True)
            for index, (start, stop) in enumerate(pairwise(limits)):
                rest, left = others[index], budgets[index] - (stop - start)
                remaining = total[index] - likeliest_scores[start:stop].sum()
                number, draws[index] = certain_and_random(largest[index, rest], remaining, left)
                heavy.append(at[index, rest][:number].astype(np.intp))
        kept = np.concatenate(heavy)
        chosen = np.concatenate([rows * size + ends, kept])
        shares = systematic_shares(uniforms, draws)
        chosen_places, removed, targets = sent(logits.device, chosen, kept, shares)
        sampled = scores.sample(removed, targets) if shares.size else ()
        places = torch.cat([chosen_places, sampled[0].flatten()]) if sampled else chosen_places
        flat_logits = torch.sub(places, places // size, alpha=size - logits.shape[1])
        flat_logits.clamp_(max=logits.numel() - 1)  # dropped candidates may lie in the padding
        masks = possible_masks(logits, flat_logits, self._temperatures, self._generation)
        place, value, *rest = fetched(places, logits.take(flat_logits), *sampled, *masks)
        row = np.minimum(place // size, len(logits) - 1).astype(np.intp)
        logprobs = offset_logprobs(
            value, summary.highest[row], summary.log_total[row], self._temperatures, rest[len(sampled) :]
        )
        random = np.zeros(shares.shape)
        if sampled:
            drawn = np.arange(shares.shape[1]) < draws[:, None]
            np.divide(rest[1] * draws[:, None], rest[2][:, None], out=random, where=drawn)
        keep_probability = np.concatenate([np.ones(len(kept)), np.minimum(random, 1).ravel()])
        ended = len(rows)
        self._end(first + rows, sides, masses, ends, logprobs[:ended], last)
        sample = ThinnedSample.of(place[ended:].astype(np.intp), keep_probability)
        return _Children(sample.index + first * size, sample.probability, logprobs[ended:][sample.place])

    def _likeliest(self, summary: Outcomes, weight: Floats, owner: Ids, budgets: Ids) -> tuple[Ids, Floats, Ids]:
        """Return the flat places of the likeliest longer prefixes of each tree, by their mean probability at the
        requested temperatures up to RANKED_UP_TO, their scores, and where those of each tree begin, and end.

        ``owner`` (n,) are the trees of the prefixes in the batch.
        """
        rows = summary.certain
        mean = (weight[rows][:, None, self._cold] * np.exp(summary.logprobs[..., self._cold])).mean(axis=-1)
        possible = np.flatnonzero(summary.logprobs.max(axis=-1).ravel() > -np.inf)
        trees = np.repeat(owner[rows], mean.shape[1])[possible]  # ascending
        order = possible[np.lexsort((-mean.ravel()[possible], trees))]
        rank = np.arange(len(trees)) - np.searchsorted(trees, trees)
        ranked = rank < (RANKED * budgets).astype(np.intp)[trees]
        order, trees = order[ranked], trees[ranked]
        places = rows[:, None] * self._size + summary.tokens
        limits = np.searchsorted(trees, np.arange(len(budgets) + 1))
        return places.ravel()[order], summary.scores.ravel()[order], limits

    def _end(self, rows: Ids, sides: Ids, masses: Floats, tokens: Ids, logprobs: Floats, last: bool) -> None:
        """Record the answers that end with ``tokens`` (m,) at prefixes of the level, and all with the same end."""
        level = self._level
        reasons = ["length" if last else "stop" if side == WRONG else "closed" for side in sides.tolist()]
        for place in np.flatnonzero(sides == RIGHT) if not last else ():
            if _holds(self._vocabulary.ending(level.texts[rows[place]]), tokens[place]):
                reasons[place] = "stop"
        whole = np.concatenate([level.tokens[rows], tokens[:, None]], axis=1)
        paths = np.concatenate([level.paths[rows], logprobs[:, None]], axis=1)
        self._ended.append(_Ended(level.tree[rows], sides, masses, whole, paths, reasons))

    def _descend(self, sets: Sequence[NextTokenSets], places: Ids, probability: Floats, steps: Floats) -> None:
        """Make the kept longer prefixes the current level; see :class:`_Children`."""
        rows, tokens = np.divmod(places, self._size)
        before = self._level
        open_, begun = (_held(TokenSets.of_rows(sets, name), places, self._size) for name in ("open", "begun"))
        weight = before.weight[rows] * np.exp(steps) / probability[:, None]
        self._level = TreeLevel(
            tree=before.tree[rows],
            parents=rows,
            tokens=np.concatenate([before.tokens[rows], tokens[:, None]], axis=1),
            texts=[
                self._classifiers[tree].extended(before.texts[row], token)
                for tree, row, token in zip(before.tree[rows].tolist(), rows.tolist(), tokens.tolist(), strict=True)
            ],
            paths=np.concatenate([before.paths[rows], steps[:, None]], axis=1),
            weight=weight,
            value=np.where(open_[:, None], -OPEN_IS_RIGHT * weight, 0.0),  # its parent has counted it as right so often
            prior_sd=np.where(open_, SD_OPEN, np.where(begun, SD_BEGUN, SD_OTHER)),
            keep_probability=probability,
            ancestor_probability=before.ancestor_probability[rows] * before.keep_probability[rows],
        )
        self._levels.append(self._level)

    def results(self) -> Iterator[Enumerated]:
        """Yield, for each tree, the accuracy at every temperature, with standard error and bounds, and the answers."""
        variance = np.zeros_like(self._lower)
        for before, level in zip(self._levels[-2::-1], self._levels[:0:-1], strict=True):
            variance += _variances(level, len(variance))
            np.add.at(before.value, level.parents, level.value)
        trees = np.concatenate([ended.tree for ended in self._ended])
        right = np.concatenate([ended.sides != WRONG for ended in self._ended])
        masses = np.concatenate([ended.masses for ended in self._ended])
        tokens = [tuple(ids) for ended in self._ended for ids in ended.tokens.tolist()]
        reasons = [reason for ended in self._ended for reason in ended.reasons]
        paths = [path for ended in self._ended for path in ended.paths]
        order = np.lexsort((~right, trees))  # right answers of each tree first
        starts = np.searchsorted(trees[order], np.arange(len(variance) + 1))
        lower = np.minimum(self._lower, 1)  # sums of probabilities may exceed 1 by rounding
        upper = np.maximum(1 - self._wrong, lower)
        for tree, root in enumerate(self._levels[0].value):
            bounds = lower[tree], upper[tree]
            curve = Curve(np.array(self._temperatures), root, np.sqrt(variance[tree]), *bounds)
            of_tree = order[starts[tree] : starts[tree + 1]]
            weights = normalize_to_accuracy(right[of_tree], masses[of_tree], np.clip(root, *bounds))
            fields = ([column[row] for row in of_tree.tolist()] for column in (tokens, reasons, paths))
            yield Enumerated([*map(EnumeratedAnswers, right[of_tree].tolist(), weights, *fields)], curve)


def _held(sets: TokenSets, places: Ids, size: int) -> Mask:
    """Return which of the places (m,) in (rows × ``size`` tokens) are in the sets of ascending ids of their rows."""
    held = np.append(sets.members * size + sets.tokens, len(sets) * size)
    return np.asarray(held[np.searchsorted(held, places)] == places)


def _holds(ids: Ids, token: int) -> bool:
    """Return whether ascending token ids contain a token."""
    place = int(np.searchsorted(ids, token))
    return place < len(ids) and int(ids[place]) == token


def _variances(level: TreeLevel, trees: int) -> Floats:
    """Return (trees, T) the variance components of the estimates from thinning one level of the trees.

    They are those of multi-stage Poisson sampling with the same probabilities, slightly above those of a systematic
    sample: terms of later stages are weighted by the probability that their ancestors were kept (Raj 1966). If few
    prefixes of a tree carry all the weight, their prior variance is averaged with the observed one.
    """
    thinned = np.flatnonzero(level.keep_probability < 1)
    tree, value, weight = level.tree[thinned], level.value[thinned], level.weight[thinned]
    first = np.flatnonzero(np.diff(tree, prepend=-1))
    left_out = (level.ancestor_probability * (1 - level.keep_probability))[thinned, None]
    terms = left_out * value**2, left_out * (level.prior_sd[thinned, None] * weight) ** 2, weight, weight**2
    observed, assumed, total, squares = np.zeros((4, trees, weight.shape[1]))
    for sums, values in zip((observed, assumed, total, squares), terms, strict=True):
        sums[tree[first]] = np.add.reduceat(values, first) if len(first) else 0
    effective = np.divide(total**2, squares, out=np.zeros_like(squares), where=squares > 0)
    return np.asarray((effective * observed + PRIOR * assumed) / (effective + PRIOR))


def level_budgets(nodes: int, levels: int) -> list[int]:
    """Return the number of prefixes that an exact tree evaluates at each level; later ones weigh less, and get fewer.

    >>> level_budgets(100, 4)
    [32, 28, 23, 16]
    """
    shares = np.sqrt(np.arange(levels, 0, -1))
    return np.maximum(2, np.floor(nodes * shares / shares.sum())).astype(int).tolist() if levels else []


@torch.inference_mode()
def enumerate_choices(
    prefixes: Prefixes,
    requests: Sequence[Request],
    prompts: Sequence[Sequence[int]],
    vocabulary: Vocabulary,
    generation: Generation,
) -> list[Enumerated]:
    """Enumerate the choices of multiple-choice questions, with their probabilities at every temperature, from one row
    of logits each.

    Each choice is an answer of one token. All other tokens together are one more answer, represented by the likeliest.
    """
    assert requests[0].enumeration is not None
    temperatures = requests[0].enumeration.temperatures
    sets = [request.enumeration.choices.tokens(vocabulary.texts) for request in requests]  # type: ignore[union-attr]
    max_choices = max(map(len, sets))
    padded = [ids for choices in sets for ids in choices + [np.empty(0, dtype=np.intp)] * (max_choices - len(choices))]
    logits = generation.penalized(prefixes.roots(prompts)[:], [list(prompt) for prompt in prompts])
    log_total, all_shares = tempered_masses(logits, temperatures, TokenSets.of(padded), generation).arrays()
    refuse_undefined(log_total)
    trees = []
    for row, (request, choices) in enumerate(zip(requests, sets, strict=True)):
        other_tokens = np.setdiff1d(np.arange(len(vocabulary.ends)), np.concatenate(choices))
        shares = all_shares[row, : len(choices)]
        answers: list[EnumeratedAnswers[int]] = []
        correct = request.enumeration.choices.correct  # type: ignore[union-attr]
        for index, ids in enumerate([*choices, other_tokens]):
            share = shares[index] if index < len(choices) else np.maximum(1 - shares.sum(axis=0), 0)
            token = ids[int(logits[row, to_device(ids, logits.device)].argmax())]
            logprobs = tempered_logprobs(
                logits, np.array([row]), np.array([token]), log_total, temperatures, generation
            )
            answers.append(EnumeratedAnswers(index == correct, share, (int(token),), "closed", logprobs))
        accuracy = shares[correct] if correct is not None else np.full(len(temperatures), np.nan)
        exact = np.zeros(len(temperatures))
        curve = Curve(np.array(temperatures), accuracy, exact, accuracy, accuracy)
        trees.append(Enumerated(answers, curve))
    return trees
