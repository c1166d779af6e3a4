import csv
import json
import math
from collections.abc import Callable, Mapping
from math import log
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from experiments import configuration, run_experiment
from golden import Golden
from tiny_model import save_tiny_model

from robust_eval.answer import SCHEMA, read_answers
from robust_eval.dataset.answer_file import AnswerFile
from robust_eval.error import UserError
from robust_eval.question import Question
from robust_eval.sampler.base import NothingKeptError
from robust_eval.sampler.recorded_answers import RecordedAnswers
from robust_eval.tracking.result import Result

Ask = Callable[..., tuple[Result, Path]]
CASES = Path(__file__).parent
GRADING = ["label", "correct", "exact"]


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """Run an experiment on a few questions."""

    def run(*overrides: str) -> tuple[Result, Path]:
        folder = tmp_path_factory.mktemp("run")
        return run_experiment(folder, "tracking=none", f"paths.mlruns={folder / 'mlruns'}", *overrides), folder

    return run


def as_jsonl(table: pa.Table, file: Path) -> None:
    file.write_text("".join(f"{json.dumps(row)}\n" for row in table.drop_columns(GRADING).to_pylist()))


def as_csv(table: pa.Table, file: Path) -> None:
    for place, field in enumerate(table.schema):
        if pa.types.is_list(field.type):
            cells = [None if cell is None else json.dumps(cell) for cell in table[field.name].to_pylist()]
            table = table.set_column(place, field.name, pa.array(cells, pa.string()))
    pa_csv.write_csv(table, file)


def as_tsv(table: pa.Table, file: Path) -> None:
    names = ["question_id", "rewrite", "temperature", "trial", "text", "top_logprobs", "answer_tokens"]
    rows = [[row["question_id"], *(json.dumps(row[name]) for name in names[1:])] for row in table.to_pylist()]
    quoted = [["" if cell == "null" else '"' + cell.replace('"', '""') + '"' for cell in row] for row in rows]
    for row, text in zip(quoted, table["text"].to_pylist(), strict=True):
        row[4] = '"' + text.replace('"', '""') + '"'
    file.write_text("".join("\t".join(row) + "\n" for row in [names, *quoted]))


WRITERS: Mapping[str, Callable[[pa.Table, Path], None]] = {"jsonl": as_jsonl, "csv": as_csv, "tsv": as_tsv}


def figures(result: Result) -> dict[str, Any]:
    """All that comes of the answers themselves, rather than of how they were obtained."""
    obtained = ("seconds.", "prompts.", "tokens.", "replies.")
    curves = ("frs.offgrid.", "accuracy_certified_")
    return {name: value for name, value in result.summary().items() if not name.startswith((*obtained, *curves))}


def by_condition(file: Path) -> pa.Table:
    names = ("question_id", "rewrite", "temperature", "trial")
    return pq.read_table(file).sort_by([(name, "ascending") for name in names]).combine_chunks()


TINY = ["model=transformers", "model.name=tiny", "model.prompt_style=plain", "engine.threads=1"]
SHORT = "prompts=builtin:zero_shot.yaml"
RUNS = {
    "temperatures": [
        "dataset.limit=3",
        "sampler.temperature_sweep.temperatures=[0.2,1.0,2.0]",
        "sampler.temperature_sweep.trials=3",
        "sampler.temperature_sweep.selection=none",
        "sampler.temperature_sweep.max_questions=2",
        f"sampler.temperature_sweep.{SHORT}",
        "metric=[frs,certainty,agreement]",
    ],
    "rewrites": [
        "sampler=perturbation",
        "sampler.perturbation.temperatures=[0.5,1.0]",
        "sampler.perturbation.rewrites=2",
        "sampler.perturbation.max_new_tokens=4",
        f"sampler.perturbation.{SHORT}",
        "dataset=physics",
        "metric=[agreement,certainty,frs]",
    ],
    "exact": [
        "sampler=exact",
        "sampler.exact.selection=none",
        "sampler.exact.nodes=20",
        f"sampler.exact.{SHORT}",
        "metric=[frs,certainty]",
    ],
}


