"""One question asked live, as a user does: what is shown, how mistakes are answered, and what is asked of a model."""

import importlib
import math
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from facts_by_hand import exact_score
from statsmodels.stats.proportion import proportion_confint
from tiny_model import plain_settings, save_tiny_model

from robust_eval.aggregator.base import ENSEMBLE
from robust_eval.answer import CURVES, NO_ANSWER, NO_REPLY, Answers, answer_table
from robust_eval.cli.ask import Cohort, cohorts_of
from robust_eval.config.overrides import Checked, checked_overrides
from robust_eval.config.schema import PROJECT
from robust_eval.model.base import Request, Temperatures
from robust_eval.model.local.transformers import Transformers
from robust_eval.normalization import normalize
from robust_eval.stats.frs import breaking_temperature, factual_robustness_score, top_entropy

ask_module = importlib.import_module("robust_eval.cli.ask")
FRANCE = "What is the capital of France?"
OF_FRANCE = (
    FRANCE,
    "Which city is the French capital?",
    "Name the city from which France is governed as its capital.",
    "Complete the sentence: the capital city of France is called ___.",
    "A pupil has to mark the capital of France on a map; which city should she mark?",
    "France has which city as its capital?",
)
GRID = [round(0.2 * step, 1) for step in range(1, 11)]
WORDINGS, COHORTS = "Every wording, answered on its own", "Cohorts: raters whose answers mean the same"
WARMER = "Right at rising temperature, 10 trials each"


class Said(NamedTuple):
    """What a command says: its tables by title, and the lines between them."""

    status: int
    tables: dict[str, list[list[str]]]
    lines: list[str]
    error: str


def said(status: int, out: str, error: str) -> Said:
    tables: dict[str, list[list[str]]] = {}
    lines: list[str] = []
    for line in out.splitlines():
        if line.startswith("┏"):
            tables[lines.pop()] = []
        elif line.startswith("│"):
            tables[list(tables)[-1]].append([cell.strip() for cell in line.strip("│").split("│")])
        elif not line.startswith(("┃", "┡", "└")):
            lines.append(line.strip())
    return Said(status, tables, lines, error.strip())


def rightness(answer: Said) -> tuple[str, list[str]]:
    """The title and the figures of the table for a truth."""
    ((title, found),) = [(title, found) for title, found in answer.tables.items() if title.startswith("If ")]
    assert [label for label, _ in found] == [
        "answer to the question as asked (Base)",
        "answer that was voted for (Mode)",
        "every rater right (Worst)",
        "some rater right (Best)",
        "share of raters that are right (μ_D)",
    ]
    return title, [value for _, value in found]


def unsupervised(answer: Said) -> dict[str, str]:
    return {line.split(" (")[0]: line.rpartition(": ")[2] for line in answer.lines if "all raters agree" in line}


def share(count: int, of: int) -> list[str]:
    low, high = proportion_confint(count, of, method="wilson")
    return [f"{count / of:.2f}", f"{low:.2f} to {high:.2f}"]


def agreement(counts: Sequence[int]) -> dict[str, str]:
    """The figures of raters who gave labels so often each, out of as many labels as there are raters."""
    raters = sum(counts)
    shares = [count / raters for count in counts]
    entropy = sum(p * math.log(1 / p) for p in shares)
    return {
        "normalised certainty H_η": f"{1 - entropy / math.log(raters):.3f}",
        "Gibbs' M2": f"{1 - raters / (raters - 1) * (1 - sum(p * p for p in shares)):.3f}",
        "semantic entropy in nats": f"{entropy:.3f}",
    }


Ask = Callable[..., Said]


@lru_cache
def checked(overrides: tuple[str, ...]) -> Checked:
    """To compose one configuration takes longer than to ask a question."""
    return checked_overrides(overrides)


@pytest.fixture(scope="module")
def mlruns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What all asks share, so that the embedded model is asked once."""
    return tmp_path_factory.mktemp("mlruns")


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], mlruns: Path) -> Ask:
    """The command in this process, away from a terminal."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(ask_module, "checked_overrides", lambda overrides: checked(tuple(overrides)))

    def run(*arguments: str) -> Said:
        command = ["ask", *arguments, f"paths.mlruns={mlruns}", "engine.threads=1"]
        monkeypatch.setattr(sys, "argv", command)
        capsys.readouterr()
        status = 0
        try:
            ask_module.main()
        except SystemExit as stopped:
            status = int(stopped.code or 0)
        return said(status, *capsys.readouterr())

    return run


Row = Mapping[str, Any] | str
Say = Callable[[Request, float, int], Row]


