import bisect
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from doc_pages import PAGES
from gated import gated_run
from scipy.stats import binom

from robust_eval.error import OutageError, UserError
from robust_eval.gate.changed_facts import single_facts
from robust_eval.gate.decision import (
    Decision,
    Differences,
    GateSettings,
    decide,
    differences,
    joint_outcome,
    metric_verdicts,
    sentence,
)
from robust_eval.gate.measured_run import MeasuredRun, read_measured, refuse_incomparable
from robust_eval.metric.metric_spec import MetricSpec
from robust_eval.stats.non_inferiority import confidence_sequence, verdict

SETTINGS = GateSettings()


def decided(one: MeasuredRun, other: MeasuredRun, settings: GateSettings = SETTINGS, looks: bool = False) -> Decision:
    shared = refuse_incomparable(one, other)
    return decide(one, other, differences(one, other, shared, settings, looks), settings)


def figure(values: np.ndarray, margin: float = 0.02, name: str = "a", **more: object) -> Differences:
    return Differences(name, name, margin, np.zeros(len(values)), values, **more)  # type: ignore[arg-type]


def test_a_candidate_that_forgot_facts_and_is_firmer_on_the_rest_fails_on_knowledge(tmp_path: Path):
    one = gated_run(tmp_path / "one", 200)
    other = gated_run(tmp_path / "other", 200, known=lambda number: number >= 30, frs=lambda number: 0.75)
    found = decided(one, other)
    assert found.outcome == "FAIL"
    knowledge, firmness = found.metrics
    assert (knowledge.outcome, knowledge.n, knowledge.difference) == ("FAIL", 200, -0.15)
    assert knowledge.p_mcnemar == pytest.approx(2 * 0.5**30)
    assert (firmness.outcome, firmness.n, firmness.baseline, firmness.candidate) == ("PASS", 170, 0.5, 0.75)
    assert firmness.p_mcnemar is None
    assert "worse by more than the margin" in found.reasons[0]


def test_runs_that_are_truncated_differently_are_said_not_to_measure_the_same(tmp_path: Path):
    one = gated_run(tmp_path / "one", 40)
    firmer = {"frs": lambda number: 0.75, "right": lambda number, t, trial: True}
    other = gated_run(tmp_path / "other", 40, **firmer, model__generation__top_k=5)
    assert decided(one, other).reasons[-1].startswith("Truncation differs (model.generation.top_k=none and 5): ")
    assert len(decided(one, gated_run(tmp_path / "alike", 40, **firmer)).reasons) == 2


def test_identical_answers_pass_however_few_and_it_is_said(tmp_path: Path):
    one, other = gated_run(tmp_path / "one", 5), gated_run(tmp_path / "other", 5)
    found = decided(one, other)
    assert found[0] == "PASS"
    assert found.identical
    assert found.reasons == ["The answers of both runs are identical."]
    assert [each.outcome for each in found.metrics] == ["INCONCLUSIVE"] * 2  # what five facts alone would say
    fewer = gated_run(tmp_path / "fewer", 3)  # the same answers to some of the questions alone
    assert (decided(one, fewer).outcome, decided(one, fewer).identical) == ("INCONCLUSIVE", False)
    answers = other.graded.to_pylist()
    answers[-1]["weight"] /= 2  # an enumerated answer of another probability
    reweighted = replace(other, graded=pa.Table.from_pylist(answers))
    assert (decided(one, reweighted).outcome, decided(one, reweighted).identical) == ("INCONCLUSIVE", False)
    forms = pa.array(["choices BA"] * other.graded.num_rows)  # the same letter of choices in another order
    reordered = replace(other, graded=other.graded.drop_columns("form").append_column("form", forms))
    assert not decided(one, reordered).identical


@pytest.mark.parametrize("damaged", ["baseline", "candidate"])
def test_answers_that_did_not_come_leave_it_open_whatever_the_rest_says(tmp_path: Path, damaged: str):
    lost = {name: (lambda number: number % 5 == 0) if name == damaged else (lambda number: False) for name in
            ("baseline", "candidate")}  # fmt: skip
    one = gated_run(tmp_path / "baseline", 200, lost=lost["baseline"])
    other = gated_run(tmp_path / "candidate", 200, known=lambda number: number > 99, lost=lost["candidate"])
    found = decided(one, other)
    assert found.outcome == "INCONCLUSIVE"
    assert found.metrics[0].outcome == "FAIL"
    (reason,) = found.reasons
    assert f"20 % of the sampled answers of {damaged} are missing" in reason
    assert "more than gate.no_reply=0.05 allows" in reason
    assert decided(one, other, GateSettings(no_reply=0.3)).outcome == "FAIL"


