import json
import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from comparison_by_hand import questions as described_questions
from json_lines import cases

from robust_eval.error import UserError
from robust_eval.metric import frs_metric
from robust_eval.metric.metric_spec import MetricSpec, as_json
from robust_eval.runs.differing_settings import merged, without_repetitions
from robust_eval.runs.finished_runs import KNOWN_SPECS, FinishedRun, Labels, read_run
from robust_eval.stats.estimate import Estimate

NAN = math.nan
CONFIG = {
    "defaults": ["schema", "/schema/model/transformers@model", "_self_"],
    "seed": 3,
    "model": {"name": "small", "stop": []},
    "dataset": {"name": "facts", "limit": None},
    "sampler": {"exact": {"temperatures": [0.5, 1.0]}},
    "metric": {"frs": {"d": 1}},
    "store": {"folder": "/store"},
    "hydra": {"run": {"dir": "${paths.mlruns}/runs"}},
}
SETTINGS = {
    "seed": 3,
    "model.name": "small",
    "model.stop": [],
    "dataset.name": "facts",
    "dataset.limit": None,
    "sampler.exact.temperatures": [0.5, 1.0],
    "metric.frs.d": 1,
    "store.folder": "/store",
}
SUMMARY = {
    "questions.asked": 3,
    "accuracy.greedy": 0.5,
    "accuracy.greedy.low": 0.25,
    "accuracy.greedy.high": 0.75,
    "frs.d5": 0.6,
    "frs.d5.low": 0.5,
    "frs.d5.high": 0.7,
    "frs.d1": 0.8,
    "frs.breaking_temperature.median": None,
    "frs.offgrid.d5": 0.5,
    "accuracy.t0.5": 0.9,
    "accuracy.t1": 0.4,
    "accuracy.t1.5": 0.3,
    "accuracy.t3": None,
}
MEASURED = ["accuracy.greedy", "frs.d5", "frs.d1", "frs.offgrid.d5"]
MEASURED += ["accuracy.t0.5", "accuracy.t1", "accuracy.t1.5", "accuracy.t3"]


def questions(figures, group=("", "g", ""), kept=(True, False, True)):
    """Three questions asked, with these figures."""
    texts = {"question": ["A?", "B?", "C?"], "group": group, "kept": kept, "key": ["{}"] * 3}
    return described_questions(figures, "abc", **texts)


TABLE = questions({name: [0.25 * place, NAN, 1.0] for place, name in enumerate(MEASURED)})


@pytest.fixture
def folder(tmp_path):
    """A run that has finished."""
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(CONFIG, sort_keys=False))
    (tmp_path / "summary.json").write_text(json.dumps(SUMMARY))
    pq.write_table(TABLE, tmp_path / "questions.parquet")
    (tmp_path / "metrics.json").write_text(json.dumps(as_json(KNOWN_SPECS)))
    (tmp_path / "loaded.json").write_text("{}")
    return tmp_path


def complaint(folder, name=None):
    with pytest.raises(UserError) as found:
        read_run(folder, name)
    return str(found.value)


def test_a_run_is_read_whole(folder):
    run = read_run(folder)
    assert run.settings == SETTINGS
    expected = {
        "questions.asked": (3.0, NAN, NAN),
        "accuracy.greedy": (0.5, 0.25, 0.75),
        "frs.d5": (0.6, 0.5, 0.7),
        "frs.d1": (0.8, NAN, NAN),
        "frs.breaking_temperature.median": (NAN, NAN, NAN),
        "frs.offgrid.d5": (0.5, NAN, NAN),
        "accuracy.t0.5": (0.9, NAN, NAN),
        "accuracy.t1": (0.4, NAN, NAN),
        "accuracy.t1.5": (0.3, NAN, NAN),
        "accuracy.t3": (NAN, NAN, NAN),
    }
    assert list(run.metrics) == list(expected)
    np.testing.assert_array_equal(list(run.metrics.values()), list(expected.values()))
    assert run.questions.schema == TABLE.schema
    for name in TABLE.column_names:
        np.testing.assert_array_equal(run.questions[name].to_pylist(), TABLE[name].to_pylist())


