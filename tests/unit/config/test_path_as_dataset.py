import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hydra.core.config_store import ConfigStore
from json_lines import cases

from robust_eval.config.overrides import checked_overrides, jobs
from robust_eval.config.schema import register
from robust_eval.dataset.jsonl import JsonLines
from robust_eval.dataset.own_table import OwnTable
from robust_eval.dataset.selection import Selection
from robust_eval.error import UserError

RECORD = {"question": "Which river runs through Bern?", "answers": ["the Aare"]}
NATIVE = {"id": "1", **RECORD, "rewrites": ["What is Bern's river?"]}
TABLE = "question,answers\nWhich river runs through Bern?,the Aare\n"


@pytest.fixture(autouse=True)
def _somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of one's own; what becomes an option in a test is none afterwards."""
    register()
    monkeypatch.chdir(tmp_path)
    datasets = ConfigStore.instance().repo
    monkeypatch.setitem(datasets, "dataset", dict(datasets.get("dataset", {})))


def chosen(*overrides: str) -> Selection:
    return checked_overrides(overrides).config.dataset


def written(path: str, text: str = TABLE) -> str:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)
    return path


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("quiz.tsv", TABLE.replace(",", "\t")),
        ("quiz.json", json.dumps([RECORD])),
        ("quiz.jsonl", json.dumps(RECORD)),
        ("quiz.CSV", TABLE),
    ],
)
def test_a_file_of_questions_is_a_data_set_that_is_called_as_the_file_is(path: str, text: str):
    found = chosen(f"dataset={written(path, text)}")
    assert found == OwnTable(name="quiz", path=path)
    assert [(question.text, question.answers) for question in found.load()] == [
        ("Which river runs through Bern?", ("the Aare",))
    ]


def test_so_is_a_table_of_parquet():
    pq.write_table(pa.Table.from_pylist([RECORD]), "quiz.parquet")
    assert chosen("dataset=quiz.parquet") == OwnTable(name="quiz", path="quiz.parquet")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        *(("quizzes/", "quizzes"), ("./quizzes", "quizzes"), ("{}/my quizzes", "my quizzes"), (".", "inner")),
        *(("my//quiz.csv", "quiz"), ("../quiz.csv", "quiz"), ("{}/quiz.csv", "quiz")),
        *((f"{name}.csv", name) for name in ("quiz (1); a=b", "O'Brien", "a@b ü", "2024")),
    ],
)
def test_a_file_or_a_folder_of_files_may_lie_anywhere_and_needs_no_quotes(
    path: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "inner")
    path = path.format(tmp_path)
    written(path if path.endswith(".csv") else f"{path}/quiz.csv")
    assert chosen(f"dataset={path}", "paths.mlruns=mlruns") == OwnTable(name=name, path=path.rstrip("/"))


def test_lines_in_our_own_layout_are_read_with_all_their_fields():
    found = chosen(f"dataset={written('mine.jsonl', json.dumps(NATIVE))}")
    assert found == JsonLines(name="mine", path="mine.jsonl")
    assert [question.rewrites for question in found.load()] == [("What is Bern's river?",)]


@pytest.mark.parametrize(
    "text", ["", "no JSON", "[]", json.dumps({"prompt": "Why?", "gold": "so"}), json.dumps(RECORD)]
)
def test_other_lines_are_a_table(text: str):
    assert chosen(f"dataset={written('mine.jsonl', text)}") == OwnTable(name="mine", path="mine.jsonl")


def test_settings_of_the_data_set_are_given_beside_it():
    written("quiz.csv")
    found = chosen("dataset.name=pub", "dataset=quiz.csv", "dataset.columns={question: prompt}", "dataset.limit=5")
    assert found == OwnTable(name="pub", path="quiz.csv", columns={"question": "prompt"}, limit=5)


@pytest.mark.parametrize("experiment", ["multiqa", "smoke"])
def test_it_takes_the_place_of_the_data_set_of_an_experiment(experiment: str):
    found = chosen(f"experiment={experiment}", f"dataset={written('quiz.csv')}")
    assert (type(found), found.name) == (OwnTable, "quiz")


def test_files_are_swept_beside_names():
    written("quiz.csv")
    written("my (1)/quiz.tsv")
    checked = checked_overrides(["dataset=facts,quiz.csv,my (1)/quiz.tsv", "dataset.limit=5"])
    found = [(type(config.dataset), config.dataset.source) for _, config in jobs(checked.overrides)]
    assert found == [(JsonLines, "builtin:facts.jsonl"), (OwnTable, "quiz.csv"), (OwnTable, "my (1)/quiz.tsv")]
    assert checked.swept == ["dataset=facts,quiz.csv,'my (1)/quiz.tsv'"]


def test_the_name_of_a_data_set_is_none_of_a_folder(tmp_path: Path):
    for folder in ("facts", "riddles", "conf/dataset"):
        Path(folder).mkdir(parents=True)
    Path("conf/dataset/riddles.yaml").write_text("defaults: [local, _self_]\nname: riddles\npath: riddles.csv\n")
    assert chosen("dataset=facts").source == "builtin:facts.jsonl"
    elsewhere = f"hydra.searchpath=[file://{tmp_path / 'conf'}]"
    assert chosen(elsewhere, "dataset=riddles").source == "riddles.csv"


@pytest.mark.parametrize(("value", "said"), cases(__file__, "a_file_that_is_not_there_is_answered_with_one_that_is"))
def test_a_file_that_is_not_there_is_answered_with_one_that_is(value: str, said: str):
    written("quiz.csv")
    written("my/q.tsv")
    with pytest.raises(UserError) as problem:
        checked_overrides([f"dataset={value}"])
    assert str(problem.value) == said


def test_a_folder_that_is_not_there_is_no_data_set():
    with pytest.raises(UserError, match=r"^there is no dataset=my/quizzes; options are arc_challenge, "):
        checked_overrides(["dataset=my/quizzes"])
