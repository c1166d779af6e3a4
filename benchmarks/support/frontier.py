"""The prefixes of answers that best-first searches and beam searches expand, evaluated level by level for all of them.

A search that always expands the likeliest prefix (BEAVER, arXiv 2512.05439, Max-μ) expands in falling order of
probability, for no prefix is likelier than its beginning: its first n are the n likeliest of all. A prefix that has n
likelier ones among those that are no longer is none of them, whatever follows. So one level after the other can be
evaluated at once, and every search, at every temperature and of every length, is read off the same prefixes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robust_eval.model.base import Floats, Request
from robust_eval.model.generation import Generation
from robust_eval.model.local.device import rows_per_batch
from robust_eval.model.local.prefixes import Prefixes
from robust_eval.model.local.tempered import tempered_logprobs, tempered_masses
from robust_eval.model.local.vocabulary import BEGUN, RIGHT, WRONG, NextTokenClassifier, OutcomeTable, Vocabulary

Booleans = NDArray[np.bool_]
Path = tuple[int, ...]


@dataclass(frozen=True)
class Searches:
    """What is searched for: the ``most`` likeliest prefixes by each score, and beams of each of the ``widths``.

    ``scores`` (searches, T) weigh the probabilities of a prefix at T ``temperatures``.
    """

    temperatures: Sequence[float]
    scores: Floats
    most: int
    widths: Sequence[int]


@dataclass(frozen=True)
class Expanded:
    """The n prefixes that were evaluated, parents before children, with figures at T temperatures.

    ``probability``, ``right`` and ``wrong`` (n, T) are the probabilities that an answer begins so, and is then right,
    or wrong, after one token more; one after which it is right whatever follows counts as right. ``beams`` (n, widths,
    T) tells which prefixes a beam expands.
    """

    paths: list[Path]
    probability: Floats
    right: Floats
    wrong: Floats
    beams: Booleans

    def best(self, score: Floats, count: int) -> NDArray[np.intp]:
        """The first ``count`` prefixes that a best-first search by these weights (T,) expands."""
        return np.argsort(-(self.probability @ score), kind="stable")[:count]

    def bounds(self, expanded: NDArray[np.intp]) -> tuple[Floats, Floats]:
        """Lower and upper bounds (T,) on the probability of a right answer, once these prefixes are expanded."""
        return self.right[expanded].sum(axis=0), 1 - self.wrong[expanded].sum(axis=0)

    def beam_bounds(self) -> Floats:
        """The lower bounds (widths, T) of beams: all that ends rightly after a prefix of theirs."""
        return np.einsum("nt,nwt->wt", self.right, self.beams)


@torch.inference_mode()
def expanded(
    prefixes: Prefixes,
    request: Request,
    prompt: Sequence[int],
    vocabulary: Vocabulary,
    generation: Generation,
    searches: Searches,
) -> Expanded:
    """Evaluate what the searches expand of the answers to one request."""
    count = len(searches.temperatures)
    paths: list[Path] = [()]
    texts = [b""]
    probability = np.ones((1, count))
    beams = np.ones((1, len(searches.widths), count), dtype=bool)
    levels: list[Expanded] = []
    logits = prefixes.roots([prompt])
    for step in range(request.max_new_tokens):
        last = step == request.max_new_tokens - 1
        right, wrong = np.empty((2, len(paths), count))
        found: list[tuple[NDArray[np.intp], NDArray[np.intp], Floats]] = []
        size = rows_per_batch(len(vocabulary.ends), logits.device)
        for first in range(0, len(paths), size):
            part = slice(first, first + size)
            raw = generation.penalized(logits[part], [[*prompt, *path] for path in paths[part]])
            right[part], wrong[part], (rows, tokens, logprobs) = _read(
                raw, texts[part], request, vocabulary, generation, searches, last
            )
            found.append((rows + first, tokens, logprobs))
        levels.append(Expanded(paths, probability, right * probability, wrong * probability, beams))
        rows, tokens, logprobs = (np.concatenate(each) for each in zip(*found, strict=True))
        following = probability[rows] * np.exp(logprobs)
        known = np.concatenate([level.probability for level in levels])
        marks = _beams(following, beams[rows], searches.widths)
        chosen = np.flatnonzero(marks.any(axis=(1, 2)) | _likeliest(following, known, searches))
        if not len(chosen):
            break
        rows, tokens, probability, beams = rows[chosen], tokens[chosen], following[chosen], marks[chosen]
        paths = [(*paths[row], token) for row, token in zip(rows.tolist(), tokens.tolist(), strict=True)]
        texts = [texts[row] + vocabulary.texts.raw[path[-1]] for row, path in zip(rows.tolist(), paths, strict=True)]
        logits = prefixes.children(rows, tokens)
    names = ("probability", "right", "wrong", "beams")
    together = {name: np.concatenate([getattr(level, name) for level in levels]) for name in names}
    return Expanded([path for level in levels for path in level.paths], **together)


def _read(
    logits: Tensor,
    texts: Sequence[bytes],
    request: Request,
    vocabulary: Vocabulary,
    generation: Generation,
    searches: Searches,
    last: bool,
) -> tuple[Floats, Floats, tuple[NDArray[np.intp], NDArray[np.intp], Floats]]:
    """The probabilities (n, T) of ending rightly and wrongly after n prefixes, and what may go on: rows, tokens and
    log-probabilities (m, T) of the likeliest that go on. Nothing does after the last token.
    """
    assert request.matcher is not None
    classifier = NextTokenClassifier(request.matcher, vocabulary)
    outcomes = classifier.classify(texts, last)
    table = OutcomeTable.of(outcomes, BEGUN)
    log_total, shares, _ = tempered_masses(logits, searches.temperatures, table, generation).arrays()
    right, wrong = shares[:, RIGHT - 1], shares[:, WRONG - 1]
    if last:
        nothing = np.empty(0, dtype=np.intp)
        return right, 1 - right, (nothing, nothing, np.empty((0, len(searches.temperatures))))
    goes_on = logits.clone()
    for row, outcome in enumerate(outcomes):
        ends = np.flatnonzero(np.isin(outcome.all(), (RIGHT, WRONG)))
        goes_on[row, torch.from_numpy(ends).to(logits.device)] = -torch.inf
    likeliest = goes_on.topk(min(max(searches.most, *searches.widths), goes_on.shape[1]))
    place, rank = torch.nonzero(likeliest.values > -torch.inf, as_tuple=True)
    rows, tokens = place.cpu().numpy(), likeliest.indices[place, rank].cpu().numpy()
    logprobs = tempered_logprobs(logits, rows, tokens, log_total, searches.temperatures, generation)
    return right, wrong, (rows, tokens, logprobs)


def _likeliest(following: Floats, known: Floats, searches: Searches) -> Booleans:
    """Which of the next prefixes (m,) are among the likeliest of all so far, by one of the scores."""
    chosen = np.zeros(len(following), dtype=bool)
    for weights in searches.scores:
        score = following @ weights
        together = np.concatenate([known @ weights, score])
        enough = np.partition(together, -searches.most)[-searches.most] if len(together) > searches.most else 0
        chosen |= (score >= enough) & (score > 0)
    return chosen


def _beams(following: Floats, eligible: Booleans, widths: Sequence[int]) -> Booleans:
    """Which of the next prefixes (m, widths, T) each beam keeps: the likeliest after those that it kept before."""
    kept = np.zeros(eligible.shape, dtype=bool)
    for w, t in np.ndindex(*eligible.shape[1:]):
        score = np.where(eligible[:, w, t], following[:, t], 0)
        best = np.argsort(-score, kind="stable")[: widths[w]]
        kept[best, w, t] = score[best] > 0
    return kept