def test_a_run_says_how_many_questions_its_figures_rest_on(folder):
    told = {"frs.breaking_temperature.median.n": 2.0, "frs.d1.n": 2.0}
    (folder / "summary.json").write_text(json.dumps(SUMMARY | told))
    run = read_run(folder)
    assert [run.n(name) for name in ("frs.breaking_temperature.median", "frs.d1", "questions.asked")] == [2, 2, None]
    assert "frs.d1.n" not in run.metrics


@pytest.mark.parametrize(
    ("median", "n", "read"),
    [
        ("frs.breaking_temperature.median", 2, math.inf),
        ("frs.breaking_temperature.median", 0, NAN),
        ("frs.offgrid.breaking_temperature.median", 2, math.inf),
        ("frs.corrected.breaking_temperature.median", None, math.inf),
        ("challenge.breaking_turn.median.t1", 2, math.inf),
        ("thinking.breaking_budget.median.t1", 2, NAN),  # no budget suffices
        ("frs.entropy_vs_breaking.kendall", 2, NAN),
    ],
)
def test_the_median_of_breaks_without_a_number_is_unbroken(folder, median, n, read):
    number = {} if n is None else {f"{median}.n": n}
    (folder / "metrics.json").write_text(json.dumps(as_json([*KNOWN_SPECS, *frs_metric.CORRECTED])))
    (folder / "summary.json").write_text(json.dumps(SUMMARY | {median: None} | number))
    assert read_run(folder).metrics[median] == pytest.approx((read, NAN, NAN), nan_ok=True)


def test_an_end_of_an_interval_for_which_a_summary_has_no_number_is_infinite(folder):
    median = "frs.corrected.breaking_temperature.median"
    ends = {f"{median}.low": 1.6, f"{median}.high": None}
    for value, read in ((1.8, 1.8), (None, math.inf)):
        (folder / "summary.json").write_text(json.dumps(SUMMARY | {median: value, **ends}))
        assert read_run(folder).metrics[median] == (read, 1.6, math.inf)


def test_the_greedy_answers_are_read_where_they_are_at_hand(folder):
    assert read_run(folder).greedy == {}
    columns = {
        "sampler": ["greedy"] * 4 + ["repetition"],
        "question_id": list("abcda"),
        "text": ["A", "", "C", "D", ""],
    }
    verdicts = {"correct": [True, False, None, None, True], "outcome": ["ok", "empty", "ok", "error", "ok"]}
    pq.write_table(pa.table(columns | verdicts | {"temperature": [0.0] * 4 + [1.0]}), folder / "graded.parquet")
    assert read_run(folder).greedy == {
        "a": ("A", "right"),
        "b": ("", "wrong"),
        "c": ("C", "not judged"),
        "d": ("D", "no reply"),
    }


def test_a_run_says_which_of_its_figures_are_means_and_which_a_person_wants_first(folder):
    run = read_run(folder)
    assert run.question_metrics == MEASURED
    assert run.headline_means == ["accuracy.greedy", "frs.d5", "frs.d1", "accuracy.t0.5", "accuracy.t1", "accuracy.t3"]


def test_the_scores_and_curves_of_a_run_lie_by_d_and_by_temperature(folder):
    run = read_run(folder)
    assert list(run.scores()) == [5.0, 1.0]
    np.testing.assert_array_equal(list(run.scores().values()), [(0.6, 0.5, 0.7), (0.8, NAN, NAN)])
    assert {t: estimate.value for t, estimate in run.curve("accuracy").items()} == pytest.approx(
        {0.5: 0.9, 1.0: 0.4, 1.5: 0.3, 3.0: NAN}, nan_ok=True
    )
    assert run.curve("certainty.entropy") == {}
    np.testing.assert_array_equal(run.values("frs.d5"), [0.25, NAN, 1.0])


