"""The probability of a right answer at every temperature, from one weighted tree of answers instead of draws.

The logits after a prefix serve every temperature, and so does the tree: level by level, the prefixes that weigh most
over all temperatures are kept, the others thinned by unbiased systematic sampling, and what is kept is evaluated once.
The next-token probabilities at each prefix are then summed, not drawn: over the tokens that end the answer rightly,
those that end it wrongly, and those after which it is right whatever follows, so that nothing more need be evaluated.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from robust_eval.model.base import Curve, Floats, Request
from robust_eval.model.enumerated import Weighted, balanced
from robust_eval.model.generation import Generation
from robust_eval.model.local.answer_tree import Prefixes
from robust_eval.model.local.draw import answer_uniforms
from robust_eval.model.local.output_head import rows_at_once
from robust_eval.model.local.tempered import tempered_logprobs, tempered_masses
from robust_eval.model.local.thinning import thin
from robust_eval.model.local.token_outcomes import Kinds, next_kinds
from robust_eval.model.local.vocabulary import Vocabulary
from robust_eval.model.token_texts import Ids

OPEN_IS_RIGHT = 0.95
"""An answer that is right if it ends here, and may go on, is taken to be right with this probability until it is known
("Paris" becomes "Parisian" now and then). Only the difference is left to the sample: any value is unbiased."""
SPREAD_OPEN, SPREAD_BEGUN, SPREAD_OTHER = 0.12, 0.8, 0.15
"""How uncertain it is whether an answer ends rightly, as a standard deviation about what it is taken for: where it is
right already but may go on, where it has begun with a right answer, and elsewhere. They decide how the nodes are spent,
and what is assumed of the few that no sample says anything of."""
PRIOR = 1.0
"""How many observations that assumption is worth in the standard error. Without it one that happened to see none of the
rare prefixes that do lead to a right answer would claim to be certain."""
CERTIFIED_UP_TO, CERTIFIED_LOW, CERTIFIED_ALL = 0.8, 0.5, 0.25
"""Parts of the nodes that may serve the bounds, at temperatures up to this, at which they can be tight, and at all;
they serve the estimate as well."""
STEERS_BEYOND = 0.1
"""What say a temperature that only the curve shows has in how the nodes are spent; one that is asked for has 1."""


@dataclass(eq=False)
class Node:
    """A prefix of the answers to one question, with figures at each of T temperatures, all (T,).

    ``logprobs`` (tokens, T) are those of its tokens, ``weight`` is its probability over that with which it was kept.
    ``value`` is what its subtree adds to the estimated probability of a right answer, ``spread`` how uncertain that was
    held to be. ``kept`` is the probability with which the node was kept, ``chance`` the product of its ancestors'.
    What follows ``certified`` ones enters the bounds.
    """

    parent: "Node | None"
    tokens: tuple[int, ...]
    text: bytes
    logprobs: Floats
    weight: Floats
    value: Floats
    spread: float = 0.0
    kept: float = 1.0
    chance: float = 1.0
    certified: bool = True


@dataclass(frozen=True)
class Answers(Weighted):
    """All answers that begin with the same prefix and are right (or wrong) after one token more.

    ``tokens`` are those of the likeliest, which stands for all of them, ``logprobs`` (tokens, T) their
    log-probabilities.
    """

    tokens: tuple[int, ...]
    finish_reason: str
    logprobs: Floats


@dataclass(frozen=True)
class Enumerated:
    """The enumerated answers to one prompt, at the temperatures of its request's enumeration."""

    answers: list[Answers]
    curve: Curve


