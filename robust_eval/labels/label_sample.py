"""Samples of a run's answers to label: by temperature and verdict, or whole questions."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

import pyarrow as pa

from robust_eval.answer import SAMPLER, rows, temperature_name
from robust_eval.metric.score import verdicts
from robust_eval.question import seeded_rank

ANSWER, QUESTION = "answer", "question"
"""Sampling methods: single answers, or all answers to a question together."""


class SampledAnswer(NamedTuple):
    """Answer sampled for labelling. ``stratum_size`` is the number of answers in its stratum; 1 in whole questions."""

    question_id: str
    text: str
    sampler: str
    rewrite: int
    temperature: float
    trial: int
    drawn: str
    stratum: str
    stratum_size: int


def sample(graded: pa.Table, by: str, size: int, seed: int) -> list[SampledAnswer]:
    """Return a sample of the answers to label, in display order, from the graded answers of a run.

    Only answers that count are drawn: those with a verdict, and to choices as they stand in their question, because
    that is how people see it. By answer a stratum is a sampler, a temperature, a verdict, and whether that is
    uncertain. Uncertain answers come first: every other answer is one, until all of them are drawn. Among them, and
    among the others, the share of a stratum is proportional to the square root of its size, so that rare verdicts are
    not left out and large strata are not stinted (power allocation; Bankier, The American Statistician 42, 1988). Any
    beginning of the order is a sample of both with known probabilities, so labelling may stop anywhere. By question
    ``size`` counts questions, each of which is as likely to be drawn.
    """
    columns = ("question_id", "text", SAMPLER, "rewrite", "temperature", "trial")
    answers = zip(rows(graded, *columns), verdicts(graded).tolist(), rows(graded, "form", "uncertain"), strict=True)
    table = [
        (row, right, bool(is_uncertain))
        for row, right, (form, is_uncertain) in answers
        if not math.isnan(right) and form is None
    ]
    if by == QUESTION:
        ids = {row[0] for row, *_ in table}
        chosen = sorted(ids, key=lambda question_id: seeded_rank(seed, question_id))[:size]
        turn_of = {question_id: number for number, question_id in enumerate(chosen)}
        whole = [SampledAnswer(*(*row, QUESTION, "", 1)) for row, *_ in table if row[0] in turn_of]
        return sorted(whole, key=lambda row: (turn_of[row.question_id], row.text))
    strata = [
        f"{row[2]}, t = {temperature_name(row[4])}, {'right' if right else 'wrong'}"
        f"{', uncertain' if is_uncertain else ''}"
        for row, right, is_uncertain in table
    ]
    ranks = [seeded_rank(seed, row[2], row[0], *map(str, row[3:])) for row, *_ in table]
    allocated = _allocated(strata, sorted(range(len(table)), key=ranks.__getitem__))
    uncertain, certain = (
        [number for number in allocated if table[number][2] is is_uncertain] for is_uncertain in (True, False)
    )
    sizes = Counter(strata)
    order = list(_alternating(uncertain, certain))[:size]
    return [SampledAnswer(*(*table[number][0], ANSWER, strata[number], sizes[strata[number]])) for number in order]


def _allocated(strata: Sequence[str], numbers: Sequence[int]) -> list[int]:
    """Order the numbers of answers such that every prefix has from each of the ``strata`` a share proportional to the
    square root of its size; those of one stratum stay in their order.
    """
    sizes, turn = Counter(strata), Counter[str]()
    places: list[tuple[float, str, int]] = []
    for number in numbers:
        stratum = strata[number]
        places.append(((turn[stratum] + 0.5) / math.sqrt(sizes[stratum]), stratum, number))
        turn[stratum] += 1
    return [number for _, _, number in sorted(places)]


def _alternating(first: Sequence[int], second: Sequence[int]) -> Iterator[int]:
    """Yield the items of two sequences in turns, then the rest of the longer one."""
    for pair in zip_longest(first, second):
        yield from (number for number in pair if number is not None)
