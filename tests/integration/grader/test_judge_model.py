"""A judge behind a server: what it is asked, what of its verdicts counts, and what is never asked twice."""

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from experiments import configuration, run_experiment
from json_lines import cases
from scripted_server import Body, ScriptedServer, scripted_server
from scripted_server import chat_reply as said

from robust_eval.config.overrides import checked_overrides
from robust_eval.config.schema import register
from robust_eval.error import UserError
from robust_eval.experiment.plan import stages_of
from robust_eval.report.traced_answers import traced_answers
from robust_eval.tracking.result import Result

QUESTIONS = [(f"q{number}", f"What is the name of town {number}?", f"Alder{number}ton") for number in range(12)]
INJECTIONS = cases(__file__, "injections")


def shown(body: Body) -> dict[str, str]:
    """What the judge is shown, by the beginning of the line; each a whole string of JSON."""
    lines = body["messages"][-1]["content"].split("\n")
    return dict(line.split(": ", 1) for line in lines if ": " in line and '"' in line)


def by_the_reference(body: Body) -> tuple[int, dict[str, str], Any]:
    """Right where the reply holds the first letters of the reference."""
    entries = shown(body)
    if not entries:
        return said("ok")  # to whoever asks what the server can do
    reply, reference = json.loads(entries["Reply to be judged"]), entries["Reference answers, each of them right"]
    return said(f"Because.\nVerdict: {'right' if json.loads(reference)[:5] in reply else 'wrong'}")


@pytest.fixture
def judge() -> Iterator[ScriptedServer]:
    with scripted_server(by_the_reference) as server:
        yield server