@pytest.mark.parametrize("kind", RUNS)
def test_the_answers_of_a_run_give_its_figures(ask: Ask, tiny_folder: Path, tmp_path: Path, kind: str):
    settings = ["dataset.limit=2", *RUNS[kind]]
    first, folder = ask(*TINY, f"model.path={tiny_folder}", *settings)
    answers = read_answers(folder / "answers.parquet")
    files = [folder / "answers.parquet"]
    for suffix, write in WRITERS.items():
        if kind == "temperatures" or suffix == "jsonl":
            files.append(tmp_path / f"answers.{suffix}")
            write(answers, files[-1])
    same = [line for line in settings if line.startswith(("dataset", "metric"))]
    for file in files:
        result, again = ask("sampler=recorded", f"sampler.recorded.file={file}", "model.name=tiny", *same)
        assert figures(result) == pytest.approx(figures(first), nan_ok=True)
        assert (result.prompts_asked, result.cache_hits) == (0, 0)
        assert result.description["loaded.name"] == "tiny"
        assert len(str(result.description["identity.answers.sha256"])) == 64
        if file.suffix != ".tsv":
            for name in ("answers", "graded"):
                assert by_condition(again / f"{name}.parquet") == by_condition(folder / f"{name}.parquet")
        assert (again / "report.html").is_file()


def test_a_file_with_nothing_but_texts_has_no_baseline(
    ask: Ask, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
):
    file = tmp_path / "answers.csv"
    replies = [f"facts-00{n},Paris\nfacts-00{n},Rome\nfacts-00{n},\n" for n in (1, 2)]
    file.write_text("id,reply\n" + "".join(replies))
    with caplog.at_level("INFO"):
        result, folder = ask(
            "sampler=recorded",
            f"sampler.recorded.file={file}",
            "sampler.recorded.columns={question_id: id, text: reply}",
            "sampler.recorded.temperature=0.7",
            "model=recorded",
            "model.name=somebody",
            "dataset.limit=4",
            "metric=[certainty,agreement]",
        )
    assert f"{file}: 2 questions without answers are left out" in caplog.messages
    table = pq.read_table(folder / "answers.parquet").to_pydict()
    assert table["trial"] == [0, 1, 2] * 2
    assert table["rewrite"] == [0] * 6
    assert table["temperature"] == [0.7] * 6
    assert table["weight"] == [1 / 3] * 6
    assert table["outcome"] == ["ok", "ok", "invalid"] * 2
    assert table["text"] == ["Paris", "Rome", ""] * 2
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["questions.asked"], summary["questions.kept"], summary["outcomes.invalid"]) == (2, 2, 2)
    assert not [name for name in summary if name.startswith("greedy.")]
    assert pq.read_table(folder / "questions.parquet")["certainty.entropy.t0.7"].to_pylist() == [log(2)] * 2
    shown = capsys.readouterr().out
    assert "somebody on facts: 2 of 2 questions kept" in shown
    assert "tokens" not in shown
    assert result.graded_baseline.num_rows == 0


def write(file: Path, *rows: Mapping[str, object]) -> Path:
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return file


ROW = {"question_id": "facts-001", "temperature": 0.7, "text": "Paris"}


def test_rewrites_that_nobody_wrote_down_are_numbered_in_the_report(ask: Ask, tmp_path: Path):
    rows = [ROW | {"rewrite": rewrite, "text": text} for rewrite, text in enumerate(("Au", "Paris", "Rome", *"xyzu"))]
    result, folder = ask(
        "sampler=recorded",
        f"sampler.recorded.file={write(tmp_path / 'a.jsonl', *rows)}",
        "model.name=x",
        "metric=agreement",
        "dataset.limit=2",
    )
    assert len(result.kept) == 1
    assert '<td><bdi class="text">rewrite 6</bdi></td>' in (folder / "report.html").read_text()