def test_greedy_answers_that_did_not_come_are_not_outnumbered_by_sampled_ones(tmp_path: Path):
    one, other = gated_run(tmp_path / "one", 50), gated_run(tmp_path / "other", 50)
    answers = other.graded.to_pylist()
    for row in [row for row in answers if row["temperature"] == 0][:10]:
        row.update(outcome="error", correct=None)
    found = decided(one, replace(other, graded=pa.Table.from_pylist(answers)))
    assert found.outcome == "INCONCLUSIVE"
    assert " ".join(found.reasons) == (
        "20 % of the greedy answers of other are missing (10 of 50 failed, 0 were filtered), more than "
        "gate.no_reply=0.05 allows."
    )


def test_all_figures_must_pass_and_holm_says_which_fail():
    random = np.random.default_rng(0)
    clear = figure(random.choice([-1.0, 0.0], 300, p=[0.2, 0.8]), name="clear")
    near = figure(random.choice([-1.0, 0.0], 300, p=[0.045, 0.955]), name="near")
    fine = figure(np.zeros(300) + random.normal(0, 0.01, 300), name="fine")
    assert verdict(near.values, 0.02).outcome == "FAIL" or verdict(near.values, 0.02).outcome == "INCONCLUSIVE"
    assert [each.outcome for each in metric_verdicts([clear, fine], 0.95)] == ["FAIL", "PASS"]
    assert joint_outcome(metric_verdicts([clear, fine], 0.95)) == "FAIL"
    assert joint_outcome(metric_verdicts([fine, fine._replace(name="b")], 0.95)) == "PASS"
    assert joint_outcome(metric_verdicts([fine, figure(np.zeros(3), name="few")], 0.95)) == "INCONCLUSIVE"


def test_holm_is_that_of_p_values():
    """Against Holm's procedure on bootstrap p-values, found by halving the level at which the interval excludes."""
    random = np.random.default_rng(1)
    for _ in range(8):
        figures = [figure(random.choice([-1.0, 0.0, 1.0], 200, p=[q, 0.9 - q, 0.1]), name=f"f{k}") for k, q in
                   enumerate(random.uniform(0.08, 0.22, 3))]  # fmt: skip
        p = [_p_value(each) for each in figures]
        if min(abs(value - level) for value in p for level in (0.025, 0.0125, 0.025 / 3)) < 1e-3:
            continue  # the grid of p-values is too coarse to tell
        rejected, left = set[str](), sorted(zip(p, figures, strict=True), key=lambda each: each[0])
        for place, (value, each) in enumerate(left):
            if value > 0.025 / (3 - place):
                break
            rejected.add(each.name)
        assert {each.name for each in metric_verdicts(figures, 0.95) if each.outcome == "FAIL"} == rejected


def _p_value(figure: Differences) -> float:
    low, high = 0.0, 0.5
    while high - low > 5e-4:
        middle = (low + high) / 2
        low, high = (low, middle) if figure.bounds(1 - 2 * middle)[1] < -figure.margin else (middle, high)
    return high


def test_one_figure_is_judged_as_the_verdict_of_one():
    values = np.array([-1.0] * 20 + [0.0] * 180)
    (found,) = metric_verdicts([figure(values)], 0.95)
    alone = verdict(values, 0.02)
    assert (found.outcome, found.difference, found.low, found.high, found.needed) == (
        alone.outcome, alone.mean, alone.low, alone.high, alone.needed,
    )  # fmt: skip


def test_it_says_how_many_more_facts_are_needed():
    random = np.random.default_rng(0)
    (found,) = metric_verdicts([figure(random.choice([-1.0, 0.0, 1.0], 100, p=[0.1, 0.8, 0.1]))], 0.95)
    assert found.outcome == "INCONCLUSIVE"
    assert found.more == found.needed - 100 > 1000


def test_what_is_not_decided_says_whether_facts_differ():
    random = np.random.default_rng(0)
    differing = random.choice([-1.0, 0.0, 1.0], 100, p=[0.1, 0.8, 0.1])
    said = {name: sentence(metric_verdicts([figure(values)], 0.95)[0]) for name, values in
            {"alike": np.zeros(60), "differing": differing}.items()}  # fmt: skip
    assert said["alike"] == (
        "a: 0.000 (baseline 0.000) over 60 facts, a difference of 0.000 (-0.060 to +0.060; margin 0.02): "
        "undecided; no fact differs, but a PASS at this margin needs about 189 facts."
    )
    assert "if both models are equally good, a PASS at this margin needs about" in said["differing"]
    (moved,) = metric_verdicts([figure(np.full(60, -0.01), margin=0.02)], 0.95)  # all alike, and every one differs
    assert not moved.unchanged
    assert "no fact differs" not in sentence(moved)


