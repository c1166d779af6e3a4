"""Logs of inspect_ai with each of its scorers: the error rate is that of the log's exact scorer."""

import json
from pathlib import Path

import pytest

import robust_eval
from robust_eval.error import UserError

CASES = {case["name"]: case for case in json.loads(Path(__file__).with_name("inspect_scorers.json").read_text())}


@pytest.fixture(scope="module")
def logs(inspect_folder: Path) -> Path:
    return inspect_folder / "scorers"


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.keys() & {"refused", "ungraded"}])
def test_the_error_rate_is_that_of_the_log_s_own_exact_scorer(logs: Path, name: str):
    (loaded,) = robust_eval.load_answers(logs / name)
    assert loaded.ungraded == []
    run = loaded.score(["certainty"], tracking="none")
    (scorer,) = loaded.collected.scorers
    theirs = 1 - loaded.answers[f"score.{scorer}"].mean()
    assert theirs == pytest.approx(1 / 3)
    assert run.metrics.set_index("name")["value"]["certainty.error_rate.t0.7"] == pytest.approx(theirs, abs=1e-12)
    assert loaded.agreement(run) == [f"the log's scorer {scorer} and the run's grader agree on 6 of 6 answers"]


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "refused" in case])
def test_a_log_without_exact_targets_or_replies_is_refused_with_the_reason(logs: Path, name: str):
    with pytest.raises(UserError) as caught:
        robust_eval.load_answers(logs / name)[0].score(["certainty"], tracking="none")
    assert CASES[name]["refused"] in str(caught.value)


def test_ungraded_answers_are_counted_where_a_log_is_imported_and_where_it_is_read(
    logs: Path, monkeypatch, capsys, caplog
):
    from robust_eval.cli.import_logs import main

    (loaded,) = robust_eval.load_answers(logs / "several")
    assert loaded.ungraded == CASES["several"]["ungraded"]
    assert repr(loaded).endswith("; 1 of 3 questions ungraded")
    monkeypatch.setattr("sys.argv", ["import", str(logs / "several"), "metric=certainty", "tracking=none"])
    main()
    assert CASES["several"]["ungraded"][0] in " ".join(capsys.readouterr().out.split())
    words = ["sampler=recorded", f"sampler.file={logs / 'several'}", "metric=certainty", "tracking=none"]
    run = robust_eval.run(words)
    assert CASES["several"]["ungraded"][0] in caplog.text
    assert run.title.endswith("2 of 2 questions kept")


def test_a_guideline_is_no_obstacle_where_the_answers_are_named(logs: Path):
    answers = [{"id": str(number), "question": "?", "answers": ["a"]} for number in (1, 2, 3)]
    Path("quiz.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in answers))
    (loaded,) = robust_eval.load_answers(logs / "model_graded_qa")
    run = loaded.score(
        ["certainty"], tracking="none", **{"dataset": "jsonl", "dataset.path": "quiz.jsonl", "dataset.name": "quiz"}
    )
    assert run.title.endswith("3 of 3 questions kept")