@pytest.mark.parametrize(("selection", "kept"), [("none", [1, 2]), ("contains", [1, 2]), ("exact_match", [2])])
def test_questions_go_on_by_their_greedy_answers(ask: Ask, tmp_path: Path, selection: str, kept: list[int]):
    questions = configuration("dataset.limit=3").dataset.load()
    greedy = [f"It is {questions[0].answers[0]}", questions[1].answers[0], questions[2].answers[0]]
    rows: list[Mapping[str, object]] = [
        {"question_id": question.id, "temperature": 0, "text": text}
        for question, text in zip(questions, greedy, strict=True)
    ]
    # the third has no other answer
    rows += [
        {"question_id": question.id, "temperature": 1, "text": text} for question in questions[:2] for text in "ab"
    ]
    result, _ = ask(
        "sampler=recorded",
        f"sampler.recorded.file={write(tmp_path / 'a.jsonl', *rows)}",
        f"sampler.recorded.selection={selection}",
        "model.name=x",
        "metric=certainty",
        "dataset.limit=3",
    )
    assert len(result.questions) == 3
    assert [question.id for question in result.kept] == [questions[number - 1].id for number in kept]
    assert result.summary()["accuracy.greedy"] == 1


@pytest.mark.parametrize("temperature", [math.nan, 0.2])
def test_the_most_frequent_answers_of_a_model_without_temperature_0_are_the_baseline(
    ask: Ask, tmp_path: Path, temperature: float
):
    questions = configuration("dataset.limit=2").dataset.load()
    rows = [
        {"question_id": question.id, "temperature": temperature, "trial": 3, "weight": 0.2, "text": text}
        for question, text in zip(questions, (questions[0].answers[0], "?"), strict=True)
    ]
    answers = [row | {"sampler": "repetition", "trial": trial} for row in rows for trial in (0, 1)]
    file = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist([*(row | {"sampler": "greedy"} for row in rows), *answers]), file)
    recorded = ("sampler=recorded", f"sampler.recorded.file={file}", "sampler.recorded.selection=contains")
    result, _ = ask(*recorded, "model.name=x", "metric=certainty", "dataset.limit=2")
    assert [question.id for question in result.kept] == [questions[0].id]
    assert (result.summary()["accuracy.greedy"], result.graded_by_sampler.keys()) == (0.5, {"repetition"})


def test_rows_may_come_in_any_order(tmp_path: Path):
    rows = [
        {"question_id": q, "temperature": t, "trial": trial, "text": f"{q}{t}{trial}"}
        for q in "ba"
        for t in (1.0, 0.5)
        for trial in (1, 0)
    ]
    sampler = RecordedAnswers(str(write(tmp_path / "a.jsonl", *rows)))
    asked = [Question(id=name, text=name) for name in "abc"]
    assert [question.id for question in sampler.usable_questions(asked)] == ["a", "b"]
    (answers,) = sampler.answers(asked[:2]).values()
    assert answers.table["text"].to_pylist() == [
        *("a0.50", "a0.51", "a1.00", "a1.01"),
        *("b0.50", "b0.51", "b1.00", "b1.01"),
    ]
    assert sampler.answers(asked[1:2])["recorded"].table["question_id"].unique().to_pylist() == ["b"]
    assert sampler.baseline(asked).num_rows == 0
    assert vars(sampler.conditions()["recorded"]) == {
        "temperatures": [0.5, 1.0],
        "repetitions": 2,
        "estimator": "trials",
        "axis": "temperature",
        "arranges_choices": False,
    }


def test_a_file_may_say_which_sampler_asked_for_an_answer(tmp_path: Path):
    rows = [
        {"sampler": None, "temperature": 0, "text": "greedy"},
        {"sampler": "sweep", "temperature": 0.5, "text": "cold"},
        {"sampler": "sweep", "temperature": 1, "text": "warm"},
        {"sampler": "rewrites", "temperature": 1, "text": "as it stands"},
        {"sampler": "rewrites", "temperature": 1, "rewrite": 1, "text": "reworded"},
        {"sampler": None, "temperature": 1, "text": "once"},
        {"sampler": None, "temperature": 1, "text": "twice"},
        {"sampler": "tree", "temperature": 1, "weight": 0.7, "text": "likely"},
        {"sampler": "tree", "temperature": 1, "weight": 0.3, "text": "less so"},
    ]
    sampler = RecordedAnswers(str(write(tmp_path / "a.jsonl", *({"question_id": "a"} | row for row in rows))))
    asked = [Question(id="a", text="a")]
    assert {name: each.table["text"].to_pylist() for name, each in sampler.answers(asked).items()} == {
        "sweep": ["cold", "warm"],
        "rewrites": ["as it stands", "reworded"],
        "recorded": ["once", "twice"],
        "tree": ["likely", "less so"],
    }
    assert sampler.baseline(asked)["text"].to_pylist() == ["greedy"]
    assert {name: (part.axis, part.repetitions, part.estimator) for name, part in sampler.conditions().items()} == {
        "sweep": ("temperature", 1, "trials"),
        "rewrites": ("rewrite", 2, "trials"),
        "recorded": ("trial", 2, "trials"),
        "tree": ("trial", math.inf, "exact"),
    }