@torch.inference_mode()
def enumerate_answers(
    prefixes: Prefixes,
    requests: Sequence[Request],
    prompts: Sequence[Sequence[int]],
    vocabulary: Vocabulary,
    generation: Generation,
) -> list[Enumerated]:
    """Enumerate the answers to a block of requests that differ in nothing but prompts, seeds, matchers and budgets."""
    trees = [_Tree(request, vocabulary) for request in requests]
    level = prefixes.roots(prompts)
    for step in range(requests[0].max_new_tokens):
        parents: list[Ids] = []
        for part, first, end in _parts(trees, rows_at_once(len(vocabulary.ends), level.device)):
            before = [[*prompts[i], *node.tokens] for i in part for node in trees[i].level]
            logits = generation.penalized(level[first:end], before)
            bounds = np.cumsum([0, *(len(trees[i].level) for i in part)]).tolist()
            for i, (a, b) in zip(part, itertools.pairwise(bounds), strict=True):
                parents.append(first + a + trees[i].grow(step, logits[a:b], generation))
        tokens = [node.tokens[-1] for tree in trees for node in tree.level]
        if not tokens:
            break
        level = prefixes.children(np.concatenate(parents), np.array(tokens))
    return [tree.result() for tree in trees]


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


class _Tree:
    """The weighted tree of the answers to one question, level by level."""

    def __init__(self, request: Request, vocabulary: Vocabulary) -> None:
        assert request.matcher is not None
        assert request.enumeration is not None
        self.temperatures = request.enumeration.temperatures
        self.steers = [1.0 if t in request.temperatures else STEERS_BEYOND for t in self.temperatures]
        self.matcher = request.matcher
        self.vocabulary = vocabulary
        self._depth = request.max_new_tokens
        self._budget = level_budgets(request.enumeration.nodes, self._depth - 1)
        uniforms = answer_uniforms(request.seed, request.question_id, request.rewrite, 0.0, 0, request.max_new_tokens)
        self._uniforms = uniforms[:, 0]  # of the greedy answer, which needs none
        ones, zeros = np.ones(len(self.temperatures)), np.zeros(len(self.temperatures))
        self.level = [Node(None, (), b"", np.zeros((0, len(ones))), weight=ones, value=zeros)]
        self._levels = [self.level]
        self._answers: list[Answers] = []
        self._lower, self._wrong = zeros.copy(), zeros.copy()
        self._kinds: list[Kinds] = []
        self._log_total = np.empty((0, len(ones)))

    def grow(self, step: int, logits: Tensor, generation: Generation) -> Ids:
        """Count what ends at each prefix of the level and choose those of the next, which becomes the tree's level.

        ``logits`` (n, V) are those after the level's prefixes. Returns the rows (m,) of the parents of the next ones;
        none after the last token.
        """
        last = step == self._depth - 1
        self._kinds = [next_kinds(self.matcher, self.vocabulary, node.text, last) for node in self.level]
        sets = [(kind.right, kind.wrong, kind.open) for kind in self._kinds]
        if last:
            self._log_total, shares = tempered_masses(logits, self.temperatures, sets, generation).arrays()
            self._count(logits, shares, generation, last)
            self.level = []
            return np.empty(0, dtype=np.intp)
        weight = torch.from_numpy(np.stack([node.weight for node in self.level])).to(logits.device)
        scores = torch.zeros_like(logits)

        def add_scores(start: int, index: int, mass: Tensor, total: Tensor) -> None:
            factor = self.steers[index] * weight[start : start + len(mass), index] / total
            weighted = mass * factor.to(mass.dtype)[:, None]
            scores[start : start + len(mass)].addcmul_(weighted, weighted)

        self._log_total, shares = tempered_masses(logits, self.temperatures, sets, generation, add_scores).arrays()
        self._count(logits, shares, generation, last)
        scores.sqrt_().mul_(SPREAD_OTHER)
        for row, kind in enumerate(self._kinds):
            for ids, factor in (
                (kind.begun, SPREAD_BEGUN / SPREAD_OTHER),
                (kind.open, SPREAD_OPEN / SPREAD_OTHER),
                (kind.right, 0),
                (kind.wrong, 0),
            ):
                scores[row, torch.from_numpy(ids).to(logits.device)] *= factor
        return self._descend(step, logits, scores, generation)

    def _count(self, logits: Tensor, shares: Floats, generation: Generation, last: bool) -> None:
        """Count what ends at each prefix of the level; ``shares`` (n, 3, T) are the probabilities of its kinds."""
        likeliest = [_likeliest(row, kind, last) for row, kind in zip(logits, self._kinds, strict=True)]
        pairs = [(row, token) for row, tokens in enumerate(likeliest) for token in tokens if token is not None]
        rows, tokens = np.array(pairs, dtype=np.intp).reshape(-1, 2).T
        logprobs = iter(tempered_logprobs(logits, rows, tokens, self._log_total, self.temperatures, generation))
        for node, share, chosen in zip(self.level, shares, likeliest, strict=True):
            right, wrong, open_ = share
            if last:
                wrong = np.maximum(1 - right, 0)
            node.value = node.value + node.weight * (right + OPEN_IS_RIGHT * open_)
            if node.certified:
                self._lower += node.weight * right
                self._wrong += node.weight * wrong
            parts = ((right, True), (wrong, False), (OPEN_IS_RIGHT * open_, True))
            for token, (mass, is_right) in zip(chosen, parts, strict=True):
                if token is not None:
                    reason = (
                        "length" if last else "stop" if _holds(self.vocabulary.ending(node.text), token) else "closed"
                    )
                    path = np.vstack([node.logprobs, next(logprobs)])
                    self._answers.append(Answers(is_right, node.weight * mass, (*node.tokens, token), reason, path))

    def _descend(self, step: int, logits: Tensor, scores: Tensor, generation: Generation) -> Ids:
        """Choose the next level's prefixes by their ``scores`` (n, V): how much it matters to evaluate each."""
        budget = self._budget[step]
        certified = self._certified(budget, logits, scores, generation)
        scores.view(-1)[torch.from_numpy(certified).to(scores.device)] = 0
        kept = thin(scores.flatten(), budget - len(certified), float(self._uniforms[step]))
        probability = dict.fromkeys(certified.tolist(), 1.0)
        probability |= dict(zip(kept.index.tolist(), kept.probability.tolist(), strict=True))
        places = np.array(sorted(probability), dtype=np.intp)
        rows, tokens = np.divmod(places, logits.shape[1])
        logprobs = tempered_logprobs(logits, rows, tokens, self._log_total, self.temperatures, generation)
        sure = set(certified.tolist())
        self.level = [
            self._child(row, token, logprob, probability[place], place in sure)
            for place, row, token, logprob in zip(
                places.tolist(), rows.tolist(), tokens.tolist(), logprobs, strict=True
            )
        ]
        self._levels.append(self.level)
        return rows

    def _child(self, row: int, token: int, logprob: Floats, kept: float, certified: bool) -> Node:
        parent, kinds = self.level[row], self._kinds[row]
        weight = parent.weight * np.exp(logprob) / kept
        value, spread = np.zeros_like(weight), SPREAD_OTHER
        if _holds(kinds.open, token):
            value, spread = -OPEN_IS_RIGHT * weight, SPREAD_OPEN  # its parent has counted it as right so often
        elif _holds(kinds.begun, token):
            spread = SPREAD_BEGUN
        return Node(
            parent=parent,
            tokens=(*parent.tokens, token),
            text=parent.text + self.vocabulary.texts.raw[token],
            logprobs=np.vstack([parent.logprobs, logprob]),
            weight=weight,
            value=value,
            spread=spread,
            kept=kept,
            chance=parent.chance * parent.kept,
            certified=certified,
        )

    def _certified(self, budget: int, logits: Tensor, scores: Tensor, generation: Generation) -> Ids:
        """Return places in (rows × V) of the prefixes that are kept so that the bounds rest on them.

        These are all whose probability, averaged over the temperatures up to CERTIFIED_UP_TO or over all of them,
        reaches a threshold that depends on nothing but the budget: a larger one certifies the same prefixes and more,
        so that the bounds can only become tighter. They exclude one another, so their number is limited as well: a
        part CERTIFIED_LOW of the budget for the former, CERTIFIED_ALL for the latter.
        """
        temperatures = np.array(self.temperatures)
        low = temperatures <= max(CERTIFIED_UP_TO, temperatures[0])
        low_threshold, threshold = (1 / max(0.5, part * budget) for part in (CERTIFIED_LOW, CERTIFIED_ALL))
        places: list[Ids] = []
        for row, node in enumerate(self.level):
            if node.certified:
                tokens = logits[row].topk(min(budget, logits.shape[1])).indices.cpu().numpy()
                rows = np.full(len(tokens), row)
                logprobs = tempered_logprobs(logits, rows, tokens, self._log_total, self.temperatures, generation)
                probability = node.weight * np.exp(logprobs)
                reached = probability[:, low].mean(axis=1) >= low_threshold
                reached |= probability.mean(axis=1) >= threshold
                goes_on = (scores[row, torch.from_numpy(tokens).to(scores.device)] > 0).cpu().numpy()
                places.append(row * logits.shape[1] + tokens[reached & goes_on])
        return np.concatenate([np.empty(0, dtype=np.intp), *places])

    def result(self) -> Enumerated:
        """Return the accuracy at every temperature, with its standard error and bounds, and the answers behind it."""
        variance = np.zeros(len(self.temperatures))
        for level in reversed(self._levels[1:]):
            variance += _variance([node for node in level if node.kept < 1], len(self.temperatures))
            for node in level:
                assert node.parent is not None
                node.parent.value = node.parent.value + node.value
        (root,) = self._levels[0]
        lower = np.minimum(self._lower, 1)  # sums of probabilities may exceed 1 by rounding
        upper = np.maximum(1 - self._wrong, lower)
        curve = Curve(np.array(self.temperatures), root.value, np.sqrt(variance), lower, upper)
        return Enumerated(balanced(self._answers, np.clip(root.value, lower, upper)), curve)