def test_with_looks_the_sequence_decides():
    values = np.zeros(1000)
    low, high = confidence_sequence(values)
    (found,) = metric_verdicts([figure(values, looks=True)], 0.95, final=True)
    assert (found.low, found.high, found.outcome) == (low[-1], high[-1], "PASS")
    (few,) = metric_verdicts([figure(values[:50], looks=True)], 0.95, final=True)
    assert few.outcome == "INCONCLUSIVE"
    assert few.needed == 1 + int(np.flatnonzero(confidence_sequence(np.zeros(2000))[0] > -0.02)[0])


def test_groups_are_drawn_whole_by_the_sequence():
    random = np.random.default_rng(0)
    values = np.repeat(random.choice([-1.0, 0.0], 200, p=[0.3, 0.7]), 4)
    groups = np.repeat(np.arange(200), 4)
    (whole_groups,) = metric_verdicts([figure(values, groups=groups, looks=True, largest=4)], 0.95)
    (alone,) = metric_verdicts([figure(values, looks=True)], 0.95)
    assert whole_groups.outcome == "FAIL"
    assert whole_groups.high - whole_groups.low > alone.high - alone.low
    assert whole_groups.low < values.mean() < whole_groups.high


def test_each_look_is_judged_by_the_sequence_up_to_there():
    """A figure fails where the sequence at Holm's level excludes −margin, and passes by the one at its own level."""
    random = np.random.default_rng(0)
    values = {"a": random.choice([-1.0, 0.0], 200, p=[0.25, 0.75]), "b": np.zeros(200)}
    strict, own = confidence_sequence(values["a"], 0.975)[1], confidence_sequence(values["b"])[0]
    found = []
    for m in (20, 60, 100, 150, 200):
        judged = metric_verdicts(
            [figure(each[:m], name=name, margin=0.05, looks=True) for name, each in values.items()], 0.95
        )
        assert judged[0].outcome == ("FAIL" if strict[m - 1] < -0.05 else "INCONCLUSIVE")
        assert judged[1].outcome == ("PASS" if own[m - 1] > -0.05 else "INCONCLUSIVE")
        found.append(tuple(each.outcome for each in judged))
    assert found[0] == ("INCONCLUSIVE", "INCONCLUSIVE")
    assert found[-1] == ("FAIL", "PASS")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"sampler__temperature_sweep__trials": 5}, "sampler.temperature_sweep.trials is 5, but was 10"),
        ({"sampler__temperature_sweep__temperatures": [1]}, r"temperatures is \[1\], but was not set"),
        ({"sampler__temperature_sweep__selection": "none"}, "selection is none, but was exact_match"),
        ({"grader__contains": "equal"}, "grader.contains is equal, but was not set"),
        ({"metric__certainty__invalid": "drop"}, "only the candidate has metric=certainty; measure both with the same"),
        (
            {"key": lambda number: f"other {number}"},
            "the accepted answer to question q0 is other 0, but was answer 0 in the baseline",
        ),
        ({"text": " Really?"}, r"they share no questions \(id and text\)"),
    ],
)
def test_what_differs_and_must_not_is_named(tmp_path: Path, changed: dict[str, object], said: str):
    one, other = gated_run(tmp_path / "one", 3), gated_run(tmp_path / "other", 3, **changed)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=f"^other cannot be compared with one: .*{said}"):
        refuse_incomparable(one, other)


def test_prompts_models_and_seeds_may_differ(tmp_path: Path):
    one = gated_run(tmp_path / "one", 3)
    other = gated_run(tmp_path / "other", 3, seed=1, model__name="n", sampler__temperature_sweep__prompts="mine.yaml")
    assert len(refuse_incomparable(one, other)) == 3


def test_a_candidate_that_knows_nothing_fails_on_knowledge(tmp_path: Path):
    one = gated_run(tmp_path / "one", 60)
    other = gated_run(tmp_path / "other", 60, known=lambda number: False)
    assert other.kept_nothing
    found = decided(one, other)
    assert [(each.outcome, each.n) for each in found.metrics] == [("FAIL", 60), ("INCONCLUSIVE", 0)]
    assert found.outcome == "FAIL"
    with pytest.raises(UserError, match="for which other has no per-question values; it kept no questions"):
        decided(other, one, GateSettings({"frs.d1": 0.02}))
    alone = decided(other, one)
    assert (alone.outcome, [each.difference for each in alone.metrics]) == ("PASS", [1])
    assert alone.reasons[-1] == "Firmness is not judged: no question has several drawn answers in both runs."


