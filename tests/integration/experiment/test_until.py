"""A run that takes as few questions as an interval needs, of a server: what it asks, finds, keeps and says."""

import contextlib
import io
import itertools
import json
import logging
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from experiments import configuration, run_experiment
from numbered_server import settings as numbered
from scripted_server import Body, ScriptedServer, certain_reply, scripted_server

from robust_eval.answer import read_answers
from robust_eval.error import UserError
from robust_eval.experiment.plan import stages_of
from robust_eval.tracking.result import Result

QUESTIONS = 60
NUMBERS = itertools.count()


@dataclass
class Server:
    """Knows the answers to some numbers, holds each up to a temperature of its own, and rewrites questions; counts."""

    known: Callable[[int], bool] = lambda number: True
    ends_after: int | None = None
    """The number of answers after which the key is refused."""
    asked: Counter[tuple[int, str, float, int]] = field(default_factory=Counter)
    """Number, wording, temperature and seed."""
    rewritten: Counter[int] = field(default_factory=Counter)

    def __call__(self, body: Body) -> tuple[int, Mapping[str, str], Any]:
        text, t, seed = body["messages"][-1]["content"], body.get("temperature", 1.0), body.get("seed", 0)
        found = re.findall(r"(\w+) number (\d+)\?", text)
        if not found:
            return certain_reply("a llama")
        wording, number = found[-1][0], int(found[-1][1])
        if self.ends_after is not None and self.asked.total() >= self.ends_after:
            return 401, {}, {"error": {"message": "no such key", "code": "invalid_api_key"}}
        if "rewrite" in text.lower():
            self.rewritten[number] += 1
            return certain_reply(f"1. Name number {number}?\n2. Tell number {number}?")
        self.asked[number, wording, t, seed] += 1
        firm = 0.4 + 2.4 * (zlib.crc32(f"{number}".encode()) % 101) / 100
        drawn = zlib.crc32(f"{wording} {number} {t!r} {seed}".encode()) % 1000 / 1000
        right = self.known(number) and (t == 0 or drawn < 1.5 - t / firm)
        return certain_reply(f"word{number}" if right else "Xanadu")

    @property
    def numbers(self) -> set[int]:
        return {number for number, *_ in self.asked}


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server(Server()) as server:
        yield server


FRS = (
    "experiment=frs",
    "sampler.temperature_sweep.trials=1",
    "sampler.temperature_sweep.temperatures=[0.5,1,1.5]",
)
WIDTH = 0.054
NARROW = f"target_half_width={{frs.d1: {WIDTH}}}"
OUT_OF_REACH = "target_half_width={frs.d1: 0.001}"
Ask = Callable[..., tuple[Result, Path]]


@pytest.fixture
def ask(server: ScriptedServer, tmp_path: Path) -> Ask:
    settings = numbered(server, tmp_path, QUESTIONS)
    return lambda *overrides, **options: asked_in(tmp_path, settings, *overrides, **options)


def asked_in(
    place: Path, settings: list[str], *overrides: str, preset: Sequence[str] = FRS, store: str = "store"
) -> tuple[Result, Path]:
    """Run an experiment that leaves its files in a folder of ``place``, and its answers in a store there."""
    folder = place / f"run{next(NUMBERS)}"
    folder.mkdir()
    return run_experiment(folder, *preset, *settings, f"paths.mlruns={place / store}", *overrides), folder


class Undisturbed(NamedTuple):
    """What a run finds that takes as many questions as its interval needs, and then one of all of them."""

    narrow: Result
    folder: Path
    asked: Counter[tuple[int, str, float, int]]
    logged: list[str]
    printed: str
    whole: Result


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    place, records, printed = tmp_path_factory.mktemp("undisturbed"), list[logging.LogRecord](), io.StringIO()
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logger = logging.getLogger("robust_eval")
    with scripted_server(server := Server()) as scripted, pytest.MonkeyPatch.context() as patch:
        settings = numbered(scripted, place, QUESTIONS)
        patch.setattr(logger, "level", logging.INFO)
        logger.addHandler(handler)
        with contextlib.redirect_stdout(printed):
            narrow, folder = asked_in(place, settings, NARROW)
        logger.removeHandler(handler)
        asked = server.asked.copy()
        whole, _ = asked_in(place, settings, store="whole")
    return Undisturbed(narrow, folder, asked, [each.getMessage() for each in records], printed.getvalue(), whole)