def test_questions_without_a_group_are_groups_of_their_own_where_others_have_one(folder):
    first, second, third = read_run(folder).groups()
    assert second == "group g"
    assert len({first, second, third}) == 3
    assert FinishedRun({}, {}, questions({}, group=("", "", ""))).groups() is None


@pytest.mark.parametrize("file", ["config.yaml", "summary.json", "questions.parquet"])
def test_a_run_without_one_of_its_files_has_not_finished(folder, file):
    (folder / file).unlink()
    reason = f"is not a finished run: it has no {file}"
    assert complaint(folder) == f"{folder} {reason}"
    assert complaint(folder, "run 7f") == f"run 7f {reason}"
    (folder / "error.txt").write_text("no question is known\n\nTraceback", encoding="utf-8")
    assert complaint(folder) == f"{folder} is not a finished run: no question is known"


def test_a_folder_that_is_not_there_is_no_finished_run(tmp_path):
    assert complaint(tmp_path / "none") == (
        f"there is no folder {tmp_path / 'none'}; name the folder of a finished run (mlruns/runs/DATE/TIME)"
    )


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("file", "content"),
    [
        *cases(__file__, "a_damaged_file_is_said_in_one_line_that_names_the_run"),
        ("summary.json", DEEP),
        ("config.yaml", DEEP),
    ],
)
def test_a_damaged_file_is_said_in_one_line_that_names_the_run(folder, file, content):
    (folder / file).write_bytes(content.encode("latin-1"))
    said = complaint(folder, "run 7f")
    assert said.startswith("run 7f cannot be read: ")
    assert len(said) > len("run 7f cannot be read: ")
    assert "\n" not in said


@pytest.mark.parametrize("columns", [{"question_id": ["a"], "text": ["A"]}, {"sampler": ["greedy"], "text": ["A"]}])
def test_answers_without_a_column_are_said_in_one_line_that_names_the_run(folder, columns):
    pq.write_table(pa.table(columns), folder / "graded.parquet")
    assert complaint(folder, "run 7f") == "run 7f cannot be read: its graded.parquet is damaged"


@pytest.mark.parametrize("left", [4, 0.5, 0.99])
def test_a_truncated_table_is_said_in_one_line_that_names_the_run(folder, left):
    whole = (folder / "questions.parquet").read_bytes()
    (folder / "questions.parquet").write_bytes(whole[: left if left > 1 else int(len(whole) * left)])
    said = complaint(folder)
    assert said.startswith(f"{folder} cannot be read: ")
    assert "\n" not in said


def test_a_figure_of_the_questions_that_the_summary_lacks_is_refused(folder):
    summary = {name: value for name, value in SUMMARY.items() if name != "frs.d1"}
    (folder / "summary.json").write_text(json.dumps(summary))
    assert (
        complaint(folder)
        == f"{folder} cannot be read: frs.d1 is not a metric in both summary.json and questions.parquet"
    )


@pytest.mark.parametrize("column", ["question_id", "question", "scenario", "type", "category", "group", "kept"])
def test_a_table_that_does_not_describe_its_questions_is_refused(folder, column):
    pq.write_table(TABLE.drop_columns([column]), folder / "questions.parquet")
    said = complaint(folder)
    assert said == f"{folder} cannot be read: questions.parquet has no column {column}"


def run(figures=None, table=None, **changed):
    """A run with these settings; a double underscore stands for a dot."""
    settings = {
        "seed": 0,
        "model.name": "small",
        "model.path": "hub/small",
        "dataset.name": "facts",
        "dataset.path": "builtin:facts",
        "dataset.limit": None,
        "sampler.sweep.trials": 10,
        "sampler.sweep.tokens": 5,
        "metric.frs.d": 1,
        "grader.contains": "word",
        "store.folder": "/a",
        "tracking.experiment": "x",
        "paths.mlruns": "/m",
    } | {name.replace("__", "."): value for name, value in changed.items()}
    values = {"frs.d1": [0.5, NAN, 0.25]} if figures is None else figures
    means = {name: Estimate(float(np.nanmean(column)), 0.0, 1.0) for name, column in values.items()}
    return FinishedRun(settings, means, questions(values) if table is None else table)


