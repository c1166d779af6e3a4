"""Aggregator by clusters of sentence embeddings for free text, and by letters for multiple choice.

Cho & Watson, "Measuring Robustness via Automated Crowdsourcing of Question Perturbations and Answers"
(docs/methods.md, §2).
"""

import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from robust_eval.aggregator.base import Aggregator, with_votes
from robust_eval.answer import ABSTENTION, rows, with_columns
from robust_eval.error import UserError
from robust_eval.model.local.sentences import Sentences, Vectors, fit_of_answers
from robust_eval.normalization import normalize, numbers_differ
from robust_eval.question import Question
from robust_eval.runtime.parallel import run_parts

log = logging.getLogger(__name__)

_QUALIFYING = frozenset({"and", "but", "neither", "never", "no", "nor", "not", "or", "than"})
"""Words whose addition changes an answer: "not Paris", "gold or silver", "more than 2"."""
_YEAR = re.compile(r"\d{4}")
_CANNOT_LINK = 1e9
"""Distance that keeps two answers out of one cluster with any other members: linkage averages over pairs."""
_NOTHING = "none: no vote needed one"
_BATCH = 256
"""Number of questions in a batch, which takes about half a second."""


@dataclass
class Clusters(Aggregator):
    """Aggregator by clusters (aggregator=clusters): agglomerative, average linkage, over the distinct normalised forms
    of a question's answers.
    """

    model: str
    """Sentence-embedding model: a folder, a hub id, or embedded:PACKAGE/FOLDER from the package index."""
    threshold: float = 0.2
    """Mean cosine distance below which two clusters are merged. Chosen by reading clusters of answers;
    ``benchmarks/clusters.py`` measures its effect."""
    cross_encoder: str | None = None
    """Cross-encoder that ranks the answers of the winning clusters by their fit to the question: a folder or a hub id,
    such as cross-encoder/ms-marco-MiniLM-L6-v2; null, or one that cannot be loaded: the sentence-embedding model ranks
    them."""

    def __post_init__(self) -> None:
        self._sentences = Sentences(self.model)
        self._ranked_by = _NOTHING
        if not self.model:
            raise ValueError("model must name a sentence-embedding model")
        if self.cross_encoder == "":
            raise ValueError("cross_encoder must name a cross-encoder, or be null")
        if not 0 <= self.threshold <= 2:
            raise ValueError(f"threshold must be between 0 and 2, not {self.threshold}")

    def aggregate(self, questions: Sequence[Question], graded: pa.Table) -> pa.Table:
        """Aggregate by clusters; see :class:`robust_eval.aggregator.base.Aggregator`.

        The label of a cluster is its most frequent normalised form. Answers are ranked by the cross-encoder, or by
        their cosine to the question. Letters have no rank.
        """
        sentences = self._sentences
        free = {question.id for question in questions if not question.choices}
        forms: dict[str, Counter[str]] = {}
        for question_id, label in rows(graded, "question_id", "label"):
            if question_id in free and label not in (None, ABSTENTION):
                forms.setdefault(question_id, Counter())[label] += 1
        sentences.precompute(form for counts in forms.values() if len(counts) > 1 for form in counts)
        texts = {question.id: question.text for question in questions}
        several = [
            Forms(question_id, texts[question_id], counts, sentences.each(list(counts)))
            for question_id, counts in forms.items()
            if len(counts) > 1
        ]
        batches = [several[start : start + _BATCH] for start in range(0, len(several), _BATCH)]
        names: dict[str, dict[str, str]] = {}
        for batch_names in run_parts("clusters", clustered, self.threshold, batches):
            names |= batch_names
        labels = [
            names.get(question_id, {}).get(label, label) for question_id, label in rows(graded, "question_id", "label")
        ]
        relabelled = with_columns(graded, {"label": labels})

        def rank(pairs: Sequence[tuple[Question, str]]) -> Sequence[float]:
            free_texts = [(question.text, text) for question, text in pairs if not question.choices]
            fit = iter(self._fit(free_texts, sentences) if free_texts else ())
            return [0.0 if question.choices else next(fit) for question, _ in pairs]

        return with_votes(questions, relabelled, rank)

    def _fit(self, pairs: Sequence[tuple[str, str]], sentences: Sentences) -> Sequence[float]:
        """Return the fit of each answer to its question, by the cross-encoder or else the sentence-embedding model."""
        by_sentences = f"sentence-embedding model {self.model}"
        if self.cross_encoder is not None and self._ranked_by != by_sentences:  # warn only once of a failure
            try:
                fit = fit_of_answers(self.cross_encoder, pairs)
                self._ranked_by = f"cross-encoder {self.cross_encoder}"
                return fit
            except UserError as problem:
                log.warning("%s; the sentence-embedding model ranks the answers instead", problem)
        self._ranked_by = by_sentences
        sentences.precompute(text for pair in pairs for text in pair)
        return [float(np.dot(*sentences.embed(pair))) for pair in pairs]

    def description(self) -> dict[str, Any]:
        """Return the model that ranked the answers, which may be the fallback."""
        return {"ranked_by": self._ranked_by}