def by_answers(run: MeasuredRun, **columns: list[Any]) -> MeasuredRun:
    """Return a run without metrics and greedy answers; ``columns`` replace those of its answers at t = 1."""
    graded = run.graded.filter(pc.equal(run.graded["temperature"], 1.0))
    for name, values in columns.items():
        graded = graded.set_column(graded.column_names.index(name), name, pa.array(values, graded[name].type))
    questions = run.run.questions.drop_columns(["accuracy.greedy", "frs.d1"])
    return replace(run, run=replace(run.run, questions=questions), graded=graded)


def test_without_metrics_most_frequent_answers_are_knowledge_and_all_trials_right_is_firmness(tmp_path: Path):
    def mostly(number: int, t: float, trial: int) -> bool:
        return trial < (10 if number < 30 else 6 if number < 40 else 4)

    one = by_answers(gated_run(tmp_path / "one", 60, right=lambda number, t, trial: True))
    other = by_answers(gated_run(tmp_path / "other", 60, right=mostly))
    found = decided(one, other)
    assert [(each.name, each.label) for each in found.metrics] == [
        ("knowledge", "knowledge (accuracy of the most frequent answers)"),
        ("firmness", "firmness (right in all 10 repetitions)"),
    ]
    assert [each.difference for each in found.metrics] == [pytest.approx(-20 / 60), -0.5]
    assert found.metrics[0].p_mcnemar == pytest.approx(2 * 0.5**20)
    share = verdict([0.0] * 30 + [-1.0] * 30, 0.02)
    assert (found.metrics[1].low, found.metrics[1].high) == (share.low, share.high)  # Tango's
    listed = single_facts(one, other, refuse_incomparable(one, other))
    assert {fact.question_id for fact in listed.forgotten} == {f"q{number}" for number in range(40, 60)}


def test_trials_that_only_one_run_has_and_answers_that_did_not_come_are_left_out_of_all_right(tmp_path: Path):
    runs = [gated_run(tmp_path / name, 40, right=lambda number, t, trial: trial < 3) for name in ("one", "other")]
    few = by_answers(runs[1])
    few = replace(few, graded=few.graded.filter(pc.less(few.graded["trial"], 3)))
    outcomes = ["error" if trial == 0 else "ok" for trial in few.graded["trial"].to_pylist()]
    lost = replace(few, graded=few.graded.set_column(6, "outcome", pa.array(outcomes)))
    for other, number in ((few, 3), (lost, 2)):
        firmness = decided(by_answers(runs[0]), other, GateSettings(no_reply=0.5)).metrics[1]
        assert firmness.label == f"firmness (right in all {number} repetitions)"
        assert (firmness.n, firmness.baseline, firmness.candidate) == (40, 1, 1)


def test_wordings_are_repetitions_too_but_other_forms_and_temperatures_are_not(tmp_path: Path):
    one = by_answers(gated_run(tmp_path / "one", 40))
    size = one.graded.num_rows
    worded = [trial % 5 for trial in range(size)]
    formed = ["choices BA" if wording > 2 else None for wording in worded]
    alike = [by_answers(gated_run(tmp_path / f"{k}", 40), rewrite=worded) for k in range(2)]
    firmness = decided(*alike).metrics[1]
    assert firmness.label == "firmness (right in all 10 repetitions and rewordings)"
    alike = [replace(each, graded=each.graded.set_column(9, "form", pa.array(formed))) for each in alike]
    assert decided(*alike).metrics[1].label == "firmness (right in all 6 repetitions and rewordings)"
    own = by_answers(gated_run(tmp_path / "own", 40), temperature=[math.nan] * size)
    found = decided(one, own)
    assert [each.name for each in found.metrics] == ["knowledge"]
    assert found.reasons[-1] == (
        "Firmness is not judged: the temperature of the candidate's answers is the model's own, but the baseline's was "
        "1; measure both at their default (model.takes_temperature=false)."
    )
    with pytest.raises(UserError, match=r"names only firmness\. Firmness is not judged: the temperature"):
        decided(one, own, GateSettings({"firmness": 0.02}))


