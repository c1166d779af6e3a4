"""Three methods on the same questions, from the questions to the report."""

import json
import math
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from experiments import Runs, configuration, run_experiment, runs_of_tiny_model, tracked_values
from tiny_model import KNOWN, save_tiny_model

from robust_eval.answer import rows
from robust_eval.config.overrides import composed_in
from robust_eval.experiment.answer_source import UNANSWERABLE_STAGE
from robust_eval.experiment.plan import stages_of
from robust_eval.plot.figure_registry import registered
from robust_eval.runs.finished_runs import read_run
from robust_eval.tracking.result import Result

METHODS = ("temperature_sweep", "perturbation", "repetition")
SMALL = {
    "temperature_sweep": ["temperatures=[0.5,1.0,2.0]", "trials=4"],
    "perturbation": ["rewrites=3", "max_new_tokens=8"],
    "repetition": ["trials=5", "max_new_tokens=8"],
}
PROFILE = ["experiment=profile", *(f"sampler.{name}.{setting}" for name in METHODS for setting in SMALL[name])]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Run an experiment with a tiny model on a few facts that it knows."""
    return runs_of_tiny_model(tmp_path_factory, *KNOWN)


@pytest.fixture(scope="module")
def profiled(ask: Runs) -> tuple[Result, Path]:
    """A run of all three that draws what they make of each fact, and no other figure."""
    with pytest.MonkeyPatch.context() as patch:
        entries = [entry for entry in registered() if entry.name == "frs_by_entropy_and_rewording"]
        patch.setattr("robust_eval.plot.figure_files.registered", lambda: entries)
        return ask(*PROFILE, figures=True)


def by_question(result: Result, metric: str, questions: set[str]) -> dict[str, list[float]]:
    score = result.scores[metric]
    own = [question_id in questions for question_id in score.question_ids]
    return {name: values[own].tolist() for name, values in score.by_question.items()}


@pytest.mark.parametrize(
    ("metric", "sampler", "preset"),
    [
        ("frs", "temperature_sweep", ["experiment=frs"]),
        ("agreement", "perturbation", ["experiment=multiqa"]),
        ("certainty", "repetition", ["experiment=certainty", "dataset=facts", "aggregator=clusters"]),
    ],
)
def test_each_method_finds_of_the_kept_questions_what_it_finds_alone(
    ask: Runs, profiled: tuple[Result, Path], metric: str, sampler: str, preset: list[str]
):
    together, _ = profiled
    alone, _ = ask(*preset, *(f"sampler.{sampler}.{setting}" for setting in SMALL[sampler]))
    kept = {question.id for question in together.kept}
    assert len(kept) == 4
    assert kept <= {question.id for question in alone.kept}
    assert alone.cache_hits >= len(kept)  # they came from the store
    np.testing.assert_equal(by_question(together, metric, kept), by_question(alone, metric, kept))


def test_figures_that_are_declared_as_means_are_those_of_which_questions_have_values(profiled: tuple[Result, Path]):
    result, _ = profiled
    for score in result.scores.values():
        declared = {name: spec.mean for name in score.metrics() if (spec := score.spec(name))}
        assert {name for name, mean in declared.items() if mean} == declared.keys() & score.by_question.keys()


def test_the_questions_are_those_that_all_samplers_take(profiled: tuple[Result, Path]):
    result, _ = profiled
    candidates = [question.id for question in result.questions if question.rewrites]
    assert result.graded_baseline["question_id"].to_pylist() == candidates
    assert len(candidates) < len(result.questions)
    exact = pc.and_(result.graded_baseline["exact"], pc.equal(result.graded_baseline["temperature"], 0))
    assert [question.id for question in result.kept] == result.graded_baseline.filter(exact)["question_id"].to_pylist()
    for table in result.graded_by_sampler.values():
        assert set(table["question_id"].to_pylist()) == {question.id for question in result.kept}
    assert result.sampler_of == {
        "frs": "temperature_sweep",
        "agreement": "perturbation",
        "certainty": "repetition",
        "uncertainty": "repetition",
        "reliability": "repetition",
        "variance": "perturbation",
    }


def test_answers_lie_in_one_table_that_says_who_asked(profiled: tuple[Result, Path]):
    result, folder = profiled
    kept = len(result.kept)
    rewritten = sum(1 + min(3, len(question.rewrites)) for question in result.kept)
    expected = {
        "greedy": result.graded_baseline.num_rows,
        "temperature_sweep": kept * 12,
        "perturbation": rewritten,
        "repetition": kept * 5,
    }
    for name in ("answers", "graded"):
        table = pq.read_table(folder / f"{name}.parquet")
        places = table.select(["sampler", "question_id", "rewrite", "temperature", "trial"])
        assert len(set(map(str, places.to_pylist()))) == places.num_rows
        counts = table["sampler"].value_counts().to_pylist()
        assert {count["values"]: count["counts"] for count in counts} == expected
    counts = result.counts()
    assert sum(value for name, value in counts.items() if name.startswith("outcomes.")) == sum(
        expected[name] for name in METHODS
    )


def test_the_profile_joins_them_by_question(profiled: tuple[Result, Path]):
    result, folder = profiled
    table = pq.read_table(folder / "profile.parquet").to_pylist()
    assert [row["question_id"] for row in table] == [question.id for question in result.kept]
    breaking = dict(rows(result.tables["frs"], "question_id", "breaking_temperature"))
    wrong = dict(rows(result.tables["certainty"], "question_id", "error_rate"))
    right = dict(rows(result.tables["agreement"], "question_id", "difficulty"))
    for row in table:
        place = row["question_id"]
        assert (row["breaking_temperature"], row["error_rate"]) == (breaking[place], wrong[place])
        assert row["right_share"] == pytest.approx(right[place])
    firm = [row["breaking_temperature"] == math.inf and row["worst"] == 1 == 1 - row["error_rate"] for row in table]
    assert result.summary()["profile.robust"] == pytest.approx(np.mean(firm))
    questions = pq.read_table(folder / "questions.parquet")
    assert questions.filter(questions["kept"])["profile.robust"].to_pylist() == firm


def test_the_report_shows_all_three_and_where_they_disagree(profiled: tuple[Result, Path]):
    _, folder = profiled
    assert (folder / "figures" / "frs_by_entropy_and_rewording.png").stat().st_size > 10_000
    page = (folder / "report.html").read_text()
    assert "The questions on which the three methods disagree most" in page
    assert 'aria-label="Every fact under three perturbations. ' in page
    assert "of them withstand all three (95 % interval" in page
    table = pq.read_table(folder / "profile.parquet").to_pylist()
    furthest = max(table, key=lambda row: row["disagreement"])
    assert page.index("disagree most") < page.index(furthest["question"]) < page.index("The least robust facts")


def test_recorded_answers_of_all_three_give_the_same_figures(profiled: tuple[Result, Path], tmp_path: Path):
    result, folder = profiled
    again = run_experiment(
        tmp_path,
        *("experiment=profile", "sampler=recorded", f"sampler.recorded.file={folder / 'answers.parquet'}", *KNOWN),
        *("sampler.recorded.selection=exact_match", "model=recorded", "model.name=mine"),
        *("tracking=none", f"paths.mlruns={tmp_path}"),
    )
    assert again.sampler_of == result.sampler_of
    assert result.scores.keys() - again.scores.keys() == {"unanswerable"}  # they are not in the file
    for name, score in again.scores.items():
        ours, theirs = result.scores[name].flat(), score.flat()
        np.testing.assert_equal({figure: theirs[figure] for figure in ours}, ours, err_msg=name)


def test_questions_without_an_answer_are_asked_as_by_the_command_for_them_alone(
    ask: Runs, profiled: tuple[Result, Path]
):
    together, folder = profiled
    repetition = [f"sampler.repetition.{setting}" for setting in SMALL["repetition"]]
    data = "dataset=unanswerable", "dataset.path=builtin:unanswerable.jsonl", "dataset.limit=null"
    alone, _ = ask(*data, "sampler=repetition", "metric=reliability", *repetition)
    asked = pq.read_table(folder / "unanswerable.parquet")
    assert asked.num_rows == alone.graded_by_sampler["repetition"].num_rows == 60 * 5
    assert alone.cache_hits == 60  # the replies came from the store
    counts = together.counts()
    answered = sum(count for name, count in counts.items() if "outcomes." in name and "rewriting" not in name)
    assert (counts["unanswerable.outcomes.ok"], counts["replies.received"]) == (60 * 5, answered)
    expected = alone.scores["reliability"].values["reliability.answered_unanswerable"]
    assert together.scores["unanswerable"].values == {"profile.answered_unanswerable": expected}
    assert "gives an answer in 100 % (94 % to 100 %, n = 60) of its replies to unanswerable questions" in (
        folder / "report.html"
    ).read_text(encoding="utf-8")


CHOICES_ALONE = [f"sampler.{name}.prompts=builtin:physics.yaml" for name in ("order", "challenge", *METHODS)]


@pytest.mark.parametrize(
    ("changed", "asked"), [([], 60), (CHOICES_ALONE, 0), (["metric=[frs,agreement,certainty,order]"], 0)]
)
def test_a_plan_counts_questions_without_an_answer_if_a_profile_can_ask_them(
    changed: list[str], asked: int, tmp_path: Path
):
    settings = ["experiment=profile", "dataset=physics", "dataset.limit=2", f"paths.mlruns={tmp_path}", *changed]
    stages = stages_of(configuration(*settings))
    assert sum(stage.requests for stage in stages if stage.name == UNANSWERABLE_STAGE) == asked


def test_without_one_of_the_three_there_is_no_profile_and_it_is_said(ask: Runs, caplog: pytest.LogCaptureFixture):
    with caplog.at_level("INFO", "robust_eval"):
        result, folder = ask(*PROFILE[:-2], "sampler=[temperature_sweep,perturbation]")
    assert "profile" not in result.scores
    assert not (folder / "profile.parquet").exists()
    assert "no profile: metric=frs reads temperature_sweep, metric=agreement reads perturbation, " in caplog.text


def test_options_that_a_profile_leaves_out_are_logged_and_no_record_has_them(
    ask: Runs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    tracked = tracked_values(monkeypatch)
    with caplog.at_level("INFO", "robust_eval"):
        result, folder = ask(*PROFILE)
    assert (
        "the profile leaves out sampler=challenge (it continues a conversation, but model tiny uses plain prompts), "
        "metric=challenge (no sampler has answers for it)"
    ) in caplog.messages
    method = "frs+agreement+certainty+order+uncertainty+reliability+variance"
    assert (tracked["method"], tracked["sampler"]) == (method, "temperature_sweep+perturbation+repetition+order")
    assert tracked["name"].startswith(f"{method}, tiny, ")
    for settings in (tracked, result.description, read_run(folder).settings):
        assert not [name for name in settings if name.startswith(("sampler.challenge", "metric.challenge"))]
    repeated, _ = composed_in(folder, [])
    assert (repeated.sampler.keys(), repeated.left_out) == ({*METHODS, "order"}, {})


def test_the_temperatures_may_be_enumerated(ask: Runs):
    result, folder = ask(
        *[setting for setting in PROFILE if "temperature_sweep" not in setting],
        "sampler=[exact,perturbation,repetition]",
        "sampler.exact.nodes=20",
        "sampler.exact.temperatures=[0.5,1.0,2.0]",
    )
    assert result.sampler_of["frs"] == "exact"
    assert "frs.offgrid.d1" in result.scores["frs"].values
    assert 0 <= result.summary()["profile.robust"] <= 1  # type: ignore[operator]
    assert set(pq.read_table(folder / "curves.parquet")["sampler"].to_pylist()) == {"exact"}


def test_a_profile_takes_all_six_where_the_model_is_asked_as_in_a_chat_and_says_what_breaks_first(tmp_path: Path):
    asked = [{"id": f"q{i}", "question": f"What {i}?", "answers": ["x"], "rewrites": [f"So {i}?"]} for i in range(2)]
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, asked)))
    lines = [
        *("experiment=profile", "model=transformers", f"model.path={save_tiny_model(tmp_path / 'model')}"),
        *("model.name=tiny", "model.prompt_style=chat", "aggregator=text", "tracking=none", f"paths.mlruns={tmp_path}"),
        *("dataset=jsonl", f"dataset.path={tmp_path / 'questions.jsonl'}", "dataset.name=two"),
        "sampler=[temperature_sweep,perturbation,repetition,order,challenge,thinking]",
        "metric=[frs,agreement,certainty,order,challenge,thinking]",
        *("sampler.temperature_sweep.selection=none", "sampler.temperature_sweep.temperatures=[0.5,1.0]"),
        *("sampler.temperature_sweep.trials=2", "sampler.perturbation.rewrites=1", "sampler.repetition.trials=2"),
        *("sampler.challenge.turns=2", "sampler.challenge.trials=1", "sampler.thinking.answers=2"),
        *("sampler.thinking.traces=2", "sampler.thinking.budgets=[0,4]"),
    ]
    lines += [f"sampler.{name}.prompts=builtin:zero_shot.yaml" for name in (*METHODS, "order", "challenge", "thinking")]
    lines += [f"sampler.{name}.max_new_tokens=4" for name in (*METHODS, "order", "challenge", "thinking")]
    (tmp_path / "run").mkdir()
    result = run_experiment(tmp_path / "run", *lines)
    table = pq.read_table(tmp_path / "run" / "profile.parquet").to_pydict()
    assert {"turns_held", "thought_right", "rank_challenge", "rank_thinking", "breaks_first"} <= table.keys()
    assert result.sampler_of["thinking"] == "thinking"
    assert result.scores["profile"].presentation.title == "All five methods"  # free text has no choices
    plain = [*lines, "model.prompt_style=plain"]
    assert configuration(*plain).sampler.keys() == {*METHODS, "order"}
