"""Each published data set in every layout in which it is met; the files are of our own making.

A case of ``test_layouts.jsonl`` is a file of records or a text, with its questions (fields that differ from the
defaults) and the number of unusable records by reason. An export of the hub is the same in Parquet and JSON.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from json_lines import json_lines

from robust_eval.dataset.published import LAYOUTS, Published
from robust_eval.error import UserError
from robust_eval.question import Question

CASES = json_lines(Path(__file__).with_suffix(".jsonl"))
DEFAULTS = vars(Question("", ""))


def written(file: Path, case: dict[str, Any]) -> Path:
    if "labels" in case:
        file.with_name(f"{file.stem}-labels.lst").write_bytes(case["labels"].encode())
    if "text" in case:
        file.write_bytes(case["text"].encode(case.get("encoding", "utf-8")))
    elif file.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(case["records"]), file)
    elif file.suffix == ".jsonl":
        file.write_text("\n".join(map(json.dumps, case["records"])))
    else:
        file.write_text(json.dumps(case["records"]))
    return file


def shown(question: Question) -> dict[str, Any]:
    fields = dataclasses.asdict(question)
    differ = {name: value for name, value in fields.items() if value != DEFAULTS[name] or name in ("id", "text")}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in differ.items()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['layout']} {case.get('file', 'export')}")
def test_a_file_gives_its_questions_and_counts_what_it_cannot_use(case: dict[str, Any], tmp_path: Path):
    names = [f"export.{kind}" for kind in ("parquet", "jsonl", "json")] if "every_export" in case else [case["file"]]
    for name in names:
        file, settings = written(tmp_path / name, case), {"max_invalid_fraction": 1, **case.get("settings", {})}
        found = Published(name="mine", layout=case["layout"], path=str(file), **settings).load()
        assert [shown(question) for question in found] == case["questions"]
        assert found.unusable == case["unusable"]


def test_every_layout_has_a_file():
    assert {case["layout"] for case in CASES} == set(LAYOUTS)


def load(layout: str, file: Path, content: str, **settings: Any) -> Any:
    file.parent.mkdir(exist_ok=True, parents=True)
    file.write_text(content)
    return Published(name=layout, layout=layout, path=str(file), **settings).load()


def test_mmlu_takes_all_subjects_or_some(tmp_path: Path):
    lines = {
        "test/anatomy_test.csv": '"What, pray, grinds?",mill,hill,pill,till,A\nWhat burns?,1,2,3,4,D\n',
        "test/virology_test.csv": "What flows?,a,b,c,d,C\r\n",
        "dev/virology_dev.csv": "What stands?,a,b,c,d,C\r\n",
    }
    for name, content in lines.items():
        load("mmlu", tmp_path / "data" / name, content, subsets=["all"])

    def loaded(**more: Any) -> list[tuple[str, str, int | None]]:
        found = Published(name="mmlu", layout="mmlu", path=str(tmp_path / "data"), **more).load()
        return [(question.text, question.category, question.correct) for question in found]

    anatomy = [("What, pray, grinds?", "anatomy", 0), ("What burns?", "anatomy", 3)]
    virology = [("What flows?", "virology", 2)]
    assert loaded(subsets=["all"]) == loaded(subsets=["anatomy", "virology", "marketing"]) == anatomy + virology
    assert loaded(subsets=["virology"]) == virology
    assert loaded(subsets=["all"], split="dev") == [("What stands?", "virology", 2)]


def test_mmlu_has_57_subjects():
    with pytest.raises(ValueError, match=r"^biology is not a subset of mmlu; ") as caught:
        Published(name="mmlu", layout="mmlu", path="x", subsets=["biology"])
    assert str(caught.value).count(", ") == 57  # and all of them


def test_piqa_labels_must_stand_beside_the_questions(tmp_path: Path):
    goals = '{"goal": "To grind", "sol1": "mill", "sol2": "hill"}\n' * 2
    with pytest.raises(
        UserError, match=r"valid\.jsonl contains no labels, and .*valid-labels\.lst cannot be read: No such"
    ):
        load("piqa", tmp_path / "valid.jsonl", goals)
    for content in ("0\n", "0\n1\n0\n"):
        (tmp_path / "valid-labels.lst").write_text(content)
        with pytest.raises(UserError, match=rf"must have a question for each of the {len(content) // 2} labels in "):
            load("piqa", tmp_path / "valid.jsonl", goals)


KEY = {"id": "0_2", "diff": "D", "task": "", "opt": "", "ans": 3}


@pytest.mark.parametrize(
    ("layout", "record", "settings", "said"),
    [
        ("sciq", {"question": "Which?", "answer": "mill"}, {"scenario": "multiple_choice"}, "1 × no choices"),
        (
            "mlphys101",
            KEY | {"task": "Which?"},
            {},
            "1 × no choices .*; the first has the columns id, diff, task, opt, ans; ",
        ),
        ("mlphys101", KEY | {"ans": 5}, {}, "1 × no right choice "),
        ("mlphys101", KEY | {"id": ""}, {}, "1 × no choices "),
        ("mlphys101", KEY | {"opt": ["A: mill", "B: hill", "C: till", "D: pill"]}, {}, "1 × no question "),
    ],
)
def test_a_file_of_unusable_records_is_refused_with_the_reason(
    layout: str, record: dict[str, Any], settings: dict[str, Any], said: str, tmp_path: Path
):
    with pytest.raises(UserError, match=said):
        load(layout, tmp_path / "mine.jsonl", json.dumps(record), max_invalid_fraction=0.5, **settings)


def test_a_line_of_a_table_that_lacks_a_field_is_named(tmp_path: Path):
    with pytest.raises(
        UserError, match=r"anatomy_test\.csv, line 2: 5 fields, but the header has 6; put double quotes"
    ):
        load("mmlu", tmp_path / "anatomy_test.csv", "Where?,a,b,c,d,2\nWhat?,a,b,c,A\n", subsets=["all"])
