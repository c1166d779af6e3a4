"""One question asked live, as a user does: what is shown, how mistakes are answered, and what is asked of a model."""

import importlib
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from golden import Golden
from shell import Shell
from statsmodels.stats.proportion import proportion_confint
from tiny_model import plain_settings, save_tiny_model

from robust_eval.answer import NO_ANSWER, NO_REPLY, Answers, answer_table
from robust_eval.config.overrides import Checked, checked_overrides
from robust_eval.model.base import Request, Temperatures
from robust_eval.model.local.transformers import Transformers

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
WORDINGS, CLUSTERS = "Each wording, answered separately", "Clusters of answers with the same meaning"


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
    """What all asks share, so that the model is asked once."""
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

    def __call__(self, config: Any, *_: object, start_run: object) -> "Scripted":
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
                "rewrite": request.variant,
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
        return Answers(table)


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
    return lambda request, temperature, trial: answers[request.variant]


QUICK = ("rewriter=recorded", "aggregator=text")
RATERS = ("Lyon", "Paris", "paris.", "Lyon", "Nice", "Paris")


def test_every_wording_and_the_clusters_are_shown(ask: Ask, script: Script):
    model = script(by_wording(*RATERS))
    answer = ask(FRANCE, *QUICK)
    assert (answer.status, answer.error) == (0, "")
    wordings = [[str(n), *pair] for n, pair in enumerate(zip(OF_FRANCE, RATERS, strict=True))]
    assert answer.tables == {
        WORDINGS: wordings,
        CLUSTERS: [
            ["1", "Paris (majority vote)", "3", *share(3, 6), "1, 2, 5"],
            ["2", "Lyon", "2", *share(2, 6), "0, 3"],
            ["3", "Nice", "1", *share(1, 6), "4"],
        ],
    }
    assert unsupervised(answer) == agreement([3, 2, 1])
    assert len(answer.lines) == 3
    assert model.models == ["smollm2-135m"]
    assert [(request.variant, request.temperatures, request.trials) for request in model.asked] == [
        (rewrite, (1.0,), 1) for rewrite in range(6)
    ]
    assert [OF_FRANCE[n] in request.prompt.question for n, request in enumerate(model.asked)] == [True] * 6


def test_a_cluster_is_called_by_the_answer_that_was_voted_for_and_else_by_its_first(ask: Ask, script: Script):
    script(by_wording("Paris", "Lyon", "The city of Paris", "Lyon, France", "Paris, France", "the capital is Paris"))
    answer = ask(FRANCE, "rewriter=recorded")
    assert answer.tables[CLUSTERS] == [
        ["1", "the capital is Paris (majority vote)", "4", *share(4, 6), "0, 2, 4, 5"],
        ["2", "Lyon", "2", *share(2, 6), "1, 3"],
    ]


def test_raters_are_asked_several_times(ask: Ask, script: Script):
    script(lambda request, temperature, trial: ("Paris", "Lyon", "Paris")[(request.variant + trial) % 3])
    answer = ask(FRANCE, *QUICK, "sampler.trials=2", "sampler.rewrites=2", "sampler.temperatures=[0.5]")
    assert [row[::2] for row in answer.tables[WORDINGS]] == [
        *(["0", "Paris"], ["0", "Lyon"], ["1", "Lyon"], ["1", "Paris"], ["2", "Paris"], ["2", "Paris"])
    ]
    assert answer.tables[CLUSTERS] == [
        ["1", "Paris (majority vote)", "4", *share(4, 6), "0, 1, 2"],
        ["2", "Lyon", "2", *share(2, 6), "0, 1"],
    ]


@pytest.mark.parametrize("outcome", NO_REPLY)
def test_a_rater_without_a_reply_is_neither_right_nor_wrong_and_in_no_share(ask: Ask, script: Script, outcome: str):
    script(by_wording("Paris", {"text": "", "outcome": outcome}, "Paris", "Paris", "Lyon", "Paris"))
    answer = ask(FRANCE, *QUICK)
    assert answer.tables[WORDINGS][1][2] == f"({outcome})"
    assert answer.tables[CLUSTERS] == [
        ["1", "Paris (majority vote)", "4", *share(4, 5), "0, 2, 3, 5"],
        ["2", "Lyon", "1", *share(1, 5), "4"],
    ]