def kept_places(found, runs):
    """Which of the runs are left, by identity."""
    return [next(place for place, each in enumerate(runs) if each is one) for one in found]


GREEDY = {"accuracy.greedy": [1.0, 0.0, 1.0]}
ELSEWHERE = {"store__folder": "/b", "tracking__experiment": "y", "paths__mlruns": "/n"}


@pytest.mark.parametrize(
    ("runs", "left"),
    [
        ([run(GREEDY), run(GREEDY), run(GREEDY, seed=1), run(GREEDY)], [0, 2]),
        ([run({"frs.d1": [0.5, NAN, 0.25]}), run({"frs.d1": [0.5, NAN, 0.25]})], [0]),
        ([run(GREEDY), run(GREEDY, **ELSEWHERE)], [0]),
        ([run({"frs.d1": [0.5, 0.5, 0.5]}), run({"frs.d1": [0.5, 0.5, 0.75]})], [0, 1]),
        ([run(GREEDY), run(GREEDY, questions(GREEDY, kept=(True, True, True)))], [0, 1]),
    ],
    ids=["the same", "undefined values", "another place", "other values", "other questions kept"],
)
def test_a_run_with_the_settings_and_values_of_an_earlier_one_is_left_out(runs, left):
    assert kept_places(without_repetitions(runs), runs) == left


SHARED = {"accuracy.greedy": [1.0, 0.0, 1.0], "accuracy.t1": [0.5, NAN, 0.25]}


def test_runs_that_differ_in_d_alone_become_one_with_the_scores_of_both():
    first = run({"frs.d1": [0.5, NAN, 0.25], **SHARED})
    second = run({**SHARED, "frs.d5": [0.25, NAN, 0.75]}, metric__frs__d=5)
    first.metrics["frs"], second.metrics["frs"] = Estimate(0.375), Estimate(0.5)
    (one,) = merged([first, second])
    assert one.settings == first.settings
    assert one.metrics == {
        "frs.d1": (0.375, 0.0, 1.0),
        "accuracy.greedy": (pytest.approx(2 / 3), 0.0, 1.0),
        "accuracy.t1": (0.375, 0.0, 1.0),
        "frs.d5": (0.5, 0.0, 1.0),
        "frs": pytest.approx((0.375, NAN, NAN), nan_ok=True),
    }
    assert one.question_metrics == ["frs.d1", "accuracy.greedy", "accuracy.t1", "frs.d5"]
    assert list(one.scores()) == [1.0, 5.0]
    np.testing.assert_array_equal(one.values("frs.d1"), [0.5, NAN, 0.25])
    np.testing.assert_array_equal(one.values("frs.d5"), [0.25, NAN, 0.75])
    assert first.question_metrics == ["frs.d1", "accuracy.greedy", "accuracy.t1"]


def test_lists_of_d_that_overlap_are_merged_where_their_common_scores_agree():
    first = run({"frs.d1": [0.5, 0.5, 0.25], "frs.d2": [0.25, 0.5, 0.5]}, metric__frs__d=[1, 2])
    second = run({"frs.d2": [0.25, 0.5, 0.5], "frs.d5": [0.25, 0.25, 0.25]}, metric__frs__d=[2, 5])
    third = run({"frs.d2": [0.25, 0.5, 0.75], "frs.d9": [0.25, 0.25, 0.25]}, metric__frs__d=[2, 9])
    assert [list(one.scores()) for one in merged([first, second, third])] == [[1.0, 2.0, 5.0], [2.0, 9.0]]


MINE = MetricSpec("mine.k{}", "right among the first {}", primary=True, setting="metric.mine.k")


