"""robust_eval from Python: the same figures as the command, tables, pages, errors, and nothing that stays set."""

import asyncio
import gc
import json
import logging
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
import torch
from hydra.core.global_hydra import GlobalHydra
from scripted_server import scripted_server
from shell import Shell
from tiny_model import KNOWN, plain_settings, save_tiny_model
from unseen import unseen

import robust_eval
from robust_eval import Evaluation, FunctionModel, Repetition, Score, UserError
from robust_eval.config.config import Config
from robust_eval.metric.certainty_metric import AnswerCertainty
from robust_eval.model.local.transformers import Transformers

QUESTIONS = [
    {"id": "fr", "question": "What is the capital of France?", "answers": ["Paris"]},
    {"id": "it", "question": "What is the capital of Italy?", "answers": ["Rome", "Roma"]},
]
QUICK: dict[str, Any] = {"experiment": "certainty", "tracking": "none", "sampler.trials": 4}


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("robust_eval.plot.figure_files.registered", list)  # most of the time of a small run
    monkeypatch.setattr("robust_eval.report.comparison_gallery.save_comparison_figures", lambda compared, folder: [])


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Settings of a model with random weights that knows the facts it is asked for."""
    tiny = plain_settings(save_tiny_model(tmp_path_factory.mktemp("model"), letters=True))
    return [*tiny, *KNOWN, "dataset.limit=8", "engine.threads=1"]


@pytest.fixture
def asked() -> list[list[str]]:
    return []


@pytest.fixture
def paris(asked: list[list[str]]) -> Callable[[list[str]], list[str]]:
    """A model that knows one town; the prompts of each call are in ``asked``."""

    def paris(prompts: list[str], temperature: float) -> list[str]:
        asked.append(prompts)
        return ["Paris" for _ in prompts]

    return paris


def figures(run: Evaluation) -> dict[str, float]:
    """All but how long it took and what was found in the store."""
    values = run.metrics.set_index("name")["value"]
    return {str(name): value for name, value in values.items() if not str(name).startswith(("seconds.", "prompts."))}


# --- runs -------------------------------------------------------------------------------------------------------------


def test_a_run_gives_the_figures_of_the_command_to_the_last_bit_and_a_second_call_asks_nothing(
    shell: Shell, tiny: list[str], tmp_path: Path
):
    settings = [*tiny, "sampler.trials=4", "metric=[frs,certainty]"]
    ran = shell.python(["-m", "robust_eval", *settings, "hydra.run.dir=command"], tmp_path, figures=False)
    assert ran.returncode == 0, ran.stderr
    first = robust_eval.run([*settings, "store=none"])
    second = robust_eval.run(settings)
    written = json.loads((tmp_path / "command" / "summary.json").read_text())
    of_command = {
        name: np.nan if value is None else float(value)
        for name, value in written.items()
        if not name.endswith((".low", ".high", ".n")) and not name.startswith(("seconds.", "prompts."))
    }
    np.testing.assert_equal(figures(first), of_command)
    np.testing.assert_equal(figures(second), of_command)
    assert json.loads((second.folder / "summary.json").read_text())["prompts.asked"] == 0
    ends = first.metrics.set_index("name")
    for name in first.metrics["name"]:
        for column, end in (("low", ".low"), ("high", ".high")):
            expected = written.get(f"{name}{end}")
            assert ends.loc[name, column] == expected or (np.isnan(ends.loc[name, column]) and expected is None)
        assert ends.loc[name, "n"] is pd.NA or ends.loc[name, "n"] == written.get(f"{name}.n", ends.loc[name, "n"])
    tables = {
        name: pd.read_parquet(tmp_path / "command" / f"{name}.parquet") for name in ("questions", "graded", "frs")
    }
    pd.testing.assert_frame_equal(first.questions, tables["questions"])
    pd.testing.assert_frame_equal(first.answers, tables["graded"])
    pd.testing.assert_frame_equal(first.table("frs"), tables["frs"])
    assert first.exact_curves.empty  # of an exact run alone
    assert {path.name for path in tmp_path.iterdir()} == {"mlruns", "command"}


def test_a_function_is_a_model_and_a_table_is_a_data_set(paris: Callable, asked: list[list[str]]):
    run = robust_eval.run(model=paris, dataset=QUESTIONS, **QUICK)
    errors = run.metrics.set_index("name").loc["certainty.error_rate.t0.7"]
    assert (errors["value"], errors["n"]) == (0.5, 2)
    assert run.questions["certainty.error_rate.t0.7"].tolist() == [0, 1]
    assert set(run.answers["text"]) == {"Paris"}
    assert run.exact_curves.empty
    assert [len(prompts) for prompts in asked] == [2, 8]  # greedy answers, and four trials of both
    assert all(prompt.rsplit("\n\n", 1)[1].count("What is the capital of ") == 1 for prompt in asked[0])


def test_a_dataframe_says_the_same_as_its_rows(paris: Callable, asked: list[list[str]]):
    frame = pd.DataFrame(QUESTIONS).assign(answers=[np.array(["Paris"]), ("Rome", "Roma")], note=[np.nan, "old"])
    one, other = (
        robust_eval.run(model=paris, dataset=frame, **QUICK),
        robust_eval.run(model=paris, dataset=[QUESTIONS[0], QUESTIONS[1] | {"note": "old"}], **QUICK),
    )
    np.testing.assert_equal(figures(one), figures(other))
    assert len(asked) == 2  # the second found everything: one function, one name, one store
    (table,) = Path("mlruns", "tables").iterdir()
    assert [json.loads(line) for line in table.read_text().splitlines()] == [
        QUESTIONS[0],
        QUESTIONS[1] | {"note": "old"},
    ]


def test_columns_with_other_names_and_choices_are_read_as_from_a_file(paris: Callable):
    frame = pd.DataFrame({"prompt": ["Which?"], "a": ["one"], "b": ["two"], "key": [2]})
    columns = {"question": "prompt", "choices": ["a", "b"], "correct": "key"}
    settings = {"dataset.columns": columns, "dataset.correct": "from_1", "dataset.name": "mine"}
    run = robust_eval.run(model=paris, dataset=frame, **QUICK, **settings)
    assert run.title == "paris on mine: 1 of 1 questions kept"
    assert run.questions["scenario"].tolist() == ["multiple_choice"]


def test_questions_with_rewrites_are_asked_in_other_words(paris: Callable, asked: list[list[str]]):
    reworded = [question | {"rewrites": ["Which town is the seat of government?"]} for question in QUESTIONS]
    settings = {"experiment": "multiqa", "aggregator": "text", "tracking": "none"}
    run = robust_eval.run(model=paris, dataset=pd.DataFrame(reworded), **settings)
    assert run.answers.groupby("rewrite").size().to_dict() == {0: 4, 1: 2}  # greedy ones, too, to the question itself
    assert sum("seat of government" in prompt for prompts in asked for prompt in prompts) == 2
    assert run.title == "paris on local: 2 of 2 questions kept"


def test_stored_answers_without_log_probabilities_do_not_make_frs_possible(paris: Callable):
    settings = {"sampler": "temperature_sweep", "sampler.trials": 2, "tracking": "none"}
    robust_eval.run(model=paris, dataset=QUESTIONS, metric="reliability", **settings)
    with pytest.raises(UserError, match=r"^paris returns no log-probabilities"):
        robust_eval.run(model=paris, dataset=QUESTIONS, metric="frs", **settings)


def test_what_a_part_returns_instead_is_named(paris: Callable, monkeypatch: pytest.MonkeyPatch):
    short = Score(["fr", "it"])
    short.add_share("mine", np.array([1.0]), groups=None)
    for result, sentence in (
        (0.5, "score() must return a Score, not a float"),
        (short, "mine has 1 values, but its Score has 2 question_ids"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(AnswerCertainty, "score", lambda *_, result=result: result)
            with pytest.raises(UserError) as refused:
                robust_eval.run(model=paris, dataset=QUESTIONS, **QUICK)
            assert str(refused.value) == f"metric=certainty: {sentence}"
    monkeypatch.setattr(Repetition, "requests", lambda *_: None)
    with pytest.raises(UserError, match=r"^sampler=repetition: requests\(\) must return a list of Request, not None$"):
        robust_eval.run(model=paris, dataset=QUESTIONS, **QUICK)


def test_a_path_is_a_data_set(paris: Callable, tmp_path: Path):
    pd.DataFrame(QUESTIONS).explode("answers")[["question", "answers"]].iloc[:2].to_csv("towns.csv", index=False)
    for path in ("towns.csv", tmp_path / "towns.csv"):
        run = robust_eval.run(model=paris, dataset=path, **QUICK)
        assert run.title == "paris on towns: 2 of 2 questions kept"


def test_an_object_of_a_class_of_ones_own_is_a_model(paris: Callable):
    first = robust_eval.run(model=FunctionModel(paris, "town", version="1"), dataset=QUESTIONS, **QUICK)
    settings = {line.strip() for line in (first.folder / "config.yaml").read_text().splitlines()}
    assert {"name: town", "kind: FunctionModel", "version: '1'"} <= settings
    summary = json.loads((first.folder / "summary.json").read_text())
    assert summary["prompts.asked"] == 4


def test_what_a_function_raises_comes_through_and_what_had_come_is_kept(asked: list[list[str]]):
    def tired(prompts: list[str], temperature: float) -> list[str]:
        asked.append(prompts)
        if len(asked) == 2:
            raise RuntimeError("tired")
        return ["Rome" for _ in prompts]

    for expected in (RuntimeError, None):
        if expected:
            with pytest.raises(RuntimeError, match=r"^tired$"):
                robust_eval.run(model=tired, dataset=QUESTIONS, **QUICK)
        else:
            robust_eval.run(model=tired, dataset=QUESTIONS, **QUICK)
    assert [len(prompts) for prompts in asked] == [2, 8, 8]  # greedy answers came, the trials failed, the trials came


def test_a_run_goes_where_it_is_told(paris: Callable, tmp_path: Path):
    run = robust_eval.run(model=paris, dataset=QUESTIONS, folder="here/mine", **QUICK, **{"paths.mlruns": "there"})
    assert (run.folder, (tmp_path / "here/mine/summary.json").is_file()) == (Path("here/mine"), True)
    assert {path.name for path in tmp_path.iterdir()} == {"here", "there"}
    assert {path.name for path in (tmp_path / "there").iterdir()} == {"store", "tables"}


def test_warnings_of_a_run_are_in_its_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    run = robust_eval.run(model=lambda prompts: ["Rome" for _ in prompts], dataset=QUESTIONS, **QUICK)
    said = "the function <lambda> has no parameter 'temperature'"
    assert said in (run.folder / "run.log").read_text()
    assert [message.startswith(said) for message in caplog.messages if "function" in message] == [True]


# --- the process ------------------------------------------------------------------------------------------------------


def state() -> dict[str, Any]:
    return {
        "hydra": GlobalHydra.instance().is_initialized(),
        "mlflow": mlflow.active_run(),
        "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
        "threads": torch.get_num_threads(),
        "handlers": list(logging.getLogger().handlers),
        "levels": [logging.getLogger(name).level for name in ("", "robust_eval")],
        "garbage": gc.get_threshold(),
        "hooks": (sys.excepthook, sys.unraisablehook),
        "folder": Path.cwd(),
    }


def test_nothing_stays_set_in_the_process(tiny: list[str]):
    torch.set_num_threads(2)
    try:
        before = state()
        robust_eval.run([*tiny, "experiment=smoke"])
        assert state() == before
        with pytest.raises(UserError):
            robust_eval.run(["dataset.limit=0"])
        with pytest.raises(UserError):
            robust_eval.run(model=lambda prompts: [], dataset=QUESTIONS, **QUICK)
        assert state() == before
    finally:
        torch.set_num_threads(1)


def test_it_works_inside_a_running_event_loop_with_a_model_behind_a_server():
    reply = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Paris"}, "finish_reason": "stop"}]}
    usage = {"usage": {"prompt_tokens": 3, "completion_tokens": 1}}

    with scripted_server(lambda body: (200, {}, reply | usage)) as server:
        address = {"model.base_url": server.url, "model.model": "town", "model.name": "town"}

        async def main() -> Evaluation:
            return robust_eval.run(model="openai_compatible", dataset=QUESTIONS, **QUICK, **address)

        run = asyncio.run(main())
    assert set(run.answers["text"]) == {"Paris"}


def test_calls_in_two_threads_run_one_after_the_other(paris: Callable):
    runs: list[Evaluation] = []
    threads = [
        threading.Thread(target=lambda: runs.append(robust_eval.run(model=paris, dataset=QUESTIONS, **QUICK)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_equal(figures(runs[0]), figures(runs[1]))


# --- reading, comparing, scoring --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[Evaluation]:
    """Runs of models that know one town each."""
    where = {"dataset.name": "<b>mine</b>", "paths.mlruns": str(tmp_path_factory.mktemp("two") / "mlruns")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("robust_eval.plot.figure_files.registered", list)
        models = [
            FunctionModel(lambda prompts, temperature, town=town: [town] * len(prompts), town.lower(), "1")
            for town in ("Paris", "Rome")
        ]
        return [robust_eval.run(model=model, dataset=QUESTIONS, **QUICK, **where) for model in models]


def test_a_finished_run_is_read_from_its_folder(two: list[Evaluation]):
    run, _ = two
    again = robust_eval.load(str(run.folder))
    pd.testing.assert_frame_equal(again.metrics, run.metrics)
    assert repr(again) == repr(run)


def test_what_is_printed_or_shown_in_a_notebook_says_the_headline_and_escapes_what_others_wrote(two: list[Evaluation]):
    run, _ = two
    lines = repr(run).splitlines()
    assert lines[0] == "paris on <b>mine</b>: 2 of 2 questions kept"
    assert lines[1].split("  ")[-1] == " questions" or lines[1].endswith("questions")
    assert any(line.split()[:5] == ["error", "rate", "at", "t", "="] and " 0.500 " in line for line in lines)
    assert lines[-2:] == [
        "Some intervals rest on only 2 questions: with fewer than 30 they are rough.",
        f"folder: {run.folder}",
    ]
    shown = run._repr_html_()
    assert shown.startswith("<p>paris on &lt;b&gt;mine&lt;/b&gt;: 2 of 2 questions kept</p><table")
    assert "<td>0.500</td>" in shown


def test_runs_are_compared_by_themselves_or_by_their_folders(two: list[Evaluation], tmp_path: Path):
    compared = robust_eval.compare(two, folder="beside")
    by_folder = robust_eval.compare([run.folder for run in two])
    for name in ("runs", "pairs", "questions"):
        one, other = getattr(compared, name), getattr(by_folder, name)
        pd.testing.assert_frame_equal(one, other)
        assert len(one) > 0
    assert compared.folder == Path("beside")
    assert by_folder.folder.is_relative_to(tmp_path / "mlruns" / "comparisons")
    verdict, components, what, _ = repr(compared).splitlines()
    assert verdict.startswith("paris and rome share too few independent questions for a verdict (30 are needed). ")
    assert components.startswith("Variance components of the difference in accuracy at t = ")
    assert what == "2 runs of paris and rome on <b>mine</b>."
    assert compared._repr_html_().startswith(
        "<p>paris and rome share too few independent questions for a verdict (30 are needed). "
    )
    (tmp_path / "beside" / "comparison.html").read_text()


def test_a_report_is_shown_below_the_cell_of_a_notebook_and_else_in_the_browser(
    two: list[Evaluation], monkeypatch: pytest.MonkeyPatch
):
    run, _ = two
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    run.show()
    assert opened == [(run.folder / "report.html").resolve().as_uri()]

    shown: list[Any] = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    monkeypatch.setattr("IPython.get_ipython", lambda: SimpleNamespace(kernel=object()))
    run.show()
    (page,) = shown
    assert page.data.startswith('<div><iframe srcdoc="&lt;!doctype html&gt;')
    assert len(opened) == 1


ANSWERS = [
    {"question_id": question, "text": text, "temperature": 0.7, "trial": trial}
    for question, texts in {"fr": ["Paris", "Paris", "Lyon", "Paris"], "it": ["Rome", "Milan", "Roma", "Rome"]}.items()
    for trial, text in enumerate(texts)
]


@pytest.mark.parametrize("table", [list, pd.DataFrame], ids=["mappings", "DataFrame"])
def test_answers_of_ones_own_are_scored(table: Callable):
    run = robust_eval.score(table(ANSWERS), table(QUESTIONS), metrics=["certainty"], model="mine", tracking="none")
    values = run.metrics.set_index("name")["value"]
    assert values["certainty.error_rate.t0.7"] == 0.25
    # (3/4, 1/4) twice: "Rome" and "Roma" are one accepted answer's aliases, and three texts of which two are equal
    one = -(0.75 * np.log(0.75) + 0.25 * np.log(0.25))
    other = -(0.5 * np.log(0.5) + 2 * 0.25 * np.log(0.25))
    assert values["certainty.entropy.t0.7"] == pytest.approx((one + other) / 2, abs=1e-12)
    assert run.title == "mine on local: 2 of 2 questions kept"


def test_columns_that_the_first_answer_lacks_are_kept():
    first, *others = ANSWERS
    given = [first, *(answer | {"outcome": "refused"} for answer in others)]
    run = robust_eval.score(given, QUESTIONS, metrics=["certainty"], tracking="none")
    assert run.answers["outcome"].value_counts().to_dict() == {"refused": len(others), "ok": 1}


@pytest.mark.parametrize(("sampler", "dtype"), [("exact", "float32"), ("temperature_sweep", "auto")])
def test_probabilities_of_a_model_object_are_measured_in_float32(
    sampler: str, dtype: str, monkeypatch: pytest.MonkeyPatch
):
    def stop(config: Config, *_: object) -> None:
        raise KeyboardInterrupt(config.model)

    monkeypatch.setattr("robust_eval.api.run_experiment", stop)
    model = Transformers(name="mine", path="nowhere", prompt_style="plain", dtype="auto")
    with pytest.raises(KeyboardInterrupt) as stopped:
        robust_eval.run([f"sampler={sampler}", "metric=frs"], model=model)
    assert stopped.value.args[0].dtype == dtype


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raised",
    [FileNotFoundError(2, "No such file or directory", "/my/weights.bin"), ConnectionRefusedError(111, "refused")],
    ids=lambda raised: type(raised).__name__,
)
def test_an_operating_system_error_of_a_function_is_not_one_of_the_run(raised: OSError):
    def failing(prompts: list[str], temperature: float) -> list[str]:
        raise raised

    with pytest.raises(type(raised)) as problem:
        robust_eval.run(model=failing, dataset=QUESTIONS, **QUICK)
    assert problem.value is raised


class Nameless(robust_eval.ModelConfig):
    name = ""

    def identity(self) -> dict[str, Any]:
        return {}

    def load(self) -> Any:
        raise AssertionError


def _town(prompts: list[str], temperature: float) -> list[str]:
    return ["Rome" for _ in prompts]


BAD: dict[str, tuple[Callable[[], object], str]] = {
    "a keyword": (lambda: robust_eval.run(modle="smollm2_135m"), "there is no setting modle (did you mean model?)"),
    "a value": (lambda: robust_eval.run(["dataset.limit=0"]), "dataset.limit must be at least 1, not 0"),
    "a type of a value": (
        lambda: robust_eval.run(seed={1, 2}),
        "seed must be a string, a number, a list or a mapping, not set",
    ),
    "no override": (lambda: robust_eval.run(["facts"]), "'facts' is not an override: write KEY=VALUE"),
    "overrides that are no texts": (
        lambda: robust_eval.run([{"seed": 1}]),  # type: ignore[list-item]
        "an override must be a string such as 'dataset.limit=100', not {'seed': 1}",
    ),
    "one override in place of a list": (
        lambda: robust_eval.run("seed=1"),
        "overrides must be a list such as ['dataset.limit=100'], not 'seed=1'",
    ),
    "a sweep": (
        lambda: robust_eval.run(["seed=1,2"]),
        "seed=1,2 has several values: a call runs one experiment, so call once for each",
    ),
    "what belongs to the command line": (
        lambda: robust_eval.run(["dry_run=true"]),
        "dry_run=true: dry_run works on the command line only, not in a call from Python",
    ),
    "a number as a model": (
        lambda: robust_eval.run(model=3),  # type: ignore[arg-type]
        "model must be the name of an option, a function from prompts to strings, or an instance of a subclass of ",
    ),
    "a class as a model": (
        lambda: robust_eval.run(model=FunctionModel),
        "model=FunctionModel is a class: pass an instance, FunctionModel(…)",
    ),
    "a model without a name": (
        lambda: robust_eval.run(model=Nameless()),
        "model: Nameless must have a name, which tables and the tracker show",
    ),
    "a function for what needs log-probabilities": (
        lambda: robust_eval.run(model=_town, dataset=QUESTIONS, tracking="none"),
        "_town returns no log-probabilities: choose sampler=repetition or sampler=perturbation, without metric=frs",
    ),
    "a function for a conversation": (
        lambda: robust_eval.run(["experiment=challenge"], model=_town, dataset=QUESTIONS, tracking="none"),
        "sampler=challenge continues a conversation, but model _town uses plain prompts: choose a chat model",
    ),
    "a function for thoughts": (
        lambda: robust_eval.run(["experiment=thinking"], model=_town, dataset=QUESTIONS, tracking="none"),
        "sampler=thinking requests reasoning in the chat format, but model _town uses plain prompts: ",
    ),
    "a function with other parameters": (
        lambda: robust_eval.run(model=lambda prompts, t: prompts, dataset=QUESTIONS, **QUICK),
        "the function <lambda> must take a list of prompts and, optionally, a temperature: missing a required ",
    ),
    "a text that cannot be written": (
        lambda: robust_eval.run(model=lambda prompts: ["\ud800"] * len(prompts), dataset=QUESTIONS, **QUICK),
        "the function <lambda> returned '\\ud800', which is not Unicode text",
    ),
    "too few texts": (
        lambda: robust_eval.run(model=lambda prompts: ["Rome"], dataset=QUESTIONS, **QUICK),
        "the function <lambda> must return a list of 2 strings, not 1",
    ),
    "one text in place of a list": (
        lambda: robust_eval.run(model=lambda prompts: "Rome", dataset=QUESTIONS, **QUICK),
        "the function <lambda> must return a list of 2 strings, not a str",
    ),
    "no text": (
        lambda: robust_eval.run(model=lambda prompts: [None] * len(prompts), dataset=QUESTIONS, **QUICK),
        "the function <lambda> must return strings, not a NoneType",
    ),
    "a cell that cannot be written": (
        lambda: robust_eval.run(dataset=[{"question": "Who?", "answers": {"Karl"}}], **QUICK),
        "dataset, row 1: Object of type set is not JSON serializable",
    ),
    "a table without answers": (
        lambda: robust_eval.run(dataset=[{"question": "Who?"}], model=_town, **QUICK),
        "mlruns/tables/",
    ),
    "no such run": (
        lambda: robust_eval.load("nowhere"),
        "there is no folder nowhere; name the folder of a finished run (mlruns/runs/DATE/TIME)",
    ),
    "a number as a folder": (lambda: robust_eval.load(3), "folder must be the path of a folder, not 3"),  # type: ignore[arg-type]
    "a number as the folder of a run": (
        lambda: robust_eval.run(model=_town, dataset=QUESTIONS, folder=3, **QUICK),  # type: ignore[arg-type]
        "folder must be the path of a folder, not 3",
    ),
    "nothing to compare": (lambda: robust_eval.compare([]), "compare() needs at least one run"),
    "one run to compare": (
        lambda: robust_eval.compare("mlruns"),
        "compare() needs a list of runs, or of their folders, not str",
    ),
    "a folder that cannot be written": (
        lambda: robust_eval.run(model=_town, dataset=QUESTIONS, folder="/proc/mine", **QUICK),
        "the run cannot be written to /proc/mine: ",
    ),
    "an answer to an unknown question": (
        lambda: robust_eval.score([answer | {"question_id": "de"} for answer in ANSWERS[:4]], QUESTIONS),
        "mlruns/tables/",
    ),
    "one metric in place of a list": (
        lambda: robust_eval.score(ANSWERS, QUESTIONS, metrics="certainty"),
        "metrics must be a list of names such as ['certainty'], not 'certainty'",
    ),
    "answers of mixed types": (
        lambda: robust_eval.score([ANSWERS[0], ANSWERS[1] | {"trial": "second"}], QUESTIONS),
        "answers: Could not convert 'second' with type str",
    ),
}


BEGUN = (
    "too few texts",
    "one text in place of a list",
    "no text",
    "a function with other parameters",
    "a text that cannot be written",
)
"""Found when the function is asked: such a run has begun, its folder stays, and another must be able to begin."""


@pytest.mark.parametrize("case", BAD)
def test_bad_input_raises_one_sentence_and_the_process_goes_on(case: str, tmp_path: Path):
    call, sentence = BAD[case]
    before = state()
    with pytest.raises(UserError) as raised:
        call()
    assert state() == before
    said = str(raised.value).replace(f"{tmp_path}/", "")
    assert said.startswith(sentence)
    assert "\n" not in said
    assert isinstance(raised.value, ValueError)
    assert case in BEGUN or not list(Path("mlruns").glob("runs/*/*"))
    if case in BEGUN:
        run = robust_eval.run(model=_town, dataset=QUESTIONS, **QUICK)
        assert run.metrics.set_index("name").loc["certainty.error_rate.t0.7", "value"] == 0.5


def test_an_error_that_nobody_catches_prints_nothing_that_a_terminal_acts_on():
    with pytest.raises(UserError) as raised:
        robust_eval.load("runs/\x1b[2J\u202enosuch")
    printed = "".join(traceback.format_exception(raised.value))
    assert unseen(printed) == set()
    assert "there is no folder runs/\\x1b[2J\\u202enosuch" in printed
