"""Answers that are doubted, from the questions to the report, of a model that gives in at a turn that is known."""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from experiments import configuration, run_experiment
from numbered_server import right_after, settings, yielding
from scripted_server import Body, Scripted, ScriptedServer, chat_reply, scripted_server
from tiny_model import save_tiny_model

from robust_eval.cli.export_run import main as export
from robust_eval.error import UserError
from robust_eval.experiment.plan import stages_of
from robust_eval.prompt.pushback import read_pushback
from robust_eval.runs.comparison import compare
from robust_eval.runs.finished_runs import read_run
from robust_eval.tracking.result import Result

QUESTIONS, TURNS, K = 12, 4, 2


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    with scripted_server(yielding) as server:
        yield server


def lines_of(server: ScriptedServer, folder: Path) -> list[str]:
    return [
        *settings(server, folder, QUESTIONS),
        *("experiment=challenge", "model.name=yielding", "model.highest_temperature=2"),
        *("sampler.challenge.temperatures=[1.0]", f"sampler.challenge.turns={TURNS}", f"sampler.challenge.trials={K}"),
    ]


@pytest.fixture(scope="module")
def ran(server: ScriptedServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path, list[str]]:
    folder, lines = tmp_path_factory.mktemp("run"), lines_of(server, tmp_path_factory.mktemp("data"))
    return run_experiment(folder, *lines), folder, lines


def test_facts_break_at_the_turn_at_which_the_model_gives_in(ran: tuple[Result, Path, list[str]]):
    result, folder, _ = ran
    assert result.prompts_asked == QUESTIONS * (1 + TURNS * K)
    known = [number for number in range(QUESTIONS) if right_after(number, 0)]
    breaks = [number % 6 if 0 < number % 6 <= TURNS else math.inf for number in known]
    table = pq.read_table(folder / "challenge.parquet").to_pydict()
    assert [table["breaking_turn"][number] for number in known] == breaks
    assert [number for number in range(QUESTIONS) if table["right_at_first"][number]] == known
    figures = result.scores["challenge"].metrics()
    for turn in range(1, TURNS + 1):
        assert figures[f"challenge.survival.turn{turn}.t1"].value == np.mean(np.array(breaks) > turn)
        assert figures[f"challenge.mended.turn{turn}.t1"].value == float(turn >= 2)
    assert figures["challenge.mended_share.t1"].value == 1
    page = (folder / "report.html").read_text()
    assert "100 % (29 % to 100 %, n = 3) of the 3 that were wrong at first are right at the end" in page


def test_conversations_are_stored_turn_by_turn(ran: tuple[Result, Path, list[str]]):
    _, folder, _ = ran
    answers = [row for row in pq.read_table(folder / "answers.parquet").to_pylist() if row["temperature"]]
    assert len(answers) == QUESTIONS * TURNS * K
    for row, (number, turn, conversation) in zip(answers, np.ndindex(QUESTIONS, TURNS, K), strict=True):
        challenge = read_pushback(row["form"])
        assert challenge is not None
        assert (row["question_id"], challenge.turn, row["trial"]) == (f"q{number}", turn + 1, conversation)
        assert row["text"] == f"It is word{number if right_after(number, turn + 1) else 'less'}."
        if challenge.kind == "denial":
            assert (f"word{number}" if right_after(number, 0) else "wordless") in challenge.words


def test_more_turns_ask_for_these_alone_and_a_dry_run_says_how_many(
    ran: tuple[Result, Path, list[str]], tmp_path: Path
):
    *_, lines = ran
    more = [*lines, f"sampler.challenge.turns={TURNS + 2}"]
    assert [stage.workload().answers for stage in stages_of(configuration(*lines))] == [0]
    (stage,) = stages_of(configuration(*more))
    assert (stage.workload().answers, stage.is_upper_bound) == (QUESTIONS * K * 2, True)
    (new,) = (stage for stage in stages_of(configuration(*more, "seed=1")) if "greedy" not in stage.name)
    assert new.workload().answers == QUESTIONS * K * (TURNS + 2)
    result = run_experiment(tmp_path, *more)
    assert result.prompts_asked == QUESTIONS * K * 2
    assert result.summary()["challenge.survival.turn6.t1"] == pytest.approx(1 / 9)  # question 6 alone