def figures(result: Result) -> dict[str, float | None]:
    return {name: value for name, value in result.summary().items() if not name.startswith(("seconds", "prompts"))}


def test_questions_are_taken_until_the_interval_is_narrow_enough_and_no_more(undisturbed: Undisturbed):
    result, folder, asked, logged, printed, whole = undisturbed
    frs = result.scores["frs"].values["frs.d1"]
    assert (frs.high - frs.low) / 2 <= WIDTH
    taken = len(result.questions)
    assert 30 < taken < QUESTIONS
    assert {f"q{number}" for number, *_ in asked} == {question.id for question in result.questions}
    assert set(asked.values()) == {1}
    found = figures(result)
    assert (found["questions.loaded"], found["questions.unasked"]) == (QUESTIONS, QUESTIONS - taken)
    assert found["questions.asked"] == found["questions.kept"] == taken
    said = [message for message in logged if message.startswith("target_half_width: ")]
    assert said[0].startswith(f"target_half_width: 30 of {QUESTIONS} questions: frs.d1 0.")
    assert said[-1].startswith(f"target_half_width: {taken} of {QUESTIONS} questions: frs.d1 {frs.value:.3f} ± 0.0")
    sentence = f"target_half_width={{frs.d1: {WIDTH}}} left {QUESTIONS - taken} of {QUESTIONS} questions unasked"
    assert sentence in printed
    report = (folder / "report.html").read_text(encoding="utf-8")
    assert f"{sentence}." in report
    assert "Set target_half_width=null to ask all." in report
    refuse_another_order(result, whole)
    assert read_answers(folder / "answers.parquet").num_rows == taken * 4


def test_labels_are_beside_the_intervals_that_the_run_reports(ask: Ask, tmp_path: Path):
    """The interval of the stopping rule is wider than that of the metric."""
    result, _ = ask(target := "target_half_width={accuracy.t1: 0.25}")
    graded = result.graded_by_sampler["temperature_sweep"].to_pandas()
    labels = graded.assign(label=graded["correct"].map({True: "right", False: "wrong"}))
    labels[["question_id", "text", "label"]].drop_duplicates().to_csv(tmp_path / "labels.csv", index=False)
    result, _ = ask(target, f"labels={tmp_path / 'labels.csv'}")
    figures = result.summary()
    intervals = {row[0].value: row[2].value for row in result.scores["corrected"].presentation.tables[0].rows}
    reported = f"{figures['accuracy.t1.low']:.3f} to {figures['accuracy.t1.high']:.3f}"
    assert intervals["accuracy at t = 1"] == reported


def refuse_another_order(result: Result, whole: Result) -> None:
    """Fail unless questions and answers of a run have the order that they have in the run of all questions."""
    ids = {question.id for question in result.questions}
    assert [question.id for question in result.questions] == [q.id for q in whole.questions if q.id in ids]
    graded = whole.graded_by_sampler["temperature_sweep"]
    of_these = graded.filter([question_id in ids for question_id in graded["question_id"].to_pylist()])
    assert result.graded_by_sampler["temperature_sweep"].to_pylist() == of_these.to_pylist()


def test_a_run_that_ends_after_its_first_block_has_the_order_of_the_data_set(ask: Ask, undisturbed: Undisturbed):
    result, _ = ask("target_half_width={frs.d1: 0.5}")
    assert len(result.questions) == 30
    refuse_another_order(result, undisturbed.whole)


def test_a_width_that_is_out_of_reach_takes_all_and_finds_what_a_plain_run_finds(ask: Ask, undisturbed: Undisturbed):
    result, _ = ask(OUT_OF_REACH)
    whole = undisturbed.whole
    assert figures(result) == figures(whole)
    assert "questions.unasked" not in figures(result)
    assert result.graded_by_sampler["temperature_sweep"].equals(whole.graded_by_sampler["temperature_sweep"])
    assert result.graded_baseline.equals(whole.graded_baseline)
    assert result.scores["frs"].tables["frs"].equals(whole.scores["frs"].tables["frs"])