class Forms(NamedTuple):
    """Normal forms of a question's answers, two or more, with their counts and vectors."""

    question_id: str
    question: str
    counts: Mapping[str, int]
    vectors: Sequence[Vectors]


def clustered(threshold: float, questions: Sequence[Forms]) -> dict[str, dict[str, str]]:
    """Return the name of each form's cluster, by question."""
    return {forms.question_id: cluster_names(forms, threshold) for forms in questions}


def cluster_names(forms: Forms, threshold: float) -> dict[str, str]:
    """Return the name of each normalised form's cluster: its most frequent form, the shortest of several."""
    ranked = sorted(forms.counts, key=lambda form: (-forms.counts[form], len(form), form))
    numbers = clusters(forms.question, list(forms.counts), np.stack(forms.vectors), threshold)
    cluster_of = dict(zip(forms.counts, numbers, strict=True))
    names = {cluster_of[form]: form for form in reversed(ranked)}
    return {form: names[cluster] for form, cluster in cluster_of.items()}


def repeats(one: str, other: str, question: str) -> bool:
    """Return True if the longer of two normalised forms contains the shorter one as whole words with the same meaning.

    A grader matches an accepted answer in a longer reply in the same way (docs/methods.md, §0). The shorter form must
    have a word that the question lacks. The additional words must not change the answer: no "or", no "not", no other
    number, except the day before a year. "1" does not count, because "one" is a pronoun more often than an answer.

    >>> repeats("1789", "march 4 1789", "when?"), repeats("paris", "not paris", "where?"), repeats("3", "3.5", "?")
    (True, False, False)
    """
    shorter, longer = sorted((one, other), key=len)
    if f" {shorter} " not in f" {longer} ":
        return False
    words, more_words = shorter.split(), longer.split()
    while len(more_words) > len(words) and more_words[-1] in _QUALIFYING:  # of a truncated answer
        more_words.pop()
    added = {*more_words} - {*words}
    if shorter == "1" or set(words) <= set(normalize(question).split()) or _QUALIFYING & added:
        return False
    a_year = _YEAR.fullmatch(shorter) and set(_YEAR.findall(longer)) == {shorter}
    return bool(a_year) or not numbers_differ(one, other)


def clusters(question: str, forms: Sequence[str], vectors: Vectors, threshold: float) -> list[int]:
    """Return the number of each form's cluster: agglomerative, average linkage, cosine distance, two forms or more.

    A form that repeats another (:func:`repeats`) has distance 0 from it. Others with different numbers are never in one
    cluster, however near their vectors are: a sentence-embedding model hardly separates 1945 from 1946.
    """
    from scipy.cluster.hierarchy import fcluster, linkage  # an import of half a second, only for runs with clusters
    from scipy.spatial.distance import squareform

    rows_ = vectors.astype(float)
    cosine = np.einsum("ik,jk->ij", rows_, rows_)  # the last digit of a product with @ depends on the threads
    distance: NDArray[np.float64] = np.clip(1 - cosine, 0, 2)
    for row, column in combinations(range(len(forms)), 2):
        if repeats(forms[row], forms[column], question):
            distance[row, column] = distance[column, row] = 0
        elif numbers_differ(forms[row], forms[column]):
            distance[row, column] = distance[column, row] = _CANNOT_LINK
    np.fill_diagonal(distance, 0)
    tree = linkage(squareform(distance, checks=False), method="average")
    return [int(number) for number in fcluster(tree, threshold, criterion="distance")]