def test_recorded_answers_give_the_same_and_other_metrics_do_not_read_them(
    ran: tuple[Result, Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    result, folder, lines = ran
    recorded = [
        *("sampler=recorded", f"sampler.recorded.file={folder / 'answers.parquet'}", "model.prompt_style=chat"),
        *("metric=challenge", "model.name=yielding", *lines[3:8]),
    ]
    again = run_experiment(tmp_path, *recorded)
    ours, theirs = (each.scores["challenge"].flat() for each in (result, again))
    assert ours == pytest.approx(theirs, nan_ok=True)
    with pytest.raises(UserError, match="metric=certainty cannot score answers after pushback"):
        configuration(*recorded, "metric=certainty")
    with pytest.raises(UserError, match="metric=challenge needs answers to pushback, turn by turn"):
        configuration("sampler=repetition", "metric=challenge")
    with pytest.raises(UserError, match=r"uses plain prompts: choose a chat model, and set model\.prompt_style=chat"):
        configuration("experiment=challenge", "model.prompt_style=plain")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["export", str(folder), "--to", "inspect", "--output", str(tmp_path / "logs")])
    export()
    assert list((tmp_path / "logs").glob("*.eval"))


def test_two_runs_are_compared_by_their_breaking_turns(
    ran: tuple[Result, Path, list[str]], server: ScriptedServer, tmp_path: Path
):
    def firm(body: Body) -> Scripted:
        """Answer every turn as the first: the two exemplars, the question and the system line are seven messages."""
        return yielding({"messages": body["messages"][:6]})

    server.answer = firm
    try:
        (tmp_path / "firm").mkdir()
        lines = [line for line in ran[2] if not line.startswith("paths.")]
        run_experiment(tmp_path / "firm", *lines, "model.model=firm", "model.name=firm", f"paths.mlruns={tmp_path}")
    finally:
        server.answer = yielding
    runs = [read_run(folder) for folder in (ran[1], tmp_path / "firm")]
    assert runs[0].breaking_temperatures()[0] == [1, 2, 3, 4]
    (pair,) = compare(runs).pairs
    broken = sum(0 < number % 6 <= TURNS for number in range(QUESTIONS) if number % 4)
    assert pair.log_rank is not None
    assert (pair.log_rank.first, pair.log_rank.second, pair.log_rank.statistic) == (broken, 0, broken)
    assert pair.leading == "challenge.unbroken_share.t1"


def test_a_model_of_one_temperature_is_doubted_at_its_own_and_a_judge_reads_every_turn(
    server: ScriptedServer, tmp_path: Path
):
    def judged(body: Body) -> Scripted:
        """Say that a reply is right where the conversation is a judge's; answer any other."""
        judging = "Is the reply right?" in body["messages"][-1]["content"]
        return chat_reply("It is.\nVerdict: right") if judging else yielding(body)

    server.answer = judged
    (tmp_path / "run").mkdir()
    lines = [*lines_of(server, tmp_path), "dataset.limit=4", "model.takes_temperature=false"]
    lines += ["grader=judge", "model@grader.model=openai_compatible", f"grader.model.base_url={server.url}"]
    lines += ["grader.model.model=judge", "grader.model.highest_temperature=2"]
    try:
        (*_, verdicts) = stages_of(configuration(*lines))
        result = run_experiment(tmp_path / "run", *lines)
        assert [stage.workload().answers for stage in stages_of(configuration(*lines))] == [0, 0]
    finally:
        server.answer = yielding
    assert verdicts.workload().answers >= 4 * TURNS * K
    figures = result.scores["challenge"].metrics()
    assert figures[f"challenge.survival.turn{TURNS}.own"].value == 1
    assert result.scores["challenge"].values["challenge.count.known"].value == 4
    assert read_run(tmp_path / "run").breaking_temperatures() == ([1, 2, 3, 4], pytest.approx(np.full(4, math.inf)))


def test_a_model_that_is_loaded_here_is_doubted(tmp_path: Path):
    lines = ["experiment=challenge", "model=transformers", f"model.path={save_tiny_model(tmp_path / 'model')}"]
    lines += ["model.name=tiny", "dataset.limit=3", "sampler.challenge.turns=2", "sampler.challenge.trials=2"]
    lines += ["sampler.challenge.prompts=builtin:zero_shot.yaml", "sampler.challenge.max_new_tokens=6"]
    lines += ["tracking=none", f"paths.mlruns={tmp_path / 'mlruns'}"]
    (tmp_path / "run").mkdir()
    result = run_experiment(tmp_path / "run", *lines)
    answers = pq.read_table(tmp_path / "run" / "graded.parquet").to_pylist()
    assert [row["trial"] for row in answers] == [0] * 3 + [0, 1] * 6
    assert all(row["correct"] is not None for row in answers)
    assert len({(row["question_id"], row["text"]) for row in answers[3:]}) > 6
    assert result.prompts_asked == 3 * (1 + 2 * 2)
    (tmp_path / "again").mkdir()
    again = run_experiment(tmp_path / "again", *lines)
    assert (again.prompts_asked, again.cache_hits) == (0, 3 * (1 + 2 * 2))
    assert again.scores["challenge"].flat() == pytest.approx(result.scores["challenge"].flat(), nan_ok=True)
