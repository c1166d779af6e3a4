"""Which answers of a run people are shown: a sample by temperature and verdict, or whole questions."""

import math
from collections import Counter
from typing import NamedTuple

import pyarrow as pa

from robust_eval.answer import SAMPLER, rows, temperature_name
from robust_eval.metric.score import verdicts
from robust_eval.question import seeded_rank

ANSWER, QUESTION = "answer", "question"
"""How answers are drawn: each by itself, or all to a question together."""


class Drawn(NamedTuple):
    """An answer that was drawn. ``stratum_size`` is the number of answers in its stratum; 1 in whole questions."""

    question_id: str
    text: str
    sampler: str
    rewrite: int
    temperature: float
    trial: int
    drawn: str
    stratum: str
    stratum_size: int


def sample(graded: pa.Table, by: str, size: int, seed: int) -> list[Drawn]:
    """Return the answers to be labelled, in the order in which they are shown, of the graded answers of a run.

    Only answers that count are drawn: those with a verdict, and to choices as they stand in their question, because
    that is how people see it. By answer a stratum is a sampler, a temperature and a verdict. Its share of the sample
    is proportional to the square root of its size, so that rare verdicts are not left out and large strata are not
    stinted (power allocation; Bankier, The American Statistician 42, 1988). Any beginning of the order is such a
    sample, so labelling may stop anywhere. By question ``size`` counts questions, each of which is as likely to be
    drawn.
    """
    found = verdicts(graded)
    columns = ("question_id", "text", SAMPLER, "rewrite", "temperature", "trial")
    asked = zip(rows(graded, *columns), found.tolist(), graded["form"].to_pylist(), strict=True)
    table = [(row, right) for row, right, form in asked if not math.isnan(right) and form is None]
    if by == QUESTION:
        ids = {row[0][0] for row in table}
        chosen = sorted(ids, key=lambda question_id: seeded_rank(seed, question_id))[:size]
        turn_of = {question_id: number for number, question_id in enumerate(chosen)}
        whole = [Drawn(*(*row, QUESTION, "", 1)) for row, _ in table if row[0] in turn_of]
        return sorted(whole, key=lambda row: (turn_of[row.question_id], row.text))
    strata = [f"{row[2]}, t = {temperature_name(row[4])}, {'right' if right else 'wrong'}" for row, right in table]
    sizes = Counter(strata)
    ranks = [seeded_rank(seed, row[2], row[0], *map(str, row[3:])) for row, _ in table]
    turn = Counter[str]()
    order: list[tuple[float, str, int]] = []
    for number in sorted(range(len(table)), key=ranks.__getitem__):
        stratum = strata[number]
        order.append(((turn[stratum] + 0.5) / math.sqrt(sizes[stratum]), stratum, number))
        turn[stratum] += 1
    return [Drawn(*(*table[number][0], ANSWER, stratum, sizes[stratum])) for _, stratum, number in sorted(order)[:size]]