@pytest.mark.parametrize("outcome", [each for each in NO_ANSWER if each != "invalid"])
def test_a_rater_without_an_answer_is_in_every_share_and_in_no_cluster(ask: Ask, script: Script, outcome: str):
    script(by_wording("Nice", {"text": "Paris", "outcome": outcome}, "Paris", "Lyon", "Paris", "Paris"))
    answer = ask(FRANCE, *QUICK)
    assert answer.tables[WORDINGS][1][2] == f"Paris ({outcome})"
    assert answer.tables[CLUSTERS] == [  # of clusters of one size that of the first answer comes first
        ["1", "Paris (majority vote)", "3", *share(3, 6), "2, 4, 5"],
        ["2", "Nice", "1", *share(1, 6), "0"],
        ["3", "Lyon", "1", *share(1, 6), "3"],
    ]
    assert unsupervised(answer) == agreement([3, 1, 1])


ESCAPE = "What is meant by the escape speed at a planet's surface, if air resistance is ignored?"
COASTING = "B) Least launch speed for coasting away without ever falling back"
TURNING = "C) Speed of a surface point caused by the planet's rotation"
LETTERED = (*QUICK, "dataset=physics")


def test_a_multiple_choice_question_keeps_its_choices(ask: Ask, script: Script):
    model = script(by_wording("B", "b)", "Answer: C", "B", "a thing", "C."))
    answer = ask(f" {ESCAPE}\n", *LETTERED)
    assert answer.tables[CLUSTERS] == [
        ["1", f"{COASTING} (majority vote)", "3", *share(3, 6), "0, 1, 3"],
        ["2", TURNING, "2", *share(2, 6), "2, 5"],
    ]
    assert [row[2] for row in answer.tables[WORDINGS]] == ["B", "b)", "Answer: C", "B", "a thing (invalid)", "C."]
    entropy = -(0.6 * math.log(0.6) + 0.4 * math.log(0.4))
    assert unsupervised(answer) == {  # five letters could have been chosen
        "normalised certainty H_η": f"{1 - entropy / math.log(5):.3f}",
        "Gibbs' M2": f"{1 - 5 / 4 * (1 - 0.6**2 - 0.4**2):.3f}",
        "semantic entropy in nats": f"{entropy:.3f}",
    }
    for request in model.asked:
        assert f"\n{COASTING}\n{TURNING}\n" in request.prompt.question
    assert len({request.prompt.question for request in model.asked}) == 6


MISTAKES = Golden(Path(__file__).with_name("ask_mistakes.jsonl"))


@pytest.mark.parametrize("case", MISTAKES.cases, ids=lambda case: " ".join(case["arguments"]))
def test_a_mistake_is_answered_in_one_sentence_before_anything_is_asked(ask: Ask, script: Script, case: dict[str, Any]):
    model = script(by_wording(*RATERS))
    question, *options = case["arguments"]
    answer = ask(question, *QUICK, *options)
    MISTAKES.check(case, error=answer.error)
    assert (answer.status, answer.tables, model.asked) == (1, {}, [])


def test_without_arguments_only_the_question_is_required(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sys, "argv", ["ask"])
    with pytest.raises(SystemExit):
        ask_module.main()
    assert capsys.readouterr().err.endswith("error: the following arguments are required: question\n")


def test_nobody_is_asked_when_nothing_was_answered(ask: Ask, script: Script):
    script(by_wording(*[{"text": "", "outcome": "empty"}] * 6))
    answer = ask(FRANCE, *QUICK)
    assert (answer.status, answer.error) == (1, "error: no wording was answered")
    assert list(answer.tables) == [WORDINGS]


LISTS = ["1. Which city is the French capital?\n2. How do bees find their way home?\n3. What is the capital of France"]