def test_our_own_samplers_vary_what_they_vary_whatever_was_asked(tmp_path: Path):
    names = {
        "temperature_sweep": "temperature",
        "exact": "temperature",
        "perturbation": "rewrite",
        "repetition": "trial",
    }
    rows = [{"sampler": name, "temperature": t, "text": "?"} for name in names for t in (0.5, 0.7)]
    file = write(tmp_path / "a.jsonl", *({"question_id": "a"} | row for row in rows))
    assert {name: part.axis for name, part in RecordedAnswers(str(file)).conditions().items()} == names


def test_questions_go_on_that_every_sampler_asked(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    places = [("first", "a"), ("first", "b"), ("second", "b"), ("second", "c")]
    rows = [{"sampler": name, "question_id": q, "temperature": 1, "text": "?"} for name, q in places]
    sampler = RecordedAnswers(str(write(tmp_path / "a.jsonl", *rows)))
    asked = [Question(id=name, text=name) for name in "abc"]
    assert [question.id for question in sampler.select(asked, SCHEMA.empty_table())] == ["b"]
    assert "2 questions that lack answers from at least one sampler are left out" in caplog.text
    apart = RecordedAnswers(str(write(tmp_path / "b.jsonl", rows[0], rows[3])))
    with pytest.raises(NothingKeptError, match=r"none of the questions has .* answers from every sampler in"):
        apart.select(asked, SCHEMA.empty_table())


def test_what_a_file_leaves_out_is_filled_in(tmp_path: Path):
    rows = [
        {"question_id": "b", "temperature": 1, "text": "one", "rewrite": None},
        {"question_id": "a", "temperature": 1.0, "text": "", "other": {"nested": [1]}},
        {"question_id": "b", "temperature": 1, "text": None, "rewrite": 0},
        {"question_id": "b", "temperature": 1, "text": None, "outcome": "filtered_reply"},
        {"question_id": "b", "temperature": 1, "text": "2020-01-01", "rewrite": 2.0},
    ]
    table = AnswerFile(write(tmp_path / "a.jsonl", *rows), {}).read(None)
    assert table.schema.equals(SCHEMA.append(pa.field("sampler", pa.string(), nullable=False)))
    assert table["sampler"].unique().to_pylist() == ["recorded"]
    found = {name: table[name].to_pylist() for name in ("rewrite", "trial", "text", "outcome", "weight")}
    assert found == {
        "rewrite": [0, 0, 0, 0, 2],
        "trial": [0, 0, 1, 2, 0],
        "text": ["one", "", "", "", "2020-01-01"],
        "outcome": ["ok", "empty", "invalid", "filtered_reply", "ok"],
        "weight": [1 / 3, 1, 1 / 3, 1 / 3, 1],
    }


def test_an_empty_column_with_another_name_counts_as_missing(tmp_path: Path):
    row = {"question_id": "a", "temperature": 1, "text": "one", "number": None}
    table = AnswerFile(write(tmp_path / "a.jsonl", row), {"trial": "number"}).read(None)
    assert table["trial"].to_pylist() == [0]


def test_ends_of_replies_are_sorted_whatever_a_file_calls_them(tmp_path: Path):
    ends = {"END_TURN": "stop", "maxTokens": "length", "SAFETY": "filter", "network_error": "error", "closed": "closed"}
    rows = [
        {"question_id": f"q{number}", "temperature": 1, "text": "Os", "finish_reason": end}
        for number, end in enumerate([*ends, None])
    ]
    table = AnswerFile(write(tmp_path / "a.jsonl", *rows), {}).read(None)
    assert table["finish_reason"].to_pylist() == [*ends.values(), None]
    assert table["outcome"].to_pylist() == ["ok", "ok", "filtered_reply", "error", "ok", "ok"]


def test_ids_may_be_numbers_where_a_table_says_so_and_empty_text_is_no_missing_text(tmp_path: Path):
    (tmp_path / "a.csv").write_text('question_id,text,temperature\n1,"",1e-1\n2,,1\n3,"two\nlines, NA",1\n4,None,1\n')
    table = AnswerFile(tmp_path / "a.csv", {}).read(None)
    assert table["question_id"].to_pylist() == ["1", "2", "3", "4"]
    assert table["text"].to_pylist() == ["", "", "two\nlines, NA", "None"]
    assert table["outcome"].to_pylist() == ["empty", "invalid", "ok", "ok"]
    numbers = pa.table({"question_id": [1, 2], "text": pa.array(["a", "b"]).dictionary_encode(), "temperature": [1, 2]})
    pq.write_table(numbers, tmp_path / "a.parquet")
    table = AnswerFile(tmp_path / "a.parquet", {}).read(None)
    assert table["question_id"].to_pylist() == ["1", "2"]
    assert table["temperature"].to_pylist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("name", "content", "ids"),
    [
        ("a.jsonl", '{"question_id": 1, "text": "a"}\n{"question_id": 22, "text": "b"}\n', ["1", "22"]),
        ("a.csv", "question_id,text\n1.0,a\n22.0,b\n", ["1", "22"]),
        ("a.csv", "question_id,text\n1.0,a\nv2.0,b\n", ["1.0", "v2.0"]),
    ],
)
def test_ids_that_are_numbers_are_written_as_in_data_sets(tmp_path: Path, name: str, content: str, ids: list[str]):
    (tmp_path / name).write_text(content)
    assert AnswerFile(tmp_path / name, {}).read(1.0)["question_id"].to_pylist() == ids


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_answers_of_a_spreadsheet_are_read(tmp_path: Path, encoding: str, separator: str, name: str):
    rows = [["", "question_id", "text ", "temperature", ""], ["0", "1", "Bogotá", "1", ""], ["1", "2", "", "1", ""]]
    lines = "\n" + "".join(separator.join(row) + "\n" for row in [*rows, [""] * 5, [""] * 5])
    (tmp_path / name).write_bytes(lines.encode(encoding))
    table = AnswerFile(tmp_path / name, {}).read(None)
    assert table["question_id"].to_pylist() == ["1", "2"]
    assert table["text"].to_pylist() == ["Bogotá", ""]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_lines_of_json_are_read_in_any_unicode_with_long_reasoning(tmp_path: Path, encoding: str):
    answer = {"question_id": "1", "text": "Bogotá", "temperature": 1, "reasoning": "x" * 100_001}
    (tmp_path / "a.jsonl").write_bytes(f"{json.dumps(answer, ensure_ascii=False)}\n".encode(encoding))
    (row,) = AnswerFile(tmp_path / "a.jsonl", {}).read(None).to_pylist()
    assert (row["text"], row["reasoning"]) == ("Bogotá", "x" * 100_001)