def test_runs_of_a_metric_of_ones_own_are_merged_and_scored_by_the_number_that_it_declares():
    def mine(k, **changed):
        found = run({f"mine.k{k}": [0.5, NAN, 0.25], **SHARED}, metric__mine__k=k, **changed)
        return replace(found, specs=[MINE])

    (one,) = merged([mine(3), mine(2)])
    assert one.leading_score == MINE
    assert {k: score.value for k, score in one.scores().items()} == {3: 0.375, 2: 0.375}
    assert [list(one.scores()) for one in merged([mine(3), mine(2, metric__frs__d=5)])] == [[3.0], [2.0]]


def test_a_score_that_is_a_curve_stands_for_all_at_the_temperature_nearest_to_one():
    curves = {"mine.k2.t0.5": [0.0, 0, 0], "mine.k2.t1.25": [1.0, 1, 1], "mine.k1.t1.25": [0.5, 0.5, 0.5]}
    one = replace(run(curves), specs=[MINE])
    assert one.by_number(MINE) == {2: "mine.k2.t1.25", 1: "mine.k1.t1.25"}
    assert {k: score.value for k, score in one.scores().items()} == {2: 1.0, 1: 0.5}
    assert run(SHARED).scores() == {}
    assert run(SHARED).leading_score is None


@pytest.mark.parametrize(
    "other",
    [
        run(SHARED | {"accuracy.greedy": [1.0, 1.0, 1.0]}, metric__frs__d=5),
        run(SHARED | {"accuracy.t1": [0.5, 0.0, 0.25]}, metric__frs__d=5),
        run(SHARED, questions(SHARED).slice(0, 2), metric__frs__d=5),
        run(SHARED, metric__frs__d=5, sampler__sweep__trials=20),
    ],
    ids=["other values", "other values at t = 1", "fewer questions", "more trials"],
)
def test_runs_that_differ_in_more_than_d_are_not_merged(other):
    runs = [run(SHARED), other]
    assert kept_places(merged(runs), runs) == [0, 1]


def test_a_run_between_two_that_belong_together_does_not_part_them():
    runs = [
        run({"frs.d1": [0.5, 0.5, 0.5], **SHARED}),
        run({"frs.d1": [0.5, 0.5, 0.5], **SHARED}, model__name="large"),
        run({"frs.d5": [0.25, 0.25, 0.25], **SHARED}, metric__frs__d=5),
    ]
    assert [(one.settings["model.name"], list(one.scores())) for one in merged(runs)] == [
        ("small", [1.0, 5.0]),
        ("large", [1.0]),
    ]


EXACT = {
    name: value for name, value in run(sampler__exact__most=100).settings.items() if not name.startswith("sampler.s")
}


@pytest.mark.parametrize(("changes", "called"), cases(__file__, "runs_are_called_by_what_tells_them_apart"))
def test_runs_are_called_by_what_tells_them_apart(changes, called):
    labels = Labels([run(**each) for each in changes])
    assert {name: getattr(labels, name) for name in called} == called


def test_runs_with_other_samplers_are_called_by_these():
    runs = [run(), FinishedRun(EXACT, {}, questions({}))]
    assert Labels(runs).full == ["sampler=sweep", "sampler=exact"]


def test_runs_that_differ_in_their_files_alone_are_called_by_the_end_of_the_paths():
    files = ("/home/me/first/answers.jsonl", "/home/me/second/answers.jsonl", "/home/me/others.jsonl", None)
    labels = Labels([run(sampler__recorded__file=file) for file in files])
    assert labels.full == ["file=first/answers.jsonl", "file=second/answers.jsonl", "file=others.jsonl", "file=none"]


def test_settings_that_are_ignored_are_not_in_the_labels():
    runs = [run(), run(metric__frs__d=5, model__name="large")]
    assert Labels(runs, ignored=["metric.frs.d"]).full == ["small", "large"]


def test_a_metric_without_settings_names_the_run(folder):
    runs = []
    for metrics in ({"order": {}}, {"frs": {"d": 1}}, {"order": {}, "variance": {}}):
        (folder / "config.yaml").write_text(yaml.safe_dump({**CONFIG, "metric": metrics}, sort_keys=False))
        runs.append(read_run(folder))
    assert Labels(runs).full == ["metric=order", "metric=frs", "metric=order+variance"]