def test_blocks_without_a_known_fact_are_passed(server: ScriptedServer, ask: Ask, undisturbed: Undisturbed):
    late = {f"q{number}" for number in range(QUESTIONS)} - {q.id for q in undisturbed.narrow.questions}
    server.answer = Server(known=lambda number: f"q{number}" in late)
    result, _ = ask(NARROW, store="late")
    assert {question.id for question in result.kept} == late
    server.answer = Server(known=lambda number: False)
    with pytest.raises(UserError, match=r"^none of the questions passes sampler.selection"):
        ask(NARROW, store="none")


def test_no_more_questions_are_kept_than_samplers_take(server: ScriptedServer, ask: Ask):
    result, _ = ask(OUT_OF_REACH, "sampler.temperature_sweep.max_questions=40")
    assert len(result.kept) == 40
    assert isinstance(server.answer, Server)
    assert len({number for number, _, t, _ in server.answer.asked if t > 0}) == 40


def test_a_run_that_ends_with_enough_kept_questions_names_their_limit(ask: Ask):
    _, folder = ask(OUT_OF_REACH, "sampler.temperature_sweep.max_questions=20")
    report = (folder / "report.html").read_text(encoding="utf-8")
    sentence = f"sampler.max_questions=20 left {QUESTIONS - 30} of {QUESTIONS} questions unasked."
    assert f"{sentence} Raise sampler.max_questions to ask more." in " ".join(re.sub(r"<[^>]*>", " ", report).split())


def test_a_run_without_a_store_asks_for_nothing_twice(server: ScriptedServer, ask: Ask, undisturbed: Undisturbed):
    result, _ = ask(NARROW, "store=none")
    assert isinstance(server.answer, Server)
    assert set(server.answer.asked.values()) == {1}
    assert figures(result) == figures(undisturbed.narrow)


def test_a_run_that_was_ended_goes_on_with_the_same_questions(
    server: ScriptedServer, ask: Ask, undisturbed: Undisturbed
):
    server.answer = ended = Server()
    for part in range(1, 3):
        ended.ends_after = 50 * part
        with pytest.raises(UserError, match="no such key"):
            ask(NARROW)
    ended.ends_after = None
    result, _ = ask(NARROW)
    assert set(ended.asked.values()) == {1}
    assert figures(result) == figures(undisturbed.narrow)


def test_rewrites_are_asked_for_of_the_questions_taken_alone(server: ScriptedServer, ask: Ask):
    multiqa = (
        "experiment=multiqa",
        "aggregator=text",
        "rewriter=llm",
        "rewriter.rewrites=2",
        "sampler.perturbation.rewrites=2",
    )
    result, folder = ask("target_half_width={agreement.difficulty.t1: 0.135}", preset=multiqa)
    assert isinstance(server.answer, Server)
    taken = {int(question.id[1:]) for question in result.questions}
    assert 30 < len(taken) < QUESTIONS
    assert server.answer.rewritten == dict.fromkeys(taken, 1)
    assert server.answer.numbers == taken
    assert all(len(question.rewrites) == 2 for question in result.questions)
    assert result.rewritten.model_rewrites["question_id"].to_pylist() == [
        q.id for q in result.questions for _ in range(2)
    ]
    assert len(json.loads((folder / "summary.json").read_text())) > 20


def test_a_plan_says_that_it_is_the_most(server: ScriptedServer, tmp_path: Path):
    settings = [*FRS, *numbered(server, tmp_path, QUESTIONS), f"paths.mlruns={tmp_path / 'store'}", NARROW]
    assert [(stage.name, stage.requests, stage.is_upper_bound) for stage in stages_of(configuration(*settings))] == [
        ("greedy answers", QUESTIONS, True),
        ("sampled answers", QUESTIONS, True),
    ]