@pytest.mark.parametrize(("measures", "label"), [("", "mine (points)"), ("memory", "memory (mine, points)")])
def test_a_figure_is_called_by_what_its_metric_says_that_it_measures(tmp_path: Path, measures: str, label: str):
    one, other = gated_run(tmp_path / "one", 3), gated_run(tmp_path / "other", 3)
    mine = MetricSpec("frs.d{}", "mine", unit="points", more_is_better=True, construct=measures)
    one = replace(one, run=replace(one.run, specs=[mine]))
    assert [each.label for each in decided(one, other, GateSettings({"frs.d1": 0.02})).metrics] == [label]


@pytest.mark.parametrize(
    ("name", "said"),
    [("frs.d2", "one has no per-question values; it has"), ("nothing", "one has no per-question values")],
)
def test_a_figure_that_is_not_there_is_refused(tmp_path: Path, name: str, said: str):
    one, other = gated_run(tmp_path / "one", 3), gated_run(tmp_path / "other", 3)
    with pytest.raises(UserError, match=said):
        decided(one, other, GateSettings({name: 0.02}))


def test_a_metric_beyond_0_and_1_is_refused_and_another_command_named(tmp_path: Path):
    one, other = gated_run(tmp_path / "one", 3), gated_run(tmp_path / "other", 3)
    place = one.run.questions.column_names.index("frs.d1")
    ranking = one.run.questions.set_column(place, "frs.d1", pa.array([1.4, 0.3, 0.5]))  # of a question, such as AUROC
    with pytest.raises(UserError, match=r"lie outside 0 to 1, .* \(robust-eval compare\)"):
        decided(replace(one, run=replace(one.run, questions=ranking)), other)


def test_no_fact_known_to_both_is_inconclusive_for_firmness(tmp_path: Path):
    one = gated_run(tmp_path / "one", 20, known=lambda number: number < 10)
    other = gated_run(tmp_path / "other", 20, known=lambda number: number >= 10)
    found = decided(one, other)
    assert found.outcome == "INCONCLUSIVE"
    assert found.metrics[1].n == 0
    assert math.isnan(found.metrics[1].difference)
    assert found.reasons[1] == "firmness (mean FRS, d = 1): no fact has a value in both runs."


def test_a_run_that_ended_early_or_is_damaged_says_so(tmp_path: Path):
    folder = tmp_path / "run"
    gated_run(folder, 3)
    (folder / "graded.parquet").write_bytes(b"no parquet")
    with pytest.raises(UserError, match=r"^run cannot be read"):
        read_measured(folder, "run")
    (folder / "summary.json").unlink()
    (folder / "error.txt").write_text("the budget of 1 is spent\x1b[31m\n\nTraceback")
    with pytest.raises(OutageError, match=r"^run has not finished: the budget of 1 is spent\\x1b\[31m$"):
        read_measured(folder, "run")
    with pytest.raises(UserError, match=r"^there is no folder"):
        read_measured(tmp_path / "nowhere", "run")


@pytest.mark.parametrize(("values", "same"), [([0.5, 0.4, 0.6, 0.5], ""), ([0.0] * 4, ", though no fact differs")])
def test_a_few_facts_never_pass(values, same):
    (judged,) = metric_verdicts([Differences("frs.d1", "FRS", 0.7, np.zeros(4), np.array(values))], 0.95)
    assert (judged.outcome, judged.units, judged.low > -0.7) == ("INCONCLUSIVE", 4, True)
    assert sentence(judged).endswith(f": undecided{same}: 4 facts are too few for a PASS, which needs 30.")


def test_the_table_of_the_page_has_the_exact_chance_of_a_pass_of_an_equally_good_candidate():
    def passes(facts: int, better: int, worse: int) -> bool:
        values = np.repeat([1.0, -1.0, 0.0], [better, worse, facts - better - worse])
        return figure(values).bounds(0.95)[0] > -0.02

    def chance(facts: int, changed: float) -> float:
        total = 0.0
        for n in range(int(binom.isf(1e-6, facts, changed)) + 1):
            least = bisect.bisect_left(range(n + 1), True, key=lambda better: passes(facts, better, n - better))
            total += binom.pmf(n, facts, changed) * binom.sf(least - 1, n, 0.5)
        return total

    rows = re.findall(r"^\| ([\d,]+) \| (\d+) % \| (\d+) % \| (\d+) % \|$", PAGES["gate.md"], re.MULTILINE)
    assert [row[0] for row in rows] == ["200", "500", "1,000", "2,000"]
    for facts, *shares in rows:
        expected = [f"{chance(int(facts.replace(',', '')), changed):.0%}" for changed in (0.02, 0.05, 0.1)]
        assert [f"{share}%" for share in shares] == expected