def settings(folder: Path, judge: ScriptedServer, replies: list[str], *more: str) -> list[str]:
    """Each reply is given to each question, at t = 0.5 or 1 in turns; X stands for the accepted answer."""
    rows = [
        {"question_id": name, "text": reply.replace("X", answer), "temperature": (0.5, 1.0)[k % 2], "trial": k // 2}
        for name, _, answer in QUESTIONS
        for k, reply in enumerate(replies)
    ]
    (folder / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "questions.jsonl").write_text(
        "".join(json.dumps({"id": i, "question": q, "answers": [a]}) + "\n" for i, q, a in QUESTIONS)
    )
    return [
        "sampler=recorded", f"sampler.recorded.file={folder / 'answers.jsonl'}", "model.name=somebody",
        "model.prompt_style=chat", "dataset=jsonl",
        f"dataset.path={folder / 'questions.jsonl'}", "dataset.name=towns", "metric=[certainty]", "grader=judge",
        "model@grader.model=openai_compatible", f"grader.model.base_url={judge.url}", "grader.model.model=judge",
        "grader.model.retries=0", "grader.model.max_error_rate=1", "tracking=none", f"paths.mlruns={folder / 'mlruns'}",
        *more,
    ]  # fmt: skip


def judged(folder: Path, number: int, *overrides: str) -> tuple[Result, Any]:
    place = folder / f"run{number}"
    place.mkdir()
    result = run_experiment(place, *overrides)
    return result, pq.read_table(place / "graded.parquet").to_pandas()


def verdict_requests(judge: ScriptedServer) -> list[str]:
    """The prompts of verdicts; a server is also asked what it can do."""
    return [body["messages"][-1]["content"] for body in judge.bodies if "Is the reply right?" in str(body)]


def test_what_an_exact_rule_decides_is_not_asked_and_nothing_is_judged_twice(judge: ScriptedServer, tmp_path: Path):
    asked = settings(tmp_path, judge, ["X", "The town of X, I think", "It is Boston", "It is Boston"])
    result, graded = judged(tmp_path, 1, *asked)

    assert graded["correct"].tolist() == [True, False, True, False] * 12  # by temperature, then trial
    assert len(verdict_requests(judge)) == 24  # not the equal one, and what is said twice once
    assert result.summary()["prompts.asked"] == 24
    why = pq.read_table(tmp_path / "run1" / "verdicts.parquet").to_pandas()
    assert set(why["why"]) == {"Because."}
    assert len(why) == 24
    traced = traced_answers(result, 48, tmp_path / "run1" / "verdicts.parquet")
    assert [each.judge for each in traced] == [None, "judge", "judge", "judge"] * 12
    assert [each.reason for each in traced[:2]] == ["answer: Alder0ton; accepted: Alder0ton", "Because."]

    result, again = judged(tmp_path, 2, *asked, "metric.certainty.invalid=as_label")
    assert len(verdict_requests(judge)) == 24
    assert again["correct"].tolist() == graded["correct"].tolist()
    assert (result.summary()["prompts.asked"], result.summary()["prompts.cached"]) == (0, 24)


def test_verdicts_that_do_not_come_are_missing_and_are_asked_for_again(judge: ScriptedServer, tmp_path: Path):
    asked = settings(tmp_path, judge, ["The town of X", "It is Boston", "I say X!"])
    down = lambda body: int(re.search(r"town (\d+)", str(body))[1]) % 3 == 0 if "town" in str(body) else False  # noqa: E731
    judge.answer = lambda body: (503, {}, {"error": {"message": "down"}}) if down(body) else by_the_reference(body)
    result, graded = judged(tmp_path, 1, *asked)

    missing = graded["question_id"].isin([f"q{number}" for number in (0, 3, 6, 9)])
    assert set(graded.loc[missing, "outcome"]) == {"error"}
    assert graded.loc[missing, "correct"].isna().all()
    assert set(graded.loc[missing, "reason"]) == {"no verdict"}
    assert set(graded.loc[~missing, "outcome"]) == {"ok"}
    summary = result.summary()
    assert summary["outcomes.error"] == 12 == summary["invalid.no_verdict"]
    assert summary["certainty.error_rate.t1"] == 1  # of those that have a verdict: Boston
    assert summary["certainty.error_rate.t1.n"] == 8

    judge.answer = by_the_reference
    before = len(verdict_requests(judge))
    _, graded = judged(tmp_path, 2, *asked)
    assert set(graded["outcome"]) == {"ok"}
    assert len(verdict_requests(judge)) == before + 12


def test_what_cannot_be_read_in_a_verdict_is_missing(judge: ScriptedServer, tmp_path: Path):
    mute = lambda body: "It is Boston" in str(body)  # noqa: E731
    judge.answer = lambda body: said("I would rather not say.\x1b[31m") if mute(body) else by_the_reference(body)
    _, graded = judged(tmp_path, 1, *settings(tmp_path, judge, ["X it is", "It is Boston"] * 2))

    assert graded["outcome"].tolist() == ["ok", "ok", "error", "error"] * 12


@pytest.mark.parametrize(("replies", "number"), [(["It is Boston", "Boston"] * 2, 20), (["It is Boston", "X"] * 2, 12)])
def test_a_judge_that_gives_no_verdict_on_most_of_its_first_replies_stops_the_run(
    judge: ScriptedServer, tmp_path: Path, replies: list[str], number: int
):
    judge.answer = lambda body: said("I would rather not say.\x1b[31m") if "Is the reply" in str(body) else said("ok")
    with pytest.raises(UserError) as problem:
        judged(tmp_path, 1, *settings(tmp_path, judge, replies))
    assert str(problem.value) == (
        f"the judge judge gave no verdict on {number} of the first {number} replies (it wrote 'I would rather not "
        "say.\\x1b[31m'): set grader.model to a model that judges better, or raise "
        "grader.max_new_tokens"
    )
    assert len(verdict_requests(judge)) == number


@pytest.mark.parametrize("more", [[], ["grader.model=null"], ["aggregator=entailment", "aggregator.model=judge"]])
def test_a_judge_must_be_named(more: list[str]):
    register()
    with pytest.raises(UserError, match=r"^grader=judge needs a model: set grader\.model to an option"):
        checked_overrides(["grader=judge", *more])
    named = checked_overrides(["grader=judge", "grader.model=smollm2_135m"]).config
    assert named.grader.judge_config == named.model


def test_a_slow_judge_is_waited_for_and_its_verdicts_stay_with_their_replies(judge: ScriptedServer, tmp_path: Path):
    """Each verdict waits until the next has been asked for."""
    asked, last = threading.Condition(), [0]

    def late(body: Body) -> tuple[int, dict[str, str], Any]:
        if "Is the reply right?" in str(body):
            with asked:
                last[0] += 1
                own = last[0]
                asked.notify_all()
                asked.wait_for(lambda: last[0] > own or last[0] in (20, 24))  # twenty are asked first
        return by_the_reference(body)

    judge.answer = late
    result, graded = judged(tmp_path, 1, *settings(tmp_path, judge, ["The town of X", "It is Boston"] * 2))

    assert graded["correct"].tolist() == [True, True, False, False] * 12
    assert set(graded["outcome"]) == {"ok"}
    assert (result.summary()["prompts.asked"], len(verdict_requests(judge))) == (24, 24)


def test_the_judge_says_which_answers_mean_the_same_and_a_plan_counts_the_most(judge: ScriptedServer, tmp_path: Path):
    replies = ["X it is", "The X", "X", "Rome or X", "Rome", "Bonn"]
    asked = settings(tmp_path, judge, replies, "aggregator=entailment", "aggregator.model=judge")
    stages = stages_of(configuration(*asked))
    assert [(stage.name, stage.is_upper_bound) for stage in stages] == [("verdicts", True), ("answers compared", True)]
    assert stages[0].requests == stages[0].workload().answers == 12 * 4  # X is right as it stands, and so is The X
    assert stages[1].workload().answers == 12 * 5 * 4  # "The X" has the label of X; each of five, both ways
    assert not judge.bodies

    result, graded = judged(tmp_path, 1, *asked)
    labels = graded[graded["question_id"] == "q3"]["label"].tolist()  # by temperature: X it is, X, Rome; The X, …
    assert labels == ["alder3ton", "alder3ton", "rome", "alder3ton", "rome or alder3ton", "bonn"]
    compared = json.loads(shown(judge.bodies[-1])["Reference answers, each of them right"])
    assert compared[:5] in ("Alder", "The A", "Rome ", "Rome", "Bonn")
    assert result.description["loaded.aggregator.unsure"] == 0
    before = len(verdict_requests(judge))
    assert 0 < before - stages[0].workload().requests <= 12 * 5 * 4
    assert [stage.workload().requests for stage in stages_of(configuration(*asked))] == [0]
    judged(tmp_path, 2, *asked)
    assert len(verdict_requests(judge)) == before


@pytest.mark.parametrize(
    ("replies", "setting", "compared"),
    [
        (["Róme", "Rome"], "grader.accents=fold", 0),
        (["Róme", "Rome"], "grader.accents=keep", 2),
        (["I don't know", "Rome"], "grader.abstention=patterns", 0),
        (["I don't know", "Rome"], "grader.abstention=none", 2),
        (["I don't know", "Rome"], "grader.abstention=judge", 2),
    ],
)
def test_a_plan_counts_the_comparisons_of_the_labels_that_the_grader_gives(
    judge: ScriptedServer, tmp_path: Path, replies: list[str], setting: str, compared: int
):
    asked = settings(tmp_path, judge, replies * 2, "aggregator=entailment", "aggregator.model=judge", setting)
    stages = {stage.name: stage.workload().answers for stage in stages_of(configuration(*asked))}
    assert stages.get("answers compared", 0) == 12 * compared


def test_a_judge_that_nobody_chose_cannot_say_it(judge: ScriptedServer, tmp_path: Path):
    asked = settings(tmp_path, judge, ["X", "Rome"] * 2, "aggregator=entailment", "aggregator.model=judge")
    asked = [line for line in asked if not line.startswith(("grader", "model@grader"))]
    with pytest.raises(UserError, match="set grader=judge"):
        judged(tmp_path, 1, *asked)


def test_several_votes_decide_by_majority(judge: ScriptedServer, tmp_path: Path):
    lock, seen = threading.Lock(), {}

    def two_of_three(body: Body) -> tuple[int, dict[str, str], Any]:
        if "Is the reply" not in str(body):
            return said("ok")
        status, more, reply = said("")
        choices = []
        for _ in range(body.get("n") or 1):
            with lock:
                prompt = body["messages"][-1]["content"]
                seen[prompt] = seen.get(prompt, 0) + 1
                word = "wrong" if seen[prompt] == 2 else "right"
            choices.append(reply["choices"][0] | {"message": {"role": "assistant", "content": f"Verdict: {word}"}})
        return status, more, reply | {"choices": [each | {"index": place} for place, each in enumerate(choices)]}

    judge.answer = two_of_three
    asked = settings(tmp_path, judge, ["It is Boston", "Boston"] * 2, "grader.votes=3", "grader.temperature=1")
    _, graded = judged(tmp_path, 1, *asked)

    assert graded["correct"].all()
    assert set(seen.values()) == {3}


def test_twenty_injections_stay_inside_their_quotation_marks(judge: ScriptedServer, tmp_path: Path):
    assert len(INJECTIONS) == 20
    replies = [text.replace("X", "x") for text in INJECTIONS]
    _, graded = judged(tmp_path, 1, *settings(tmp_path, judge, replies, "reader=reply"))

    assert not graded["correct"].any()
    for body in judge.bodies:
        if "Is the reply right?" in str(body):
            assert len(body["messages"][-1]["content"].splitlines()) == 5
            assert set(shown(body)) == {"Question", "Reference answers, each of them right", "Reply to be judged"}


def test_bias_is_measured_on_request(judge: ScriptedServer, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    def likes_length(body: Body) -> tuple[int, dict[str, str], Any]:
        reply = shown(body).get("Reply to be judged", "")
        return said(f"Verdict: {'right' if len(reply) > 100 else 'wrong'}")

    judge.answer = likes_length
    result, _ = judged(tmp_path, 1, *settings(tmp_path, judge, ["It is Boston", "Boston"] * 2, "grader.bias=10"))

    found = {name: value for name, value in result.description.items() if name.startswith("loaded.grader.bias.")}
    assert found["loaded.grader.bias.padded.become_right"] == found["loaded.grader.bias.padded.verdicts"] == 10
    assert found["loaded.grader.bias.order_swapped.become_right"] == 0
    assert "bias of the judge, padded: of 10 verdicts, 10 changed to right and 0 to wrong" in caplog.text


def test_a_plan_takes_answers_that_are_not_there_to_be_all_different(judge: ScriptedServer):
    model = "openai_compatible", f"model.base_url={judge.url}", "model.model=m"
    asked = [
        *(
            "experiment=multiqa",
            "dataset.limit=3",
            "rewriter=llm",
            "rewriter.rewrites=2",
            "sampler.perturbation.rewrites=2",
        ),
        *(f"model={model[0]}", *model[1:], "grader=judge", "aggregator=entailment", "aggregator.model=judge"),
        *(f"model@grader.model={model[0]}", *(line.replace("model.", "grader.model.") for line in model[1:])),
    ]
    stages = {stage.name: stage.workload() for stage in stages_of(configuration(*asked))}
    raters = stages["sampled answers"].answers // 3
    assert stages["answers compared"].requests == 3 * raters * (raters - 1)
    assert not judge.bodies


def test_a_budget_of_the_judge_stops_the_run_and_keeps_what_was_judged(judge: ScriptedServer, tmp_path: Path):
    asked = settings(
        tmp_path,
        judge,
        ["It is Boston", "Boston"] * 2,
        "grader.model.prompt_price=1",
        "grader.model.completion_price=1",
    )
    with pytest.raises(UserError, match=r"could exceed model\.budget=1e-06 USD"):
        judged(tmp_path, 1, *asked, "grader.model.budget=0.000001")
    assert len(verdict_requests(judge)) < 24


def test_a_judge_whose_answers_are_recorded_is_refused():
    register()
    with pytest.raises(UserError, match=r"grader\.model: x has only recorded answers"):
        checked_overrides(["grader=judge", "grader.model=recorded", "grader.model.name=x"])
