"""Probability of a right answer at every temperature, from one weighted tree of answers instead of draws.

The logits after a prefix serve every temperature, and so does the tree: level by level, the prefixes of the largest
weight over all temperatures are kept, the others thinned by unbiased systematic sampling, and each kept one is
evaluated once. The next-token probabilities at each prefix are summed, not drawn: over the tokens that end the answer
rightly, those that end it wrongly, and those after which it stays right, which need no further evaluation.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from robust_eval.model.base import Curve, Floats, Request, normalize_to_accuracy
from robust_eval.model.generation import Generation
from robust_eval.model.local.device import fetched, rows_per_batch, sent
from robust_eval.model.local.draw import answer_uniforms, refuse_undefined
from robust_eval.model.local.level_outcomes import ENDS, SDS, Outcomes, outcomes
from robust_eval.model.local.prefixes import Prefixes
from robust_eval.model.local.sampled_tree import CLOSED, FINISH_REASONS, LENGTH, STOP
from robust_eval.model.local.tempered import offset_logprobs, possible_masks, tempered_logprobs, tempered_masses
from robust_eval.model.local.thinning import BLOCK, ThinnedSample, certain_and_random, systematic_shares
from robust_eval.model.local.vocabulary import (
    BEGUN,
    OPEN,
    OTHER,
    RIGHT,
    WRONG,
    NextTokenClassifier,
    OutcomeTable,
    Vocabulary,
)
from robust_eval.model.token_texts import Ids, NextTokenOutcomes, OutcomeCodes

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
    tokens) and ``texts`` the content of the prefixes, ``steps`` (n, T) the log-probabilities of their last tokens,
    ``logprob`` (n, T) those of all. ``weight`` (n, T) is the probability of a prefix divided by that of keeping it,
    ``value`` (n, T) the contribution of its subtree to the estimated probability of a right answer, ``prior_sd`` (n,)
    the prior standard deviation of that.
    ``keep_probability`` (n,) is the probability of keeping a prefix, ``ancestor_probability`` (n,) the product of its
    ancestors'.
    """

    tree: Ids
    parents: Ids
    tokens: Ids
    texts: list[bytes]
    steps: Floats
    logprob: Floats
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
        texts, value = [b""] * trees, zeros.copy()
        return cls(tree, tree, tokens, texts, zeros, zeros, ones, value, np.zeros(trees), one, one)

    def __len__(self) -> int:
        return len(self.tree)


class _Children(NamedTuple):
    """Children of a batch of prefixes, m of them: their flat places (m,) in (rows × tokens of the padded vocabulary),
    ``outcomes`` (m,) of their last tokens, the probability (m,) of keeping each, and the log-probabilities (m, T) of
    their last tokens.
    """

    places: Ids
    outcomes: OutcomeCodes
    probability: Floats
    logprobs: Floats


class _Ended(NamedTuple):
    """Answers that end at a batch of prefixes, m of them, each of which represents all with the same end.

    The prefixes have ``depth`` tokens, and are ``rows`` (m,) of their level. ``outcomes`` (m,), ``masses`` (m, T),
    ``tokens`` (m,) and ``steps`` (m, T) are those of the last token, and ``finish`` (m,) places in ``FINISH_REASONS``.
    """

    depth: int
    rows: Ids
    outcomes: OutcomeCodes
    masses: Floats
    tokens: Ids
    steps: Floats
    finish: Ids


