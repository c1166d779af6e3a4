import json
import subprocess
import sys
from pathlib import Path

import pytest
from json_lines import cases

from robust_eval.cli.import_logs import answer_lists, main, question_ids
from robust_eval.error import UserError

QUESTIONS = '[{"id": "a", "ans": 1},\n {"id": "b"}]\n'


@pytest.mark.parametrize("questions", [QUESTIONS, '{"id": "a"}\n\n{"id": "b"}\n', "\ufeff" + QUESTIONS])
def test_lists_become_answers_in_the_order_of_the_questions(tmp_path: Path, questions: str):
    responses, ids, output = (tmp_path / name for name in ("responses.txt", "questions.json", "answers.jsonl"))
    responses.write_text("['D', None]\r\n['B', 'B', 'A']")
    ids.write_text(questions, encoding="utf-8")
    command = [sys.executable, "-m", "robust_eval", "import", str(responses)]
    process = subprocess.run(
        [*command, "--questions", str(ids), "--output", str(output)], capture_output=True, text=True, check=True
    )
    assert process.stdout == f"{output}: 5 answers to 2 questions, 1 of them without a letter\n"
    assert [json.loads(line) for line in output.read_text().splitlines()] == [
        {"question_id": "a", "trial": 0, "text": "D"},
        {"question_id": "a", "trial": 1, "text": None},
        {"question_id": "b", "trial": 0, "text": "B"},
        {"question_id": "b", "trial": 1, "text": "B"},
        {"question_id": "b", "trial": 2, "text": "A"},
    ]


def test_letters_go_as_far_as_the_choices(tmp_path: Path):
    (tmp_path / "r.txt").write_text("['A', 'C']\n")
    assert answer_lists(tmp_path / "r.txt", 3) == [["A", "C"]]


@pytest.mark.parametrize(("line", "sentence"), cases(__file__, "a_line_that_is_no_list_of_letters_is_named"))
def test_a_line_that_is_no_list_of_letters_is_named(tmp_path: Path, line: str, sentence: str):
    file = tmp_path / "responses.txt"
    file.write_text(f"['A', None]\n{line}\n['B']\n")
    with pytest.raises(UserError) as problem:
        answer_lists(file, 5)
    assert str(problem.value) == f"{file}, line 2: {sentence}"


def test_a_line_that_is_not_utf_8_is_named(tmp_path: Path):
    file = tmp_path / "responses.txt"
    file.write_bytes(b"['A']\n['\xe1']\n")
    with pytest.raises(UserError) as problem:
        answer_lists(file, 5)
    assert str(problem.value) == (
        f"{file}, line 2: not UTF-8 (invalid continuation byte at byte 3); "
        """as cp1252 it reads "['á']": save the file as UTF-8"""
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", " contains no questions"),
        ("[]", " contains no questions"),
        ('[{"id": "a"}', ": broken JSON (Expecting ',' delimiter: line 1 column 13 (char 12))"),
        ("[" * 100_000, ": broken JSON (nested too deeply: line 1 column 1 (char 0))"),
        ('[{"id": "a"}, {"name": "b"}]', ', question 2: each question must be an object with an id, {"id": "…"}'),
        ('{"id": "a"}\n{"id": 2}', ', question 2: each question must be an object with an id, {"id": "…"}'),
        ('["a"]', ', question 1: each question must be an object with an id, {"id": "…"}'),
        ('{"id": "a"}\n{"id": "a"}', ": questions 1 and 2 have the same id 'a'"),
    ],
)
def test_questions_without_ids_are_refused(tmp_path: Path, text: str, sentence: str):
    file = tmp_path / "questions.json"
    file.write_text(text)
    with pytest.raises(UserError) as problem:
        question_ids(file)
    assert str(problem.value) == f"{file}{sentence}"


@pytest.mark.parametrize(
    ("responses", "output", "sentence"), cases(__file__, "nothing_is_written_where_something_is_wrong")
)
def test_nothing_is_written_where_something_is_wrong(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    responses: str | None,
    output: str,
    sentence: str,
):
    (tmp_path / "questions.json").write_text(QUESTIONS)
    if responses is not None:
        (tmp_path / "responses.txt").write_text(responses)
    files = [str(tmp_path / name) for name in ("responses.txt", "questions.json", output)]
    monkeypatch.setattr("sys.argv", ["import", files[0], "--questions", files[1], "--output", files[2]])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert sentence.format(tmp_path) in said
    assert said.count("\n") == 1
    assert not (tmp_path / output).exists()
