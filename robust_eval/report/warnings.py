"""What a reader must know before quoting a run: each with the setting that mends it."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from robust_eval.record.result import Result
from robust_eval.report.left_out import unanswered, unasked, unread
from robust_eval.report.uncertain import remedy, uncertain
from robust_eval.report.wording import few_kept

CUT = 0.05
"""The share of replies that the length limit ended from which on it matters."""


class Warned(NamedTuple):
    """What is wrong, and what mends it."""

    what: str
    mend: str


def warnings(result: Result) -> Iterator[Warned]:
    """Yield what matters, the worst first."""
    counts = result.counts()
    if said := few_kept(result):
        yield Warned(said, "More questions mend it: dataset.limit, or another data set.")
    came = sum(value for name, value in counts.items() if name.startswith("outcomes."))
    cut = counts["replies.cut"]
    if not math.isnan(cut) and came and cut / came >= CUT:
        yield Warned(
            f"{cut:,.0f} of {came:,.0f} sampled replies were cut by the length limit, and graded as far as they go.",
            "A larger sampler.*.max_new_tokens lets them end; an answer at the start of a reply is whole anyway.",
        )
    if said := unanswered(counts):
        yield Warned(f"Without a reply: {said}.", "The same command asks again for those that failed.")
    if said := unread(counts):
        yield Warned(
            f"No answer was found in {said}.", "The settings reader and sampler.*.prompts decide what is found."
        )
    if said := uncertain(counts):
        yield Warned(f"{said}.", f"{remedy(result)}.")
    if said := unasked(result):
        yield Warned(f"{said}.", "until=null asks all.")
    if drifted := len(result.drifted()):
        yield Warned(f"The meaning of {drifted:,} rewrites may have drifted.", "rewriter.* drops more.")
