import math

import numpy as np
import pyarrow as pa

from robust_eval.metric.frs_tables import type_shares
from robust_eval.runs.finished_runs import FinishedRun
from robust_eval.runs.question_types import PooledTypes, pooled_types
from robust_eval.stats.estimate import Estimate

NAN = math.nan


def run(types, groups=None, seed=0, **scores):
    """A run whose questions have these types, and these scores: d1=[…] is the FRS for d = 1."""
    n = len(types)
    described = {
        "question_id": [f"q{place}" for place in range(n)],
        "question": [f"{place}?" for place in range(n)],
        "scenario": ["abstractive"] * n,
        "type": list(types),
        "category": [""] * n,
        "group": list(groups or [""] * n),
        "kept": [True] * n,
    }
    columns = {f"frs.{d}": np.asarray(values, dtype=float) for d, values in scores.items()}
    return FinishedRun({"seed": seed}, {name: Estimate(NAN) for name in columns}, pa.table(described | columns))


FACTS = run(["HUM", "LOC", "LOC"], d1=[0.2, 0.4, 0.9], d5=[0.1, 0.2, 0.3])
PHYSICS = run(["NUM", "", "NUM"], d1=[0.3, NAN, 1.0], d5=[0.1, NAN, 0.3])


def test_the_types_of_a_subject_are_pooled_over_its_data_sets():
    found = pooled_types([FACTS, FACTS, PHYSICS], ["small", "large", "small"], ["facts", "facts", "physics"])
    both = np.array([0.2, 0.4, 0.9, 0.3, NAN, 1.0])
    assert found == [
        PooledTypes(
            "small", ["facts", "physics"], "frs.d1", type_shares(both, ["HUM", "LOC", "LOC", "NUM", "", "NUM"])
        ),
        PooledTypes("large", ["facts"], "frs.d1", type_shares(both[:3], ["HUM", "LOC", "LOC"])),
    ]


def test_all_subjects_are_ranked_by_the_smallest_d_that_they_share():
    other = run(["HUM", "LOC"], d5=[0.5, 0.1], d10=[0.4, 0.1])
    found = pooled_types([FACTS, other], ["small", "large"], ["facts"] * 2)
    assert [(pooled.subject, pooled.score) for pooled in found] == [("small", "frs.d5"), ("large", "frs.d5")]
    assert found[1].shares == type_shares(np.array([0.5, 0.1]), ["HUM", "LOC"])


def test_where_no_d_is_shared_nothing_is_said():
    assert pooled_types([FACTS, run(["HUM"], d10=[0.5])], ["small", "large"], ["facts"] * 2) == []


def test_questions_without_types_and_runs_without_scores_have_no_shares():
    assert pooled_types([run(["", ""], d1=[0.5, 1.0]), run(["HUM"])], ["small", "large"], ["facts"] * 2) == []
    assert pooled_types([], [], []) == []


def test_groups_are_those_of_their_data_set():
    first = run(["HUM", "LOC"], groups=["p", "p"], d1=[0.2, 0.4])
    second = run(["HUM", "LOC"], groups=["p", ""], d1=[0.3, 0.5])
    (pooled,) = pooled_types([first, PHYSICS, second], ["small"] * 3, ["a", "b", "c"])
    groups = ["a p", "a p", "b 0", "b 1", "b 2", "c p", "c question"]
    scores = np.array([0.2, 0.4, 0.3, NAN, 1.0, 0.3, 0.5])
    types = ["HUM", "LOC", "NUM", "", "NUM", "HUM", "LOC"]
    # which labels groups have does not matter, only their order
    assert pooled.shares == type_shares(scores, types, groups=groups)


def test_the_interval_follows_the_seed_of_the_run():
    scores, types = np.random.default_rng(0).random(40), ["HUM", "LOC"] * 20
    (pooled,) = pooled_types([run(types, seed=3, d1=scores)], ["small"], ["facts"])
    assert pooled.shares == type_shares(scores, types, seed=3)