class Scripted:
    """Stands in for StoredModel: answers come from a script, and what was asked is remembered."""

    def __init__(self, say: Say) -> None:
        self.say = say
        self.models: list[str] = []
        self.asked: list[Request] = []

    def __call__(self, config: Any, *_: object, begin: object) -> "Scripted":
        self.models.append(config.name)
        return self

    def temperatures(self, wanted: float) -> Temperatures:
        assert wanted == 1.0
        return Temperatures()

    def answers(self, requests: Sequence[Request], stage: str) -> Answers:
        assert stage
        self.asked += requests
        table = answer_table(
            {
                "question_id": request.question_id,
                "rewrite": request.rewrite,
                "temperature": temperature,
                "trial": trial,
                "outcome": "ok",
                "weight": 1 / request.trials,
                "finish_reason": "stop",
                **(found if isinstance(found, Mapping) else {"text": found}),
            }
            for request in requests
            for temperature in request.temperatures
            for trial in range(request.trials)
            for found in [self.say(request, temperature, trial)]
        )
        return Answers(table, CURVES.empty_table())


Script = Callable[[Say], Scripted]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    def put(say: Say) -> Scripted:
        model = Scripted(say)
        monkeypatch.setattr("robust_eval.experiment.models.StoredModel", model)
        return model

    return put


def by_wording(*answers: Row) -> Say:
    """The raters' answers, one for each wording."""
    return lambda request, temperature, trial: answers[request.rewrite]


QUICK = ("rewriter=recorded", "aggregator=text")
RATERS = ("Lyon", "Paris", "paris.", "Lyon", "Nice", "Paris")


def graded(*answers: tuple[Any, ...]) -> Any:
    """Raters as (rewrite, text, label, outcome, whether it was voted for)."""
    table = answer_table(
        {
            "question_id": "q",
            "rewrite": rewrite,
            "temperature": 1.0,
            "trial": 0,
            "text": text,
            "label": label,
            "outcome": outcome,
            "weight": 1.0,
        }
        for rewrite, text, label, outcome, _ in answers
    )
    return table.append_column(ENSEMBLE, [[voted for *_, voted in answers]])


def test_cohorts_are_ordered_by_size_and_then_by_who_came_first():
    found = cohorts_of(
        graded(
            (0, "Tours", "tours", "ok", False),
            (1, "Lyon!", "lyon", "ok", False),
            (2, "Paris", "paris", "ok", False),
            (3, "lyon", "lyon", "ok", True),
            (3, "PARIS", "paris", "ok", False),
            (4, "Lyon", "lyon", "ok", False),
            (5, "Oslo", "oslo", "ok", False),
        )
    )
    assert found == [
        Cohort("lyon", ["Lyon!", "lyon", "Lyon"], [1, 3, 4], "lyon"),
        Cohort("paris", ["Paris", "PARIS"], [2, 3], None),
        Cohort("tours", ["Tours"], [0], None),
        Cohort("oslo", ["Oslo"], [5], None),
    ]


@pytest.mark.parametrize("outcome", [*NO_REPLY, *NO_ANSWER])
def test_who_does_not_answer_is_in_no_cohort(outcome: str):
    silent = (0, "Paris", "paris", outcome, False)
    assert cohorts_of(graded(silent)) == []
    assert cohorts_of(graded(silent, (1, "Paris", "paris", "ok", True), (2, "…", None, "ok", False))) == [
        Cohort("paris", ["Paris"], [1], "Paris")
    ]


def test_nobody_makes_no_cohort():
    assert cohorts_of(graded((0, "", "", "ok", False)).slice(0, 0)) == []


def test_every_wording_and_the_cohorts_are_shown(ask: Ask, script: Script):
    model = script(by_wording(*RATERS))
    answer = ask(FRANCE, *QUICK)
    assert (answer.status, answer.error) == (0, "")
    wordings = [[str(n), *pair] for n, pair in enumerate(zip(OF_FRANCE, RATERS, strict=True))]
    assert answer.tables == {
        WORDINGS: wordings,
        COHORTS: [
            ["1", "Paris (voted for)", "3", *share(3, 6), "1, 2, 5"],
            ["2", "Lyon", "2", *share(2, 6), "0, 3"],
            ["3", "Nice", "1", *share(1, 6), "4"],
        ],
    }
    assert unsupervised(answer) == agreement([3, 2, 1])
    assert len(answer.lines) == 3
    assert model.models == ["smollm2-135m"]
    assert [(request.rewrite, request.temperatures, request.trials) for request in model.asked] == [
        (rewrite, (1.0,), 1) for rewrite in range(6)
    ]
    assert [OF_FRANCE[n] in request.prompt.question for n, request in enumerate(model.asked)] == [True] * 6


@pytest.mark.parametrize(
    ("truth", "title", "figures"),
    [
        ("1", "'Paris'", [0, 1, 0, 1, 3 / 6]),
        ("2", "'Lyon'", [1, 0, 0, 1, 2 / 6]),
        ("1,2", "'Paris' or 'Lyon'", [1, 1, 0, 1, 5 / 6]),
        ("2, 1,2", "'Lyon' or 'Paris'", [1, 1, 0, 1, 5 / 6]),
        ("1,2,3", "'Paris' or 'Lyon' or 'Nice'", [1, 1, 1, 1, 1]),
        ("3", "'Nice'", [0, 0, 0, 1, 1 / 6]),
    ],
)
def test_a_truth_says_how_right_the_raters_are(ask: Ask, script: Script, truth: str, title: str, figures: list[float]):
    script(by_wording(*RATERS))
    answer = ask(FRANCE, *QUICK, "--truth", truth)
    assert rightness(answer) == (f"If {title} is right", [f"{figure:.3f}" for figure in figures])
    assert unsupervised(answer) == agreement([3, 2, 1])