def _holds(ids: Ids, token: int) -> bool:
    """Return whether a token is among ascending ids."""
    place = int(np.searchsorted(ids, token))
    return place < len(ids) and int(ids[place]) == token


def _likeliest(logits: Tensor, kinds: Kinds, last: bool) -> tuple[int | None, int | None, int | None]:
    """Return the most probable of the right, the wrong and the open tokens, where there are any."""

    def of(ids: Ids) -> int | None:
        if not len(ids):
            return None
        return int(ids[int(logits[torch.from_numpy(ids).to(logits.device)].argmax())])

    wrong = of(kinds.wrong)
    if last:
        others = logits.clone()
        others[torch.from_numpy(kinds.right).to(logits.device)] = -torch.inf
        wrong = int(others.argmax())
    return of(kinds.right), wrong, of(kinds.open)


def _variance(thinned: Sequence[Node], temperatures: int) -> Floats:
    """Return (T,) what thinning one level adds to the variance of the estimate.

    That of Poisson sampling with the same probabilities, a little more than that of a systematic sample, and in several
    stages: terms of later ones are weighted by the probability that their ancestors were kept (Raj 1966). Where few
    prefixes carry all the weight, what is assumed of their spread counts beside what was seen.
    """
    if not thinned:
        return np.zeros(temperatures)
    value, weight = (np.stack([getattr(node, name) for node in thinned]) for name in ("value", "weight"))
    spread, chance = (np.array([[getattr(node, name)] for node in thinned]) for name in ("spread", "chance"))
    left_out = chance * (1 - np.array([[node.kept] for node in thinned]))
    seen = (left_out * value**2).sum(axis=0)
    assumed = (left_out * (spread * weight) ** 2).sum(axis=0)
    squares = (weight**2).sum(axis=0)
    effective = np.divide(weight.sum(axis=0) ** 2, squares, out=np.zeros(temperatures), where=squares > 0)
    return np.asarray((effective * seen + PRIOR * assumed) / (effective + PRIOR))


def level_budgets(nodes: int, levels: int) -> list[int]:
    """Return how many prefixes are evaluated at each level: fewer and fewer, for they weigh less and less.

    >>> level_budgets(100, 4)
    [32, 28, 23, 16]
    """
    shares = np.sqrt(np.arange(levels, 0, -1))
    return np.maximum(2, np.floor(nodes * shares / shares.sum())).astype(int).tolist() if levels else []
