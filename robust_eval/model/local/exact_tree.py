"""Probability of a right answer at every temperature, from one weighted tree of answers instead of draws.

The logits after a prefix serve every temperature, and so does the tree: level by level, the prefixes of the largest
weight over all temperatures are kept, the others thinned by unbiased systematic sampling, and each kept one is
evaluated once. The next-token probabilities at each prefix are summed, not drawn: over the tokens that end the answer
rightly, those that end it wrongly, and those after which it stays right, which need no further evaluation.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from robust_eval.model.base import Curve, EnumeratedAnswers, Floats, Request, normalize_to_accuracy
from robust_eval.model.generation import Generation
from robust_eval.model.local.answer_tree import Prefixes
from robust_eval.model.local.device import fetched, sent, to_device
from robust_eval.model.local.draw import answer_uniforms
from robust_eval.model.local.level_outcomes import (
    SD_BEGUN,
    SD_OPEN,
    SD_OTHER,
    Outcomes,
    outcomes,
)
from robust_eval.model.local.prefixes import rows_per_batch
from robust_eval.model.local.tempered import offset_logprobs, possible_masks, tempered_logprobs, tempered_masses
from robust_eval.model.local.thinning import BLOCK, ThinnedSample, certain_and_random, systematic_shares
from robust_eval.model.local.vocabulary import NextTokenClassifier, Vocabulary
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
    """The n prefixes of one length in the tree of one question, with numbers at T temperatures.

    ``parents`` (n,) are rows of the previous level, ``tokens`` and ``texts`` the content of the prefixes, ``paths`` (n,
    tokens, T) the log-probabilities of their tokens. ``weight`` (n, T) is the probability of a prefix divided by that
    of keeping it, ``value`` (n, T) the contribution of its subtree to the estimated probability of a right answer,
    ``prior_sd`` (n,) the prior standard deviation of that. ``keep_probability`` (n,) is the probability of keeping a
    prefix, ``ancestor_probability`` (n,) the product of its ancestors'.
    """

    parents: Ids
    tokens: list[tuple[int, ...]]
    texts: list[bytes]
    paths: Floats
    weight: Floats
    value: Floats
    prior_sd: Floats
    keep_probability: Floats
    ancestor_probability: Floats

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
    """Enumerated answers to one prompt, at the temperatures of its request's enumeration."""

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

    With a precision, questions are enumerated with a small fraction of their nodes first, and again with more while a
    standard error is above it.
    """
    enumerated: dict[int, Enumerated] = {}
    for fraction in NODE_FRACTIONS:
        pending = [i for i, request in enumerate(requests) if _needs_more_nodes(request, enumerated.get(i), fraction)]
        if pending:
            trees = [_Tree(requests[i], vocabulary, fraction) for i in pending]
            _grow_all(prefixes, trees, [prompts[i] for i in pending], vocabulary, generation)
            enumerated.update(zip(pending, (tree.result() for tree in trees), strict=True))
    return [enumerated[i] for i in range(len(requests))]


def _needs_more_nodes(request: Request, previous: Enumerated | None, fraction: float) -> bool:
    """Return whether to enumerate a question with this fraction of its nodes, after the result of a smaller one."""
    assert request.enumeration is not None
    precision = request.enumeration.precision
    if previous is None:
        return precision > 0 or fraction == 1
    errors = previous.curve.standard_error[np.isin(previous.curve.temperatures, request.temperatures)]
    return bool((errors > precision).any()) and precision > 0


def _grow_all(
    prefixes: Prefixes,
    trees: Sequence["_Tree"],
    prompts: Sequence[Sequence[int]],
    vocabulary: Vocabulary,
    generation: Generation,
) -> None:
    """Grow trees level by level until all answers have ended."""
    logits = prefixes.roots(prompts)
    for step in range(trees[0].depth):
        parents: list[Ids] = []
        for batch, first, end in _batches(trees, rows_per_batch(len(vocabulary.ends), logits.device)):
            before = [[*prompts[i], *tokens] for i in batch for tokens in trees[i].level.tokens]
            batch_logits = generation.penalized(logits[first:end], before)
            parents.append(first + _grow([trees[i] for i in batch], step, batch_logits, generation))
        tokens = [tokens[-1] for tree in trees for tokens in tree.level.tokens]
        if not tokens:
            break
        logits = prefixes.children(np.concatenate(parents), np.array(tokens))


def _batches(trees: Sequence["_Tree"], rows: int) -> Iterator[tuple[list[int], int, int]]:
    """Yield batches of tree indices with at most ``rows`` prefixes of the level (or one tree), their first row and end.

    A tree without prefixes is skipped: all its answers have ended, as they may if few tokens are possible.
    """
    batch: list[int] = []
    first = end = 0
    for index, size in enumerate([len(tree.level) for tree in trees]):
        if not size:
            continue
        if batch and end + size - first > rows:
            yield batch, first, end
            batch, first = [], end
        batch.append(index)
        end += size
    yield batch, first, end


def _grow(trees: Sequence["_Tree"], step: int, logits: Tensor, generation: Generation) -> Ids:
    """Count the answers that end at the level of some trees, and descend to the next level.

    ``logits`` (n, V) follow the prefixes. Returns the rows (m,) of the parents of the next prefixes; none after the
    last token. The device is waited for twice: for the candidates, and for the chosen ones.
    """
    temperatures = trees[0].temperatures
    for tree in trees:
        tree.read(step)
    first = np.cumsum([0, *(len(tree.level) for tree in trees)])
    token_sets = [token_set for tree in trees for token_set in tree.token_sets]
    weight = None if trees[0].last else np.concatenate([tree.level.weight * tree.temperature_weights for tree in trees])
    certain = np.concatenate([a + tree.certain_rows() for tree, a in zip(trees, first[:-1], strict=True)])
    ranked, budget = (max(numbers) for numbers in zip(*((tree.ranked, tree.budget) for tree in trees), strict=True))
    sizes = [len(tree.level) for tree in trees]
    summary, scores = outcomes(logits, token_sets, weight, certain, ranked, sizes, budget, temperatures, generation)
    size = -(-logits.shape[1] // BLOCK) * BLOCK  # the vocabulary, filled up
    for index, (tree, a, b) in enumerate(zip(trees, first[:-1], first[1:], strict=True)):
        tree.count(summary, index, a, b, size)
    chosen = [np.concatenate([tree.ending, tree.likeliest, tree.certain]) for tree in trees]
    removed = [np.concatenate([tree.likeliest, tree.certain]) for tree in trees]
    draws = max(tree.draws for tree in trees)
    shares = np.zeros((len(trees), draws))
    for share, tree in zip(shares, trees, strict=True):
        share[: tree.draws] = systematic_shares(tree.uniform, tree.draws)
    flat, expanded = (
        np.concatenate([ids + a * size for ids, a in zip(part, first[:-1], strict=True)]) for part in (chosen, removed)
    )
    chosen_places, removed_places, targets = sent(logits.device, flat, expanded, shares)
    sampled = scores.sample(removed_places, targets) if draws else ()
    places = torch.cat([chosen_places, sampled[0].flatten()]) if sampled else chosen_places
    flat_logits = torch.sub(places, places // size, alpha=size - logits.shape[1])
    flat_logits.clamp_(max=logits.numel() - 1)  # dropped candidates may lie in the padding
    masks = possible_masks(logits, flat_logits, temperatures, generation)
    place, value, *rest = fetched(places, logits.take(flat_logits), *sampled, *masks)
    rows = np.minimum(place // size, len(logits) - 1).astype(np.intp)
    logprobs = offset_logprobs(
        value, summary.highest[rows], summary.log_total[rows], temperatures, rest[len(sampled) :]
    )
    bounds = np.cumsum([0, *map(len, chosen)])
    parents = []
    for index, (tree, a, start, stop) in enumerate(zip(trees, first[:-1], bounds[:-1], bounds[1:], strict=True)):
        drawn = bounds[-1] + index * draws
        of_tree = np.concatenate([np.arange(start, stop), np.arange(drawn, drawn + tree.draws)])
        score, total = (part[index] for part in rest[1:3]) if sampled else (np.empty(0), 1.0)
        random = np.minimum(score[: tree.draws] * tree.draws / total, 1)
        keep_probability = np.concatenate([np.ones(stop - start), random])
        ids = place[of_tree].astype(np.intp) - a * size
        parents.append(a + tree.descend(ids, keep_probability, logprobs[of_tree], size))
    return np.concatenate(parents)


class _Tree:
    """Weighted tree of the answers to one question, grown level by level."""

    def __init__(self, request: Request, vocabulary: Vocabulary, fraction: float) -> None:
        assert request.matcher is not None
        assert request.enumeration is not None
        self.temperatures = request.enumeration.temperatures
        shares = np.array([1.0 if t in request.temperatures else CURVE_ONLY_WEIGHT for t in self.temperatures])
        self.temperature_weights = shares * np.exp(-np.array(self.temperatures))
        warmest = max(RANKED_UP_TO, request.temperatures[0])
        self._cold = np.array([t in request.temperatures and t <= warmest for t in self.temperatures])
        self._classifier = NextTokenClassifier(request.matcher, vocabulary)
        self._vocabulary = vocabulary
        self.depth = request.max_new_tokens
        self._budgets = [*level_budgets(int(fraction * request.enumeration.nodes), self.depth - 1), 0]
        greedy = [(0.0, 0)]  # an answer that needs none
        uniforms = answer_uniforms(request.seed, request.question_id, request.rewrite, greedy, request.max_new_tokens)
        self._uniforms = uniforms[0, :, 0]
        self.level = TreeLevel.root(len(self.temperatures))
        self._levels = [self.level]
        self._answers: list[EnumeratedAnswers[int]] = []
        self._lower, self._wrong = np.zeros((2, len(self.temperatures)))

    def read(self, step: int) -> None:
        """Classify the next tokens of the level before ``step``, and set its budget."""
        self.last = step == self.depth - 1
        self.budget, self.uniform = self._budgets[step], float(self._uniforms[step])
        self.ranked = int(RANKED * self.budget)
        self.token_sets = [self._classifier.classify(text, self.last) for text in self.level.texts]

    def certain_rows(self) -> Ids:
        """Return the rows of the prefixes that were kept with probability 1, as were all of their ancestors."""
        return np.flatnonzero(self.level.keep_probability * self.level.ancestor_probability == 1)

    def count(self, summary: Outcomes, index: int, first: int, end: int, size: int) -> None:
        """Count the answers that end at the prefixes of the level, in the rows from ``first`` to ``end``.

        Choose places in (rows × ``size`` tokens): the ``ending`` ones, each of which represents all answers with the
        same end, those of the ``likeliest`` prefixes of the next level, by their mean probability at the requested
        temperatures up to RANKED_UP_TO, and the ``certain`` ones of the others; ``draws`` more are left to chance.
        The tree is that with the ``index`` in ``summary.largest``.
        """
        level = self.level
        right, wrong, open_ = summary.shares[first:end].transpose(1, 0, 2)
        if self.last:
            wrong = np.maximum(1 - right, 0)
        level.value += level.weight * (right + OPEN_IS_RIGHT * open_)
        probability = np.exp(level.paths.sum(axis=1))
        self._lower += (probability * right).sum(axis=0)
        self._wrong += (probability * wrong).sum(axis=0)
        self._masses = np.stack([right, wrong, OPEN_IS_RIGHT * open_], axis=1) * level.weight[:, None]
        ends = summary.ends[first:end]
        self._ending_rows, self._sides = np.nonzero(ends >= 0)
        self.ending = self._ending_rows * size + ends[self._ending_rows, self._sides]

        in_tree = (summary.certain >= first) & (summary.certain < end)
        rows = summary.certain[in_tree] - first
        mean = (level.weight[rows][:, None, self._cold] * np.exp(summary.logprobs[in_tree][..., self._cold])).mean(
            axis=-1
        )
        places = rows[:, None] * size + summary.tokens[in_tree]
        possible = np.flatnonzero(summary.logprobs[in_tree].max(axis=-1).ravel() > -np.inf)
        order = possible[np.argsort(-mean.ravel()[possible], kind="stable")[: self.ranked]]
        self.likeliest = places.ravel()[order]
        self.certain, self.draws = self.likeliest[:0], 0
        if not self.last:
            largest, at, total = (part[index] for part in summary.largest)
            at = at.astype(np.intp) - first * size
            known = set(self.likeliest.tolist())
            rest = [place for place, index in enumerate(at.tolist()) if index not in known]
            total = total - summary.scores[in_tree].ravel()[order].sum()
            certain, self.draws = certain_and_random(largest[rest], total, self.budget - len(self.likeliest))
            self.certain = at[rest[:certain]]

    def descend(self, places: Ids, probability: Floats, logprobs: Floats, size: int) -> Ids:
        """Record the answers that end, and make the kept prefixes the level; return the rows of their parents.

        ``places`` (m,) in (rows × ``size`` tokens) are the ending ones, then the candidates, each with the
        ``probability`` (m,) of keeping it, 0 if it is dropped; ``logprobs`` (m, T) are those of their tokens.
        """
        ending = len(self.ending)
        self._answer(places[:ending] % size, logprobs[:ending])
        sample = ThinnedSample.of(places[ending:], probability[ending:])
        rows, tokens = np.divmod(sample.index, size)
        steps, before = logprobs[ending:][sample.place], self.level
        open_, begun = (
            _held([getattr(token_set, name) for token_set in self.token_sets], sample.index, size)
            for name in ("open", "begun")
        )
        weight = before.weight[rows] * np.exp(steps) / sample.probability[:, None]
        raw = self._vocabulary.texts.raw
        self.level = TreeLevel(
            parents=rows,
            tokens=[(*before.tokens[row], token) for row, token in zip(rows.tolist(), tokens.tolist(), strict=True)],
            texts=[before.texts[row] + raw[token] for row, token in zip(rows.tolist(), tokens.tolist(), strict=True)],
            paths=np.concatenate([before.paths[rows], steps[:, None]], axis=1),
            weight=weight,
            value=np.where(open_[:, None], -OPEN_IS_RIGHT * weight, 0.0),  # its parent has counted it as right so often
            prior_sd=np.where(open_, SD_OPEN, np.where(begun, SD_BEGUN, SD_OTHER)),
            keep_probability=sample.probability,
            ancestor_probability=before.ancestor_probability[rows] * before.keep_probability[rows],
        )
        self._levels.append(self.level)
        return rows

    def _answer(self, tokens: Ids, logprobs: Floats) -> None:
        """Record the answers that end at the prefixes of the level with ``tokens`` (m,), and all with the same end."""
        level, rows = self.level, self._ending_rows
        paths = np.concatenate([level.paths[rows], logprobs[:, None]], axis=1)
        masses = self._masses[rows, self._sides]
        columns = rows.tolist(), self._sides.tolist(), tokens.tolist(), masses, paths
        for row, side, token, mass, path in zip(*columns, strict=True):
            stops = side == WRONG or (side == RIGHT and _holds(self._vocabulary.ending(level.texts[row]), token))
            reason = "length" if self.last else "stop" if stops else "closed"
            self._answers.append(EnumeratedAnswers(side != WRONG, mass, (*level.tokens[row], token), reason, path))

    def result(self) -> Enumerated:
        """Return the accuracy at every temperature, with its standard error and bounds, and the answers."""
        variance = np.zeros(len(self.temperatures))
        for before, level in zip(self._levels[-2::-1], self._levels[:0:-1], strict=True):
            variance += _variance(level)
            np.add.at(before.value, level.parents, level.value)
        root = self._levels[0].value[0]
        lower = np.minimum(self._lower, 1)  # sums of probabilities may exceed 1 by rounding
        upper = np.maximum(1 - self._wrong, lower)
        curve = Curve(np.array(self.temperatures), root, np.sqrt(variance), lower, upper)
        return Enumerated(normalize_to_accuracy(self._answers, np.clip(root, lower, upper)), curve)


def _held(sets: Sequence[Ids], places: Ids, size: int) -> Mask:
    """Return which of places (m,) in (rows × ``size`` tokens) are in the sets of ascending ids of their rows."""
    starts = np.repeat(np.arange(len(sets)) * size, [len(ids) for ids in sets])
    held = np.append(starts + np.concatenate(sets), len(sets) * size)
    return np.asarray(held[np.searchsorted(held, places)] == places)


def _holds(ids: Ids, token: int) -> bool:
    """Return whether ascending ids contain a token."""
    place = int(np.searchsorted(ids, token))
    return place < len(ids) and int(ids[place]) == token


def _variance(level: TreeLevel) -> Floats:
    """Return (T,) the variance component of the estimate from thinning one level.

    It is that of multi-stage Poisson sampling with the same probabilities, slightly above that of a systematic sample:
    terms of later stages are weighted by the probability that their ancestors were kept (Raj 1966). If few prefixes
    carry all the weight, their prior variance is averaged with the observed one.
    """
    thinned = level.keep_probability < 1
    value, weight = level.value[thinned], level.weight[thinned]
    left_out = (level.ancestor_probability * (1 - level.keep_probability))[thinned, None]
    observed = (left_out * value**2).sum(axis=0)
    assumed = (left_out * (level.prior_sd[thinned, None] * weight) ** 2).sum(axis=0)
    squares = (weight**2).sum(axis=0)
    effective = np.divide(weight.sum(axis=0) ** 2, squares, out=np.zeros_like(squares), where=squares > 0)
    return np.asarray((effective * observed + PRIOR * assumed) / (effective + PRIOR))


def level_budgets(nodes: int, levels: int) -> list[int]:
    """Return the number of prefixes to evaluate at each level; later levels have less weight, and fewer prefixes.

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
    """Return the probability of each choice of multiple-choice questions at every temperature, from one row of logits.

    Each choice is an answer of one token. All other tokens together are one more answer, represented by the likeliest.
    """
    assert requests[0].enumeration is not None
    temperatures = requests[0].enumeration.temperatures
    sets = [request.enumeration.choices.tokens(vocabulary.texts) for request in requests]  # type: ignore[union-attr]
    max_choices = max(map(len, sets))
    padded = [choices + [np.empty(0, dtype=np.intp)] * (max_choices - len(choices)) for choices in sets]
    logits = generation.penalized(prefixes.roots(prompts)[:], [list(prompt) for prompt in prompts])
    log_total, all_shares = tempered_masses(logits, temperatures, padded, generation).arrays()
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
            answers.append(EnumeratedAnswers(index == correct, share, (int(token),), "length", logprobs))
        accuracy = shares[correct] if correct is not None else np.full(len(temperatures), np.nan)
        exact = np.zeros(len(temperatures))
        curve = Curve(np.array(temperatures), accuracy, exact, accuracy, accuracy)
        trees.append(Enumerated(answers, curve))
    return trees