def test_a_cohort_is_called_by_the_answer_that_was_voted_for_and_else_by_its_first(ask: Ask, script: Script):
    script(by_wording("Paris", "Lyon", "The city of Paris", "Lyon, France", "Paris, France", "the capital is Paris"))
    answer = ask(FRANCE, "rewriter=recorded", "--truth", "2,1")
    assert answer.tables[COHORTS] == [
        ["1", "the capital is Paris (voted for)", "4", *share(4, 6), "0, 2, 4, 5"],
        ["2", "Lyon", "2", *share(2, 6), "1, 3"],
    ]
    assert rightness(answer)[0] == "If 'Lyon' or 'the capital is Paris' is right"


def test_raters_are_asked_several_times(ask: Ask, script: Script):
    script(lambda request, temperature, trial: ("Paris", "Lyon", "Paris")[(request.rewrite + trial) % 3])
    answer = ask(FRANCE, *QUICK, "sampler.trials=2", "sampler.rewrites=2", "sampler.temperatures=[0.5]", "--truth", "2")
    assert [row[::2] for row in answer.tables[WORDINGS]] == [
        *(["0", "Paris"], ["0", "Lyon"], ["1", "Lyon"], ["1", "Paris"], ["2", "Paris"], ["2", "Paris"])
    ]
    assert answer.tables[COHORTS] == [
        ["1", "Paris (voted for)", "4", *share(4, 6), "0, 1, 2"],
        ["2", "Lyon", "2", *share(2, 6), "0, 1"],
    ]
    assert rightness(answer)[1] == ["0.000", "0.000", "0.000", "1.000", "0.333"]


def test_a_rater_without_an_answer_is_wrong(ask: Ask, script: Script):
    script(by_wording("Paris", {"text": "", "outcome": "empty"}, "Paris", "Lyon", "Paris", "Paris"))
    answer = ask(FRANCE, *QUICK, "--truth", "1,2")
    assert answer.tables[WORDINGS][1][2] == "(empty)"
    assert answer.tables[COHORTS] == [
        ["1", "Paris (voted for)", "4", *share(4, 6), "0, 2, 4, 5"],
        ["2", "Lyon", "1", *share(1, 6), "3"],
    ]
    assert unsupervised(answer) == agreement([4, 1])
    assert rightness(answer)[1] == ["1.000", "1.000", "0.000", "1.000", f"{5 / 6:.3f}"]


@pytest.mark.parametrize("outcome", NO_REPLY)
def test_a_rater_without_a_reply_is_neither_right_nor_wrong_and_in_no_share(ask: Ask, script: Script, outcome: str):
    script(by_wording("Paris", {"text": "", "outcome": outcome}, "Paris", "Paris", "Lyon", "Paris"))
    answer = ask(FRANCE, *QUICK, "--truth", "1")
    assert answer.tables[WORDINGS][1][2] == f"({outcome})"
    assert answer.tables[COHORTS] == [
        ["1", "Paris (voted for)", "4", *share(4, 5), "0, 2, 3, 5"],
        ["2", "Lyon", "1", *share(1, 5), "4"],
    ]
    assert rightness(answer)[1] == ["1.000", "1.000", "0.000", "1.000", f"{4 / 5:.3f}"]
    script(by_wording("Paris", {"text": "Lyon", "outcome": outcome}, *["Paris"] * 4))
    assert rightness(ask(FRANCE, *QUICK, "--truth", "1"))[1] == ["1.000"] * 5


@pytest.mark.parametrize("outcome", [each for each in NO_ANSWER if each != "invalid"])
def test_a_refusal_is_not_right(ask: Ask, script: Script, outcome: str):
    script(by_wording("Paris", {"text": "Paris", "outcome": outcome}, "Paris", "Lyon", "Lyon", "Paris"))
    answer = ask(FRANCE, *QUICK, "--truth", "1")
    assert answer.tables[WORDINGS][1][2] == f"Paris ({outcome})"
    assert answer.tables[COHORTS] == [
        ["1", "Paris (voted for)", "3", *share(3, 6), "0, 2, 5"],
        ["2", "Lyon", "2", *share(2, 6), "3, 4"],
    ]
    assert rightness(answer)[1] == ["1.000", "1.000", "0.000", "1.000", f"{3 / 6:.3f}"]


def test_answers_are_shown_as_they_are(ask: Ask, script: Script):
    script(by_wording(*["[red]Paris[/] :smile:"] * 6))
    answer = ask(FRANCE, *QUICK, "--truth", "1")
    assert [row[2] for row in answer.tables[WORDINGS]] == ["[red]Paris[/] :smile:"] * 6
    assert answer.tables[COHORTS][0][1] == "[red]Paris[/] :smile: (voted for)"
    assert rightness(answer)[0] == "If '[red]Paris[/] :smile:' is right"