def test_log_probabilities_may_be_longer_than_a_field_of_a_table_of_questions(tmp_path: Path):
    logprobs = json.dumps([[-1.5] * 20] * 2_000)
    (tmp_path / "a.csv").write_text(f'question_id,text,temperature,top_logprobs\n1,a,1,"{logprobs}"\n')
    assert len(logprobs) > csv.field_size_limit()
    assert len(AnswerFile(tmp_path / "a.csv", {}).read(None)["top_logprobs"][0]) == 2_000


def test_a_run_reads_the_file_once(ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    reads: list[Path] = []
    read = AnswerFile.read

    def counted(self: AnswerFile, temperature: float | None) -> pa.Table:
        reads.append(self.path)
        return read(self, temperature)

    monkeypatch.setattr(AnswerFile, "read", counted)
    file = write(tmp_path / "a.jsonl", ROW, ROW)
    ask("sampler=recorded", f"sampler.recorded.file={file}", "model.name=x", "metric=certainty", "dataset.limit=2")
    assert reads == [file]


WRONG_ROWS = Golden(CASES / "wrong_rows.jsonl")
"""Rows of a file of answers, and the message behind its name."""
WRONG_FILES = Golden(CASES / "wrong_files.jsonl")
"""Names and bytes (as Latin-1) of files of answers, and the message."""
UNSCORABLE = Golden(CASES / "unscorable_answers.jsonl")


def refusal(ask: Ask, file: Path) -> str:
    with pytest.raises(UserError) as problem:
        ask("sampler=recorded", f"sampler.recorded.file={file}", "model.name=x", "metric=certainty", "dataset.limit=2")
    return str(problem.value)


@pytest.mark.parametrize("case", WRONG_ROWS.cases, ids=lambda case: case["kind"])
def test_a_row_that_is_wrong_is_named(ask: Ask, tmp_path: Path, case: dict[str, Any]):
    file = write(tmp_path / "a.jsonl", *case["rows"])
    WRONG_ROWS.check(case, sentence=refusal(ask, file).removeprefix(str(file)))


@pytest.mark.parametrize("case", WRONG_FILES.cases, ids=lambda case: case["kind"])
def test_a_file_that_is_wrong_is_refused(ask: Ask, tmp_path: Path, case: dict[str, Any]):
    file = tmp_path / case["name"]
    file.write_bytes(case["content"].encode("latin-1"))
    WRONG_FILES.check(case, sentence=refusal(ask, file).replace(str(file), "{}").partition(", smaller than")[0])


@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        (
            "a.jsonl",
            json.dumps(ROW | {"text": "x" * 100_001}),
            "{}, line 1: 'text' has 100,001 characters; the maximum",
        ),
        (
            "a.jsonl",
            json.dumps(ROW)[:-1] + f', "more": {"[" * 100_000}{"]" * 100_000}}}',
            "{}, line 1: broken JSON (ne",
        ),
        (
            "a.csv",
            "question_id,text,temperature\n" + "facts-001,a,1\n" * 1000 + "facts-001,a,hot\n",
            "{}, row 1002: 'temperature' must be a number, not 'hot'",
        ),
    ],
    ids=["huge cell", "nested without end", "word for a number"],
)
def test_a_large_file_that_is_wrong_is_refused(ask: Ask, tmp_path: Path, file: str, content: str, sentence: str):
    (tmp_path / file).write_text(content)
    assert refusal(ask, tmp_path / file).startswith(sentence.format(tmp_path / file))


