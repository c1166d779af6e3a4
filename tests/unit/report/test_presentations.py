import re

import numpy as np
import pyarrow as pa

from robust_eval.metric.frs_specs import FIGURES
from robust_eval.metric.score import Score
from robust_eval.question import Question
from robust_eval.report.presentations import frs
from robust_eval.stats.estimate import Estimate

KINDS = ["HUM", "LOC", "NUM", "ENTY"]


def firmest(scores, types, groups=None):
    """What is said of the kind of questions that is held most firmly."""
    n = len(scores)
    questions = [Question(str(row), "?", type=types[row], group=groups[row] if groups else "") for row in range(n)]
    result = Score(
        [question.id for question in questions],
        {"frs.d1": Estimate(0.5), "frs.unbroken_share": Estimate(1.0)},
        {"frs.survival": dict.fromkeys((0.5, 1.0), Estimate(1.0))},
        {"frs.d1": np.asarray(scores, dtype=float)},
        {"frs": pa.table({"entropy": np.zeros(n), "breaking_temperature": np.full(n, np.inf)})},
        {"unbroken": "one", "k": 10},
        declared=FIGURES,
    )
    return [claim for claim in frs(result, questions).claims if claim.startswith("holds one kind")]


def test_a_kind_is_held_most_firmly_only_where_its_mean_is_above_each_other_by_a_corrected_test():
    spread = np.tile([-0.1, 0.1], 20)
    means = {"HUM": 0.8, "LOC": 0.6, "NUM": 0.5, "ENTY": 0.4}
    (said,) = firmest(np.concatenate([mean + spread for mean in means.values()]), np.repeat(list(means), 40))
    told = (
        r"holds one kind most firmly, Human \(mean FRS 0\.800, n = 40; p = [\de.-]+ after Holm's correction for 6 pairs"
    )
    assert re.fullmatch(rf"{told} of kinds\)", said)
    means["LOC"] = 0.789  # the difference of a standard error or less
    assert firmest(np.concatenate([mean + spread for mean in means.values()]), np.repeat(list(means), 40)) == []


def test_of_kinds_that_are_held_alike_one_is_named_most_firm_in_less_than_one_of_twenty_runs():
    rng = np.random.default_rng(0)
    said = [firmest(rng.beta(3, 2, 120), np.repeat(KINDS, 30)) for _ in range(200)]
    assert sum(map(len, said)) <= 0.05 * len(said)


def test_facts_of_one_group_are_no_evidence_of_their_own():
    groups = [f"passage {place // 8}" for place in range(80)]
    scores = np.repeat(np.tile([0.9, 0.5, 0.7, 0.4, 0.8], 2), 8) - np.repeat([0.0, 0.1], 40)
    types = np.repeat(["HUM", "LOC"], 40)
    assert len(firmest(scores, types)) == 1
    assert firmest(scores, types, groups) == []


def test_nothing_is_said_of_few_facts_of_a_kind_nor_where_nothing_varies():
    assert firmest([0.9, 0.8, 0.9, 0.8, 0.1, 0.2, 0.1, 0.2, 0.1], ["HUM"] * 4 + ["LOC"] * 5) == []
    assert firmest([0.9] * 40 + [0.1, 0.2] * 20, ["other"] * 40 + ["LOC"] * 40) == []
    assert firmest([1.0] * 5 + [0.5] * 5, ["HUM"] * 5 + ["LOC"] * 5) == []
    assert firmest([1.0, 1 - 1e-16, 1.0, 1.0, 1.0] + [0.5] * 5, ["HUM"] * 5 + ["LOC"] * 5) == []


def test_a_kind_whose_scores_are_all_alike_is_compared_with_one_whose_scores_differ():
    types = ["HUM"] * 40 + ["LOC"] * 40
    assert len(firmest([1.0] * 40 + [0.6, 0.8] * 20, types)) == 1
    assert firmest([0.7] * 40 + [0.6, 0.8] * 20, types) == []