SURE, TORN = [1.0, *[0.0] * 19], [0.5, 0.5, *[0.0] * 18]
ENTROPY = math.log10(2) / 2  # of TORN and SURE, with k = 10; the end of the answer is left out


def at_rising_temperature(raters: Sequence[str], greedy: str, right: Sequence[int]) -> Say:
    """Raters, then a greedy answer of the tokens TORN, SURE and the end, then so many right trials at each level."""
    logprobs = [[math.log(p) if p else -math.inf for p in token] for token in (TORN, SURE, TORN)]

    def say(request: Request, temperature: float, trial: int) -> Row:
        if temperature == 0:
            return {"text": greedy, "top_logprobs": logprobs, "answer_tokens": 2}
        if len(request.temperatures) == 1:
            return raters[request.rewrite]
        return "It is PARIS, of course" if trial < right[GRID.index(temperature)] else "Rome"

    return say


ONCE = ("--temperatures", "--truth", "1")
CONTAINS = "An answer is right here if it contains one of the cohort's answers as whole words."


def test_a_fact_breaks_at_rising_temperature(ask: Ask, script: Script):
    right = [10, 9, 10, 8, 5, 6, 4, 7, 1, 0]  # a tie holds, and what comes after the first break does not count
    model = script(at_rising_temperature(["Paris"] * 6, "Paris", right))
    answer = ask(FRANCE, *QUICK, *ONCE, "sampler.max_new_tokens=7", "sampler.prompts=builtin:zero_shot.yaml")
    assert answer.tables[WARMER] == [
        [f"{t:g}", str(count), *share(count, 10)] for t, count in zip(GRID, right, strict=True)
    ]
    shares = [count / 10 for count in right]
    assert breaking_temperature([shares], GRID).tolist() == [1.4]
    assert top_entropy([TORN, SURE]).mean() == pytest.approx(ENTROPY)
    scores = {d: float(exact_score(ENTROPY, 1.4, d)) for d in (1, 2, 5, 10, 50)}
    for d, score in scores.items():
        assert factual_robustness_score([ENTROPY], [1.4], d).tolist() == pytest.approx([score])
    assert answer.lines[3:] == [
        CONTAINS,
        "greedy answer: Paris (right)",
        f"initial entropy H: {ENTROPY:.3f}",
        "breaking temperature t_b: 1.4",
        *(f"FRS, d = {d}: {score:.3f}" for d, score in scores.items()),
    ]
    asked = [(r.rewrite, r.temperatures, r.trials, r.max_new_tokens) for r in model.asked[6:]]
    assert asked == [(0, (0.0,), 1, 7), (0, tuple(GRID), 10, 7)]
    assert [request.prompt for request in model.asked[6:]] == [model.asked[0].prompt] * 2
    assert model.asked[0].prompt.exemplars == ()
    assert {request.matcher for request in model.asked} == {None}


def test_right_at_rising_temperature_is_what_any_of_the_right_cohorts_said(ask: Ask, script: Script):
    script(at_rising_temperature(RATERS, "Lyon", [10] * 5 + [0] * 5))
    wrong = ask(FRANCE, *QUICK, "--temperatures", "--truth", "3")
    assert {row[1] for row in wrong.tables[WARMER]} == {"0"}
    both = ask(FRANCE, *QUICK, "--temperatures", "--truth", "3,1")
    assert [row[1] for row in both.tables[WARMER]] == ["10"] * 5 + ["0"] * 5
    assert "greedy answer: Lyon (wrong)" in both.lines
    assert "greedy answer: Lyon (right)" in ask(FRANCE, *QUICK, "--temperatures", "--truth", "2").lines


def test_a_fact_that_the_greedy_answer_has_wrong_has_no_frs(ask: Ask, script: Script):
    script(at_rising_temperature(["Paris"] * 6, "Rome", [10] * 10))
    assert ask(FRANCE, *QUICK, *ONCE).lines[3:] == [
        CONTAINS,
        "greedy answer: Rome (wrong)",
        "FRS is defined for facts that the greedy answer has right, so there is none.",
    ]


def test_trials_without_a_reply_are_in_no_share_at_rising_temperature(ask: Ask, script: Script):
    usual = at_rising_temperature(["Paris"] * 6, "Paris", [7] * 10)

    def say(request: Request, temperature: float, trial: int) -> Row:
        silent = len(request.temperatures) > 1 and trial > 7
        return {"text": "", "outcome": "filtered_reply"} if silent else usual(request, temperature, trial)

    script(say)
    assert ask(FRANCE, *QUICK, *ONCE).tables[WARMER] == [[f"{t:g}", "7", *share(7, 8)] for t in GRID]


def test_an_unbroken_fact_is_called_so_and_scores_one(ask: Ask, script: Script):
    script(at_rising_temperature(["Paris"] * 6, "Paris", [10] * 9 + [5]))
    lines = ask(FRANCE, *QUICK, *ONCE).lines
    assert "breaking temperature t_b: unbroken" in lines
    assert [line for line in lines if line.startswith("FRS")] == [f"FRS, d = {d}: 1.000" for d in (1, 2, 5, 10, 50)]