@dataclass(frozen=True)
class Enumerated:
    """Enumerated answers to one prompt, n of them, and the accuracy curve at the temperatures of its enumeration.

    Each represents all answers with a common prefix that are right, or wrong, after one more token. ``weights`` (n, T)
    are their total probabilities at the T temperatures of the request, at least one of which is not 0. ``trials`` (n,)
    are the answers' numbers. ``tokens`` are those of the likeliest one, ``logprobs`` their log-probabilities, a list
    for temperature 1, and one for each temperature of the request.
    """

    curve: Curve
    trials: Ids
    weights: Floats
    tokens: list[tuple[int, ...]]
    logprobs: list[list[list[float]]]
    finish_reasons: list[str]


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
        self._columns = _columns(requests[0])
        shares = np.array([1.0 if t in asked else CURVE_ONLY_WEIGHT for t in self._temperatures])
        self._temperature_weights = shares * np.exp(-np.array(self._temperatures))
        warmest = max(RANKED_UP_TO, asked[0])
        self._cold = np.flatnonzero([t in asked and t <= warmest for t in self._temperatures])
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
            classes = (self._classifiers[tree].classify(level.texts[of], last) for tree, of in _runs(level.tree))
            of_prefixes = [*chain.from_iterable(classes)]
            children = []
            for first, end in self._batches(batch_rows):
                occurred: list[list[int]] = []
                if self._generation.repetition_penalty != 1.0:
                    pairs = zip(level.tree[first:end].tolist(), level.tokens[first:end].tolist(), strict=True)
                    occurred = [[*prompts[tree], *tokens] for tree, tokens in pairs]
                batch_logits = self._generation.penalized(logits[first:end], occurred)
                children.append(
                    self._children(step, first, batch_logits, OutcomeTable.of(of_prefixes[first:end], BEGUN))
                )
            self._descend(_Children(*map(np.concatenate, zip(*children, strict=True))))
            if not len(self._level):
                break
            logits = prefixes.children(self._level.parents, self._level.tokens[:, -1])

    def _batches(self, rows: int) -> Iterator[tuple[int, int]]:
        """Yield the first row and the end of batches of whole trees, with at most ``rows`` prefixes (or one tree)."""
        first = end = 0
        for _, of_tree in _runs(self._level.tree):
            if end > first and of_tree.stop - first > rows:
                yield first, end
                first = end
            end = of_tree.stop
        yield first, end

    def _children(self, step: int, first: int, logits: Tensor, table: OutcomeTable) -> _Children:
        """Count the answers that end at a batch of prefixes, the rows from ``first``; return the kept longer prefixes.

        ``logits`` (n, V) follow the prefixes. After the last token there are no longer ones. The device is waited for
        twice: for the candidates, and for the chosen ones.
        """
        level, size, last = self._level, self._size, step == self._depth - 1
        batch = slice(first, first + len(logits))
        trees, starts, counts = np.unique(level.tree[batch], return_index=True, return_counts=True)
        budgets, uniforms = self._budgets[trees, step], self._uniforms[trees, step]
        weight = level.weight[batch]
        certain = np.flatnonzero(level.keep_probability[batch] * level.ancestor_probability[batch] == 1)
        summary, scores = outcomes(
            logits,
            table,
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
        probability = np.exp(level.logprob[batch])
        self._lower[trees] += np.add.reduceat(probability * right, starts)
        self._wrong[trees] += np.add.reduceat(probability * wrong, starts)
        rows, columns = np.nonzero(summary.ends >= 0)
        masses = np.stack([right, wrong, OPEN_IS_RIGHT * open_], axis=1)[rows, columns] * weight[rows]
        ends, end_outcomes = summary.ends[rows, columns], np.array(ENDS, dtype=np.uint8)[columns]

        likeliest, likeliest_scores, limits = self._likeliest(
            summary, weight, np.repeat(np.arange(len(trees)), counts), budgets
        )
        draws, kept = np.zeros(len(trees), dtype=np.intp), likeliest
        if not last:
            largest, at, total = summary.largest
            left = budgets - np.diff(limits)
            likeliest_total = np.array([likeliest_scores[start:stop].sum() for start, stop in pairwise(limits)])
            is_heavy, draws = certain_and_random(largest, np.isin(at, likeliest), total - likeliest_total, left)
            kept = np.concatenate([likeliest, at[is_heavy].astype(np.intp)])
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
        finish = self._finish(first + rows, end_outcomes, ends, last)
        self._ended.append(_Ended(step, first + rows, end_outcomes, masses, ends, logprobs[:ended], finish))
        sample = ThinnedSample.of(place[ended:].astype(np.intp), keep_probability)
        kept_outcomes = table.at(*np.divmod(sample.index, size))
        return _Children(sample.index + first * size, kept_outcomes, sample.probability, logprobs[ended:][sample.place])

    def _likeliest(self, summary: Outcomes, weight: Floats, owner: Ids, budgets: Ids) -> tuple[Ids, Floats, Ids]:
        """Return the flat places of the likeliest longer prefixes of each tree, by their mean probability at the
        requested temperatures up to RANKED_UP_TO, their scores, and where those of each tree begin, and end.

        ``owner`` (n,) are the trees of the prefixes in the batch.
        """
        rows, cold = summary.certain, self._cold
        row = np.repeat(rows, summary.tokens.shape[1])
        logits, temperatures = summary.logits.ravel(), [self._temperatures[column] for column in cold]
        cut = [mask[:, cold] for mask in summary.cut]
        logprobs = offset_logprobs(logits, summary.highest[row], summary.log_total[:, cold][row], temperatures, cut)
        mean = (weight[:, cold][row] * np.exp(logprobs)).mean(axis=-1)
        possible = logits > -np.inf
        for mask in summary.cut:
            possible &= mask.any(axis=-1)
        places = np.flatnonzero(possible)
        bounds = np.searchsorted(owner[row[places]], np.arange(len(budgets) + 1))  # the owners ascend
        of_trees = [places[start:stop] for start, stop in pairwise(bounds.tolist())]
        counts = (RANKED * budgets).astype(np.intp).tolist()
        ranked = [of[np.argsort(-mean[of], kind="stable")[:n]] for of, n in zip(of_trees, counts, strict=True)]
        order, limits = np.concatenate(ranked), np.cumsum([0, *map(len, ranked)])
        return row[order] * self._size + summary.tokens.ravel()[order], summary.scores.ravel()[order], limits

    def _finish(self, rows: Ids, outcomes: OutcomeCodes, tokens: Ids, last: bool) -> Ids:
        """Return the finish (m,) of answers that end with ``tokens`` (m,) after ``rows`` (m,) of the level."""
        if last:
            return np.full(len(rows), LENGTH)
        finish = np.where(outcomes == WRONG, STOP, CLOSED)
        for place in np.flatnonzero(outcomes == RIGHT):
            if self._vocabulary.is_end(self._level.texts[rows[place]], tokens[place]):
                finish[place] = STOP
        return finish

    def _descend(self, children: _Children) -> None:
        """Make the kept longer prefixes the current level."""
        places, outcomes, probability, steps = children
        rows, tokens = np.divmod(places, self._size)
        before = self._level
        weight = before.weight[rows] * np.exp(steps) / probability[:, None]
        shorter, ids = [*map(before.texts.__getitem__, rows.tolist())], tokens.tolist()
        tree = before.tree[rows]
        texts = (self._classifiers[number].extended(shorter[of], ids[of]) for number, of in _runs(tree))
        self._level = TreeLevel(
            tree=tree,
            parents=rows,
            tokens=np.concatenate([before.tokens[rows], tokens[:, None]], axis=1),
            texts=[*chain.from_iterable(texts)],
            steps=steps,
            logprob=before.logprob[rows] + steps,
            weight=weight,
            # its parent has already counted this share of an open one as right
            value=np.where((outcomes == OPEN)[:, None], -OPEN_IS_RIGHT * weight, 0.0),
            prior_sd=SDS[outcomes],
            keep_probability=probability,
            ancestor_probability=before.ancestor_probability[rows] * before.keep_probability[rows],
        )
        self._levels.append(self._level)

    def results(self) -> list[Enumerated]:
        """Return, for each tree, the accuracy at every temperature, with standard error and bounds, and the answers."""
        variance = np.zeros_like(self._lower)
        for before, level in zip(self._levels[-2::-1], self._levels[:0:-1], strict=True):
            variance += _variances(level, len(variance))
            np.add.at(before.value, level.parents, level.value)
        lower = np.minimum(self._lower, 1)  # sums of probabilities may exceed 1 by rounding
        upper = np.maximum(1 - self._wrong, lower)
        roots = self._levels[0].value

        trees = np.concatenate([self._levels[ended.depth].tree[ended.rows] for ended in self._ended])
        right = np.concatenate([ended.outcomes != WRONG for ended in self._ended])
        masses = np.concatenate([ended.masses for ended in self._ended])
        order = np.lexsort((~right, trees))  # right answers of each tree first
        trees, right = trees[order], right[order]
        weights = normalize_to_accuracy(right, masses[order], np.clip(roots, lower, upper), trees)[:, self._columns[1:]]
        answers = np.flatnonzero(weights.any(axis=1))
        tokens, logprobs, reasons = self._likeliest_answers(order[answers])
        trials = answers - np.searchsorted(trees, trees)[answers]
        bounds = np.searchsorted(trees[answers], np.arange(len(roots) + 1))
        temperatures = np.array(self._temperatures)
        return [
            Enumerated(
                Curve(temperatures, roots[tree], np.sqrt(variance[tree]), lower[tree], upper[tree]),
                trials[start:stop],
                weights[answers[start:stop]],
                tokens[start:stop],
                logprobs[start:stop],
                reasons[start:stop],
            )
            for tree, (start, stop) in enumerate(pairwise(bounds))
        ]

    def _likeliest_answers(self, answers: Ids) -> tuple[list[tuple[int, ...]], list[list[list[float]]], list[str]]:
        """Return tokens, log-probabilities and finish reasons of ended ``answers``; see :class:`Enumerated`."""
        found: dict[int, tuple[tuple[int, ...], list[list[float]], str]] = {}
        first = 0
        for ended in self._ended:
            of_batch = np.sort(answers[(answers >= first) & (answers < first + len(ended.rows))])
            places = of_batch - first
            rows, steps = ended.rows[places], [ended.steps[places][:, self._columns]]
            tokens = np.concatenate([self._levels[ended.depth].tokens[rows], ended.tokens[places, None]], axis=1)
            for level in self._levels[ended.depth : 0 : -1]:
                steps.append(level.steps[rows][:, self._columns])
                rows = level.parents[rows]
            paths = np.stack(steps[::-1], axis=-1).tolist()
            reasons = [FINISH_REASONS[finish] for finish in ended.finish[places].tolist()]
            found.update(
                zip(of_batch.tolist(), zip(map(tuple, tokens.tolist()), paths, reasons, strict=True), strict=True)
            )
            first += len(ended.rows)
        in_order = [found[answer] for answer in answers.tolist()]
        return [each[0] for each in in_order], [each[1] for each in in_order], [each[2] for each in in_order]


def _runs(trees: Ids) -> Iterator[tuple[int, slice]]:
    """Yield each tree of an ascending array, and the slice of its rows."""
    numbers, first = np.unique(trees, return_index=True)
    for tree, (start, stop) in zip(numbers.tolist(), pairwise([*first.tolist(), len(trees)]), strict=True):
        yield tree, slice(start, stop)


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


def _columns(request: Request) -> list[int]:
    """Return the columns of temperature 1 and of a request's temperatures among those of its enumeration."""
    assert request.enumeration is not None
    return [*map(request.enumeration.temperatures.index, (1.0, *request.temperatures))]


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
    none = np.zeros(len(vocabulary.ends), dtype=np.uint8)
    outcomes = [
        NextTokenOutcomes.of(none, {token: 1 + choice for choice, ids in enumerate(choices) for token in ids.tolist()})
        for choices in sets
    ]
    logits = generation.penalized(prefixes.roots(prompts)[:], [list(prompt) for prompt in prompts])
    table = OutcomeTable.of(outcomes, max(map(len, sets)))
    log_total, all_shares, likeliest = tempered_masses(logits, temperatures, table, generation, OTHER).arrays()
    refuse_undefined(log_total)
    trees = []
    for row, (request, choices) in enumerate(zip(requests, sets, strict=True)):
        columns = _columns(request)
        shares = all_shares[row, : len(choices)]
        correct = request.enumeration.choices.correct  # type: ignore[union-attr]
        accuracy = shares[correct] if correct is not None else np.full(len(temperatures), np.nan)
        exact = np.zeros(len(temperatures))
        curve = Curve(np.array(temperatures), accuracy, exact, accuracy, accuracy)
        weights = np.concatenate([shares, np.maximum(1 - shares.sum(axis=0, keepdims=True), 0)])[:, columns[1:]]
        of_trials = likeliest[row, np.append(np.arange(len(choices)) + 1, OTHER)]
        trials = np.flatnonzero(weights.any(axis=1) & (of_trials >= 0))  # by rounding, what is impossible may have some
        tokens = of_trials[trials]
        rows = np.full(len(tokens), row)
        logprobs = tempered_logprobs(logits, rows, tokens, log_total, temperatures, generation)[:, columns, None]
        answers: list[tuple[int, ...]] = [(token,) for token in tokens.tolist()]
        trees.append(Enumerated(curve, trials, weights[trials], answers, logprobs.tolist(), ["closed"] * len(tokens)))
    return trees