def writing(*replies: str) -> Say:
    """Lists of rewrites, one for each attempt; everything else is answered with Paris."""
    return lambda request, temperature, trial: "Paris" if request.first_line else replies[request.variant]


def test_rewrites_that_have_drifted_are_marked(ask: Ask, script: Script):
    model = script(writing(*LISTS))
    answer = ask(FRANCE, "rewriter.rewrites=2")
    assert (answer.status, answer.error) == (0, "")
    assert answer.tables[WORDINGS] == [
        ["0", FRANCE, "Paris"],
        ["1", "Which city is the French capital?", "Paris"],
        ["2", "How do bees find their way home? (its meaning may have drifted)", "Paris"],
    ]
    assert answer.tables[CLUSTERS] == [["1", "Paris (majority vote)", "3", *share(3, 3), "0, 1, 2"]]
    assert unsupervised(answer) == agreement([3])
    assert [request.first_line for request in model.asked] == [False, True, True, True]
    assert model.models == ["smollm2-135m"]


def test_another_model_may_write_the_rewrites(ask: Ask, script: Script):
    model = script(writing(*LISTS * 3))
    answer = ask("Why is that so?", "rewriter.rewrites=2", "rewriter.model=smollm2_360m", "rewriter.drift=drop")
    assert model.models == ["smollm2-135m", "smollm2-360m"]
    assert (answer.status, answer.error) == (1, "error: " + NO_WORDING)


NO_WORDING = "the question has no rewrites: choose another rewriter.model"


def test_a_model_that_writes_no_rewrites_is_asked_three_times(ask: Ask, script: Script):
    model = script(writing("", "I am a teapot", f"1. {FRANCE}"))
    answer = ask(FRANCE)
    assert (answer.status, answer.error) == (1, "error: " + NO_WORDING)
    assert [(request.variant, request.first_line) for request in model.asked] == [(n, False) for n in range(3)]
    assert not answer.tables


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The models that are loaded."""
    names: list[str] = []
    load = Transformers.load

    def counted(config: Transformers) -> object:
        names.append(config.name)
        return load(config)

    monkeypatch.setattr(Transformers, "load", counted)
    return names


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """What asks a model that is there."""
    model = save_tiny_model(tmp_path_factory.mktemp("tiny"), letters=True)
    return (FRANCE, "rewriter=recorded", *plain_settings(model))


def test_a_model_is_asked_once(ask: Ask, loads: list[str], real: tuple[str, ...]):
    first, second = ask(*real), ask(*real)
    assert loads == ["tiny"]
    assert (first.status, first.error) == (0, "")
    assert second == first
    assert tuple(asked for _, asked, _ in first.tables[WORDINGS]) == OF_FRANCE
    assert sorted(n for row in first.tables[CLUSTERS] for n in map(int, row[5].split(", "))) == list(range(6))


def test_nothing_but_answers_is_left_behind(
    ask: Ask, mlruns: Path, real: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(mlruns)
    ask(*real)
    assert [file.name for file in mlruns.iterdir()] == ["store"]


def test_rewrites_of_the_data_set_in_a_file_are_no_cause_for_a_warning(
    ask: Ask, script: Script, caplog: pytest.LogCaptureFixture, tmp_path: Path
):
    script(by_wording(*RATERS))
    file = tmp_path / "rewrites.jsonl"
    file.write_text('{"id": "facts-001", "rewrites": ["Which lake is deepest?"]}\n{"id": "facts-002", "rewrites": []}')
    answer = ask("What is the deepest lake in the world?", *QUICK, f"rewriter.file={file}")
    assert [row[1] for row in answer.tables[WORDINGS]][1:] == ["Which lake is deepest?"]
    assert caplog.messages == []


def test_the_command_as_a_user_gives_it(mlruns: Path, ask: Ask, shell: Shell, real: tuple[str, ...]):
    words = ["-m", "robust_eval", "ask", *real, f"paths.mlruns={mlruns}"]
    done = shell.python(words, TERM="dumb", NO_COLOR="1")
    assert said(done.returncode, done.stdout, done.stderr) == ask(*real)