ESCAPE = "What is meant by the escape speed at a planet's surface, if air resistance is ignored?"
COASTING = "B) Least launch speed for coasting away without ever falling back"
TURNING = "C) Speed of a surface point caused by the planet's rotation"
LETTERED = (*QUICK, "dataset=physics")


def test_a_multiple_choice_question_keeps_its_choices(ask: Ask, script: Script):
    model = script(by_wording("B", "b)", "Answer: C", "B", "a thing", "C."))
    answer = ask(f" {ESCAPE}\n", *LETTERED, "--truth", "2")
    assert answer.tables[COHORTS] == [
        ["1", f"{COASTING} (voted for)", "3", *share(3, 6), "0, 1, 3"],
        ["2", TURNING, "2", *share(2, 6), "2, 5"],
    ]
    assert [row[2] for row in answer.tables[WORDINGS]] == ["B", "b)", "Answer: C", "B", "a thing (invalid)", "C."]
    assert rightness(answer) == (f"If {TURNING!r} is right", ["0.000", "0.000", "0.000", "1.000", f"{2 / 6:.3f}"])
    entropy = -(0.6 * math.log(0.6) + 0.4 * math.log(0.4))
    assert unsupervised(answer) == {  # five letters could have been chosen
        "normalised certainty H_η": f"{1 - entropy / math.log(5):.3f}",
        "Gibbs' M2": f"{1 - 5 / 4 * (1 - 0.6**2 - 0.4**2):.3f}",
        "semantic entropy in nats": f"{entropy:.3f}",
    }
    for request in model.asked:
        assert f"\n{COASTING}\n{TURNING}\n" in request.prompt.question
    assert len({request.prompt.question for request in model.asked}) == 6


@pytest.mark.parametrize(("truth", "verdict"), [("1", "right"), ("2", "wrong")])
def test_a_letter_is_asked_at_rising_temperature(ask: Ask, script: Script, truth: str, verdict: str):
    def say(request: Request, temperature: float, trial: int) -> Row:
        if len(request.temperatures) > 1:
            return "C" if trial < 3 else "B"
        token = [math.log(p) if p else -math.inf for p in SURE]
        answer = "C" if request.rewrite > 3 else "B."
        return {"text": answer, "top_logprobs": [token], "answer_tokens": 1}

    script(say)
    answer = ask(ESCAPE, *LETTERED, "--truth", truth, "--temperatures")
    assert answer.tables[WARMER][0] == ["0.2", *(["7", *share(7, 10)] if truth == "1" else ["3", *share(3, 10)])]
    assert f"greedy answer: B. ({verdict})" in answer.lines
    assert CONTAINS not in answer.lines
    assert ("FRS, d = 1: 1.000" in answer.lines) == (verdict == "right")


def test_only_one_letter_is_right_at_rising_temperature(ask: Ask, script: Script):
    script(by_wording("B", "B", "C", "B", "C", "C"))
    answer = ask(ESCAPE, *LETTERED, "--truth", "1,2", "--temperatures")
    assert (answer.status, answer.error) == (1, "error: --temperatures takes one right letter")
    assert WARMER not in answer.tables


NO_COHORTS = {
    "9": "there is no cohort 9: they are numbered 1 to 3",
    "1,9": "there is no cohort 9: they are numbered 1 to 3",
    "0": "there is no cohort 0: they are numbered 1 to 3",
    "-1": "there is no cohort -1: they are numbered 1 to 3",
}


@pytest.mark.parametrize("truth", NO_COHORTS)
def test_a_truth_that_is_no_cohort_is_answered_in_one_sentence(ask: Ask, script: Script, truth: str):
    script(by_wording(*RATERS))
    answer = ask(FRANCE, *QUICK, f"--truth={truth}")
    assert (answer.status, answer.error) == (1, f"error: {NO_COHORTS[truth]}")
    assert list(answer.tables) == [WORDINGS, COHORTS]


def no_list(truth: str) -> str:
    return f"error: the truth must be the number of a cohort, or several (1,3), not {truth!r}"


@pytest.mark.parametrize("truth", ["x", "1;2", "", "1,", ",", "1.5", "Paris", "1 2"])
def test_a_truth_that_is_no_list_of_numbers_is_refused_before_anything_is_composed(
    ask: Ask, script: Script, monkeypatch: pytest.MonkeyPatch, truth: str
):
    model = script(by_wording(*RATERS))
    composed: list[Sequence[str]] = []
    monkeypatch.setattr(ask_module, "checked_overrides", composed.append)
    answer = ask(FRANCE, *QUICK, f"--truth={truth}", "no=setting")
    assert answer == Said(1, {}, [], no_list(truth))
    assert (composed, model.models) == ([], [])


