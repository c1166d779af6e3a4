"""Choices in other orders and forms, from the questions to the report, of a model that always says the first letter."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from experiments import run_experiment
from inspect_ai.log import read_eval_log
from scripted_server import Body, Scripted, ScriptedServer, chat_reply, scripted_server

import robust_eval
from robust_eval.cli.export_run import main
from robust_eval.prompt.arrangement import FORMS, read_arrangement
from robust_eval.stats.interval import SHARE, degenerate_interval
from robust_eval.tracking.result import Result

QUESTIONS = 6
RATERS = 5 + len(FORMS)


def first_sign(body: Body) -> Scripted:
    """Say what stands for the first choice, with log-probabilities where they are asked for."""
    said = "1" if "\n1) " in str(body["messages"][-1]["content"]) else "A"
    reply = chat_reply(said)
    if body.get("logprobs"):
        tops = [{"token": str(rank), "logprob": -0.5 - rank, "bytes": None} for rank in range(10)]
        token = {"token": said, "logprob": -0.5, "bytes": None, "top_logprobs": tops}
        reply[2]["choices"][0]["logprobs"] = {"content": [token]}
    return reply


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    with scripted_server(first_sign) as server:
        yield server


def settings(server: ScriptedServer, store: Path) -> list[str]:
    return [
        "model=openai_compatible",
        f"model.base_url={server.url}",
        "model.model=m",
        "model.name=says A",
        "dataset=physics",
        f"dataset.limit={QUESTIONS}",
        "aggregator=text",
        "tracking=none",
        f"paths.mlruns={store}",
    ]


@pytest.fixture(scope="module")
def ran(server: ScriptedServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path, list[str]]:
    folder, lines = tmp_path_factory.mktemp("run"), settings(server, tmp_path_factory.mktemp("mlruns"))
    return run_experiment(folder, "experiment=order", *lines), folder, lines


def test_a_model_that_always_says_a_is_right_at_the_first_place_alone(ran: tuple[Result, Path, list[str]]):
    result, folder, _ = ran
    assert result.prompts_asked == QUESTIONS * (1 + RATERS)  # and once at temperature 0
    figures = result.scores["order"].metrics()
    assert figures["order.accuracy.place1.t1"] == (1.0, *degenerate_interval(1.0, QUESTIONS, SHARE))
    assert figures["order.bias.place1.t1"] == (1.0, *degenerate_interval(1.0, QUESTIONS, (-1, 1)))
    for place in range(2, 6):
        assert figures[f"order.accuracy.place{place}.t1"] == (0.0, *degenerate_interval(0.0, QUESTIONS, SHARE))
    assert figures["order.cochran_q.t1"].value == pytest.approx(4 * QUESTIONS)
    as_it_stands = sum(question.correct == 0 for question in result.kept) / QUESTIONS
    assert {figures[f"order.form.{form}.t1"].value for form in ("given", *FORMS)} == {as_it_stands}
    assert result.sampler_of == {"order": "order", "agreement": "order"}
    page = (folder / "report.html").read_text()
    assert "100 % of the answers are right with the right choice at position 1, 0 % at position 2." in page
    assert "right in every order and form of the choices" in page
    assert "right in every wording" not in page


def test_labels_are_the_choices_of_the_question_as_it_stands(ran: tuple[Result, Path, list[str]]):
    result, folder, _ = ran
    graded = pq.read_table(folder / "graded.parquet").to_pylist()
    for row in graded:
        arrangement = read_arrangement(row["form"])
        assert row["label"] == ("A" if arrangement is None else "ABCDE"[arrangement.order[0]])
        assert row["text"] == ("1" if arrangement is not None and arrangement.form == "numbers" else "A")
    correct = {question.id: question.correct for question in result.kept}
    assert all(row["correct"] == (row["label"] == "ABCDE"[correct[row["question_id"]]]) for row in graded)


def test_what_was_asked_in_one_order_is_not_asked_again_in_another_run(
    ran: tuple[Result, Path, list[str]], tmp_path: Path
):
    more = ["experiment=order", *ran[2], "sampler.order.orders=permutations", "sampler.order.permutations=2"]
    (tmp_path / "permuted").mkdir()
    permuted = run_experiment(tmp_path / "permuted", *more)
    assert (permuted.prompts_asked, permuted.cache_hits) == (2 * QUESTIONS, (2 + len(FORMS)) * QUESTIONS)
    (tmp_path / "beside").mkdir()
    beside = run_experiment(
        tmp_path / "beside",
        "experiment=multiqa",
        *ran[2],
        "sampler.perturbation.orders=rotations",
        "metric=[agreement,order]",
    )
    wordings = sum(min(5, len(question.rewrites)) for question in beside.kept)
    assert (beside.prompts_asked, beside.cache_hits) == (wordings, (1 + RATERS - len(FORMS)) * QUESTIONS)
    ours = ran[0].scores["order"].metrics()
    for name, value in beside.scores["order"].metrics().items():
        assert str(value) == str(ours[name]), name  # NaN as well


def test_recorded_and_exported_answers_give_the_same_figures(
    ran: tuple[Result, Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    result, folder, lines = ran
    monkeypatch.setattr("robust_eval.plot.figure_files.registered", list)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["export", str(folder), "--to", "inspect", "--output", str(tmp_path / "logs")])
    main()
    (log,) = (tmp_path / "logs").glob("*.eval")
    sample = next(each for each in read_eval_log(str(log)).samples or [] if each.id.endswith("choices BCDEA"))
    question = next(each for each in result.kept if sample.id.startswith(each.id))
    assert sample.choices == [*question.choices[1:], question.choices[0]]
    assert sample.target == ["ABCDE"[(question.correct - 1) % 5]]
    (loaded,) = robust_eval.load_answers(tmp_path / "logs")
    again = loaded.score(["order"], tracking="none").metrics.set_index("name")["value"]
    (tmp_path / "recorded").mkdir()
    recorded = (
        run_experiment(
            tmp_path / "recorded",
            "sampler=recorded",
            f"sampler.recorded.file={folder / 'answers.parquet'}",
            "metric=order",
            "model.name=says A",
            *lines[4:],
        )
        .scores["order"]
        .flat()
    )
    for name, value in result.scores["order"].flat().items():
        assert recorded[name] == pytest.approx(value, nan_ok=True), name
        if name in again:
            assert again[name] == pytest.approx(value, nan_ok=True), name
    assert "order.accuracy.place1.t1" in again


def test_a_profile_joins_orders_and_doubt(ran: tuple[Result, Path, list[str]], tmp_path: Path):
    few = [
        *("sampler.temperature_sweep.temperatures=[0.5,1.0]", "sampler.temperature_sweep.trials=2"),
        *("sampler.temperature_sweep.selection=none", "sampler.repetition.trials=2"),
        *("sampler.perturbation.rewrites=1", "sampler.challenge.turns=1", "sampler.challenge.trials=1"),
    ]
    result = run_experiment(tmp_path, "experiment=profile", *ran[2], *few)
    assert (result.sampler_of["order"], result.sampler_of["challenge"]) == ("order", "challenge")
    table = pq.read_table(tmp_path / "profile.parquet").to_pydict()
    assert table["orders_right"] == pytest.approx([0.2] * QUESTIONS)
    known = [question.correct == 0 for question in result.kept]
    assert 0 < sum(known) < QUESTIONS
    assert result.summary()["profile.robust"] == 1  # of the facts that it knows
    assert result.scores["profile"].n("profile.robust") == sum(known)
    assert result.summary()["profile.robust_to_order"] == 0
    page = (tmp_path / "report.html").read_text()
    assert result.scores["profile"].presentation.title == "All five methods"
    first = {name for each in table["breaks_first"] for name in each.split(", ")}
    assert first <= {"temperature", "rewording", "repetition", "order", "pushback"}
    assert "order" in first
    assert "also right in every order" in page