def test_a_parquet_file_that_was_cut_is_refused(ask: Ask, tmp_path: Path):
    table = pa.table({"question_id": ["facts-001"] * 1000, "text": ["a"] * 1000, "temperature": [1.0] * 1000})
    pq.write_table(table, tmp_path / "a.parquet")
    whole = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(whole[: len(whole) // 2])
    assert refusal(ask, tmp_path / "a.parquet").startswith(f"{tmp_path / 'a.parquet'} cannot be read: Parquet magic")
    bad = table.set_column(2, "temperature", pa.array([None if row == 700 else 1.0 for row in range(1000)]))
    pq.write_table(bad, tmp_path / "a.parquet")
    assert refusal(ask, tmp_path / "a.parquet") == f"{tmp_path / 'a.parquet'}, row 701: 'temperature' is missing"


def test_a_run_that_is_refused_leaves_nothing(ask: Ask, tmp_path: Path):
    file = write(tmp_path / "a.jsonl", ROW, ROW, ROW | {"question_id": "nowhere"})
    overrides = ["sampler=recorded", f"sampler.recorded.file={file}", "model.name=x", "metric=certainty"]
    (tmp_path / "run").mkdir()
    with pytest.raises(UserError, match="'nowhere' is not the id of a question"):
        run_experiment(tmp_path / "run", *overrides, "tracking=none", f"paths.mlruns={tmp_path}", "store=none")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("case", UNSCORABLE.cases, ids=lambda case: ",".join(case["settings"]))
def test_what_cannot_be_scored_is_said_first(ask: Ask, tmp_path: Path, case: dict[str, Any]):
    file = write(tmp_path / "a.jsonl", *case["rows"])
    name = [] if any(line.startswith("model=") for line in case["settings"]) else ["model.name=x"]
    with pytest.raises(UserError) as problem:
        ask("sampler=recorded", f"sampler.recorded.file={file}", *name, *case["settings"])
    if case["sentence"] is not None:
        UNSCORABLE.check(case, sentence=str(problem.value).replace(str(file), "{}"))
    else:
        beginnings = (f"the answers in {file} cannot be scored: metric=", "none of the questions")
        assert str(problem.value).startswith(beginnings)