TAKES = "robust-eval ask takes sampler=perturbation, with one temperature"
MISTAKES = {
    (FRANCE, "--temperatures"): "--temperatures must know what is right: add --truth N",
    (FRANCE, "sampler.temperatures=[0.5,1.0]"): TAKES,
    (FRANCE, "sampler=temperature_sweep"): TAKES,
    (FRANCE, "experiment=frs"): TAKES,
    (FRANCE, "sampler=exact", "metric=frs"): TAKES,
    (FRANCE, "seed=1,2"): "one configuration at a time: seed=1,2 has several values",
    (FRANCE, "model=smollm2_135m,smollm2_360m"): "one configuration at a time: model=smollm2_135m,smollm2_360m has "
    "several values",
    ("seed=1", FRANCE): f"{FRANCE!r} is no override: write KEY=VALUE",
    ("",): "the question is empty",
    (" \n",): "the question is empty",
    ("Who wrote the play Hamlet?",): "question asked, 'Who wrote the play Hamlet?', is an exemplar of the prompt; "
    "remove it from the questions, or take other exemplars: sampler.prompts names a file of them, and "
    "builtin:zero_shot.yaml has none",
}


@pytest.mark.parametrize("arguments", MISTAKES, ids=" ".join)
def test_a_mistake_is_answered_in_one_sentence_before_anything_is_asked(
    ask: Ask, script: Script, arguments: tuple[str, ...]
):
    model = script(by_wording(*RATERS))
    question, *options = arguments
    answer = ask(question, *QUICK, *options)
    assert (answer.status, answer.error) == (1, f"error: {MISTAKES[arguments]}")
    assert not model.asked
    assert not answer.tables


NOT_ON_RECORD = (
    "error: the question has no other wording: have some written (rewriter=llm), or ask a question that has them on "
    "record"
)


@pytest.mark.parametrize("question", ["Why is the sky blue?", FRANCE.lower()])
def test_a_question_without_rewrites_on_record_is_refused(ask: Ask, script: Script, question: str):
    model = script(by_wording(*RATERS))
    assert ask(question, *QUICK) == Said(1, {}, [], NOT_ON_RECORD)
    assert model.asked == []


def test_an_unknown_option_is_answered_with_the_usage(ask: Ask, script: Script):
    model = script(by_wording(*RATERS))
    answer = ask(FRANCE, "--colour", *QUICK)
    assert answer.status == 2
    assert answer.error.startswith("usage: robust-eval ask [-h] [--truth N] [--temperatures]")
    assert "unrecognized arguments: --colour" in answer.error
    assert not model.asked


def test_nobody_is_asked_when_nothing_was_answered(ask: Ask, script: Script):
    script(by_wording(*[{"text": "", "outcome": "empty"}] * 6))
    answer = ask(FRANCE, *QUICK, "--truth", "1")
    assert (answer.status, answer.error) == (1, "error: no wording was answered")
    assert list(answer.tables) == [WORDINGS]


def test_options_stand_anywhere(ask: Ask, script: Script):
    script(at_rising_temperature(RATERS, "Lyon", [0] * 10))
    answer = ask("--temperatures", FRANCE, QUICK[0], "--truth=2", QUICK[1])
    assert (answer.status, answer.error) == (0, "")
    assert rightness(answer)[0] == "If 'Lyon' is right"
    assert WARMER in answer.tables


LISTS = ["1. Which city is the French capital?\n2. How do bees find their way home?\n3. What is the capital of France"]


def writing(*replies: str) -> Say:
    """Lists of rewrites, one for each attempt; everything else is answered with Paris."""
    return lambda request, temperature, trial: "Paris" if request.first_line else replies[request.rewrite]


def test_rewrites_that_have_drifted_are_marked(ask: Ask, script: Script):
    model = script(writing(*LISTS))
    answer = ask(FRANCE, "rewriter.rewrites=2", "--truth", "1")
    assert (answer.status, answer.error) == (0, "")
    assert answer.tables[WORDINGS] == [
        ["0", FRANCE, "Paris"],
        ["1", "Which city is the French capital?", "Paris"],
        ["2", "How do bees find their way home? (its meaning may have drifted)", "Paris"],
    ]
    assert answer.tables[COHORTS] == [["1", "Paris (voted for)", "3", *share(3, 3), "0, 1, 2"]]
    assert unsupervised(answer) == agreement([3])
    assert [request.first_line for request in model.asked] == [False, True, True, True]
    assert model.models == ["smollm2-135m"]


def test_another_model_may_write_the_rewrites(ask: Ask, script: Script):
    model = script(writing(*LISTS * 3))
    answer = ask("Why is that so?", "rewriter.rewrites=2", "rewriter.model=smollm2_360m", "rewriter.drift=drop")
    assert model.models == ["smollm2-135m", "smollm2-360m"]
    assert (answer.status, answer.error) == (1, "error: " + NO_WORDING)


def test_the_model_that_is_measured_may_be_named_as_the_one_that_rewrites(ask: Ask, script: Script):
    model = script(writing(*LISTS))
    assert ask(FRANCE, "rewriter.rewrites=2", "rewriter.model=smollm2_135m").status == 0
    assert model.models == ["smollm2-135m"]


def test_an_exemplar_of_the_rewriting_prompt_is_refused(ask: Ask, script: Script):
    model, question = script(writing(*LISTS)), " what do BEES collect from flowers? "
    answer = ask(question, "rewriter=llm", "--truth", "1")
    assert answer == Said(
        1,
        {},
        [],
        f"error: question asked, {question.strip()!r}, is an exemplar of the prompt; remove it from the questions, or "
        "take other exemplars: rewriter.prompts names a file of them, and builtin:zero_shot.yaml has none",
    )
    assert model.asked == []


NO_WORDING = "the question has no other wording: choose a model that writes some (rewriter.model=…)"


def test_a_model_that_writes_no_rewrites_is_asked_three_times(ask: Ask, script: Script):
    model = script(writing("", "I am a teapot", f"1. {FRANCE}"))
    answer = ask(FRANCE)
    assert (answer.status, answer.error) == (1, "error: " + NO_WORDING)
    assert [(request.rewrite, request.first_line) for request in model.asked] == [(n, False) for n in range(3)]
    assert not answer.tables


PROMPT = "Which cohort is right? Its number, several (1,3), or Enter for none: "


class Terminal:
    """A terminal at which somebody gives these replies."""

    def __init__(self, *replies: str | type[BaseException]) -> None:
        self.replies = list(replies)

    def isatty(self) -> bool:
        return True

    def input(self) -> str:
        reply = self.replies.pop(0)
        if isinstance(reply, str):
            print(reply)  # a terminal shows what is typed
            return reply
        raise reply


@pytest.fixture
def replying(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Terminal]:
    def sit(*replies: str | type[BaseException]) -> Terminal:
        terminal = Terminal(*replies)
        monkeypatch.setattr(sys, "stdin", terminal)
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        monkeypatch.setenv("TERM", "dumb")  # which shows no colours
        monkeypatch.setenv("LINES", "200")  # without it, a dumb terminal is 80 columns wide
        monkeypatch.setattr("builtins.input", terminal.input)
        return terminal

    return sit


def test_somebody_at_a_terminal_is_asked_until_the_truth_is_a_cohort(ask: Ask, script: Script, replying: Any):
    script(by_wording(*RATERS))
    terminal = replying("9", "Paris", " 1 , 2 ")
    answer = ask(FRANCE, *QUICK)
    assert answer.status == 0
    assert rightness(answer)[0] == "If 'Paris' or 'Lyon' is right"
    assert answer.error.splitlines() == [f"error: {NO_COHORTS['9']}", no_list("Paris")]
    assert answer.lines[3:] == [f"{PROMPT}{reply}".strip() for reply in ("9", "Paris", " 1 , 2 ")]
    assert terminal.replies == []


def test_nobody_is_asked_for_a_truth_that_was_given(ask: Ask, script: Script, replying: Any):
    script(by_wording(*RATERS))
    terminal = replying("2")
    assert rightness(ask(FRANCE, *QUICK, "--truth", "1"))[0] == "If 'Paris' is right"
    assert terminal.replies == ["2"]


@pytest.mark.parametrize("stream", ["stdin", "stdout"])
def test_nobody_is_asked_unless_input_and_output_are_a_terminal(
    ask: Ask, script: Script, replying: Any, monkeypatch: pytest.MonkeyPatch, stream: str
):
    model = script(by_wording(*RATERS))
    terminal = replying("1")
    monkeypatch.setattr(getattr(sys, stream), "isatty", lambda: False)
    told = ask(FRANCE, *QUICK, "--temperatures")
    assert told == Said(1, {}, [], "error: --temperatures must know what is right: add --truth N")
    assert model.asked == []
    answer = ask(FRANCE, *QUICK)
    assert (answer.status, answer.error) == (0, "")
    assert list(answer.tables) == [WORDINGS, COHORTS]
    assert len(answer.lines) == 3
    monkeypatch.setattr(sys, "stdin", None)
    assert ask(FRANCE, *QUICK).status == 0
    assert terminal.replies == ["1"]


@pytest.mark.parametrize("options", [(), ("--temperatures",)], ids=" ".join)
@pytest.mark.parametrize("reply", ["", "  ", EOFError])
def test_enter_and_ctrl_d_say_that_no_cohort_is_right(
    ask: Ask, script: Script, replying: Any, reply: Any, options: tuple[str, ...]
):
    script(by_wording(*RATERS))
    terminal = replying(reply)
    answer = ask(FRANCE, *QUICK, *options)
    assert (answer.status, answer.error) == (0, "")
    assert list(answer.tables) == [WORDINGS, COHORTS]
    assert answer.lines[3:] == [PROMPT.strip()]
    assert terminal.replies == []


def test_the_truth_that_somebody_gives_is_asked_at_rising_temperature(ask: Ask, script: Script, replying: Any):
    script(at_rising_temperature(RATERS, "Paris", [10] * 5 + [0] * 5))
    replying("1")
    answer = ask(FRANCE, *QUICK, "--temperatures")
    assert "breaking temperature t_b: 1.2" in answer.lines


def stopped(*_: object) -> Row:
    raise KeyboardInterrupt


def test_ctrl_c_ends_it_with_its_status(ask: Ask, script: Script, replying: Any):
    script(stopped)
    assert ask(FRANCE, *QUICK)[0] == 128 + signal.SIGINT
    script(by_wording(*RATERS))
    replying(KeyboardInterrupt)
    answer = ask(FRANCE, *QUICK)
    assert (answer.status, answer.error) == (130, "")


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch, embedded: object) -> list[str]:
    """The models that are loaded; it is the embedded one, whatever its name."""
    names: list[str] = []

    def load(config: Transformers) -> object:
        names.append(config.name)
        return embedded

    monkeypatch.setattr(Transformers, "load", load)
    return names


REAL = (FRANCE, "rewriter=recorded")


def test_the_embedded_model_is_asked_once(ask: Ask, loads: list[str]):
    first, second = (ask(*REAL, "--truth", truth) for truth in ("1", "1"))
    assert loads == ["smollm2-135m"]
    assert (first.status, first.error) == (0, "")
    assert second == first
    wordings, cohorts = first.tables[WORDINGS], first.tables[COHORTS]
    assert tuple(asked for _, asked, _ in wordings) == OF_FRANCE
    forms = [normalize(text) for *_, text in wordings]
    assert sorted(n for row in cohorts for n in map(int, row[5].split(", "))) == list(range(6))
    counts = [int(row[2]) for row in cohorts]
    assert counts == sorted(counts, reverse=True)
    for row, count in zip(cohorts, counts, strict=True):
        assert row[3:5] == share(count, 6)
        assert len(row[5].split(", ")) == count
    for form in set(forms):  # answers with one form are in one cohort
        members = {n for n in range(6) if forms[n] == form}
        assert sum(members <= set(map(int, row[5].split(", "))) for row in cohorts) == 1
    assert unsupervised(first) == agreement(counts)
    right = set(map(int, cohorts[0][5].split(", ")))
    assert rightness(first)[1] == [f"{figure:.3f}" for figure in (0 in right, 1, len(right) == 6, 1, len(right) / 6)]
    assert cohorts[0][1].endswith("(voted for)")


def test_nothing_but_answers_is_left_behind(ask: Ask, mlruns: Path, loads: list[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(mlruns)
    ask(*REAL)
    assert [file.name for file in mlruns.iterdir()] == ["store"]


@pytest.fixture
def tiny(tmp_path: Path) -> list[str]:
    return plain_settings(save_tiny_model(tmp_path / "model"))


def test_another_truth_is_no_cause_for_a_warning(ask: Ask, tiny: list[str], caplog: pytest.LogCaptureFixture):
    settings = (FRANCE, *QUICK, *tiny, "sampler.max_new_tokens=3", "--temperatures", "--truth")
    assert [ask(*settings, truth).status for truth in ("1", "2")] == [0, 0]
    assert caplog.messages == []


def test_rewrites_of_the_data_set_in_a_file_are_no_cause_for_a_warning(
    ask: Ask, script: Script, caplog: pytest.LogCaptureFixture, tmp_path: Path
):
    script(by_wording(*RATERS))
    file = tmp_path / "rewrites.jsonl"
    file.write_text('{"id": "facts-001", "rewrites": ["Which lake is deepest?"]}\n{"id": "facts-002", "rewrites": []}')
    answer = ask("What is the deepest lake in the world?", *QUICK, f"rewriter.file={file}")
    assert [row[1] for row in answer.tables[WORDINGS]][1:] == ["Which lake is deepest?"]
    assert caplog.messages == []


def environment() -> dict[str, str]:
    return os.environ | {"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"}


COMMAND = [sys.executable, "-m", "robust_eval", "ask"]


@pytest.fixture
def console() -> Iterator[tuple[int, int]]:
    ours, theirs = pty.openpty()
    yield ours, theirs
    os.close(ours)


def shown(ours: int, seconds: float = 90) -> Iterator[str]:
    """What a terminal shows, as far as it goes."""
    os.set_blocking(ours, False)
    text, end = "", time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if not (read := os.read(ours, 65536)):
                return
            text += read.decode()
        except BlockingIOError:
            time.sleep(0.02)
        except OSError:  # the other end is closed
            return
        yield text


def test_at_a_terminal_the_truth_is_asked_for(mlruns: Path, ask: Ask, loads: list[str], console: tuple[int, int]):
    ask(*REAL)  # the store has it
    ours, theirs = console
    process = subprocess.Popen(
        [*COMMAND, *REAL, "aggregator=text", f"paths.mlruns={mlruns}"],
        cwd=PROJECT,
        env=environment(),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    replies = iter(["9\n", "\x04"])
    prompts, text = 0, ""
    try:
        for text in shown(ours):
            while text.count(PROMPT) > prompts:
                prompts += 1
                os.write(ours, next(replies).encode())
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
    assert prompts == 2
    after = re.split(re.escape(PROMPT), text)[1]
    assert re.search(r"^error: there is no cohort 9: they are numbered 1 to \d+\s*$", after, re.MULTILINE)
    assert WORDINGS in text
    assert "is right\r\n" not in text
    assert "Traceback" not in text
