import json
import subprocess
import sys
from pathlib import Path

import pytest

from robust_eval.cli.import_logs import answer_lists, main, question_ids
from robust_eval.error import UserError

QUESTIONS = '[{"id": "a", "ans": 1},\n {"id": "b"}]\n'
LETTERS = "a list of letters and None, such as ['D', None, 'B']"


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


WRONG = {
    "code": ("__import__('os').system('echo hi')", f"wanted {LETTERS}, not \"__import__('os').system('echo hi')\""),
    "call in a list": ("[open('/etc/passwd').read()]", f"wanted {LETTERS}, not \"[open('/etc/passwd').read()]\""),
    "comprehension": ("['A' for _ in range(9)]", f"wanted {LETTERS}, not \"['A' for _ in range(9)]\""),
    "nothing": ("", f"wanted {LETTERS}, not ''"),
    "empty list": ("[]", f"wanted {LETTERS}, not '[]'"),
    "tuple": ("('A', 'B')", f"wanted {LETTERS}, not \"('A', 'B')\""),
    "open bracket": ("['A', 'B'", f"wanted {LETTERS}, not \"['A', 'B'\""),
    "null byte": ("['A']\0", f"wanted {LETTERS}, not \"['A']\\x00\""),
    "deep brackets": ("[" * 9999, f"wanted {LETTERS}, not {'[' * 40!r}"),
    "deep signs": ("-" * 9999 + "1", f"wanted {LETTERS}, not {'-' * 40!r}"),
    "deep sum": ("1+" * 4999 + "1", f"wanted {LETTERS}, not {'1+' * 20!r}"),
    "escape": ("['\\q']", "'\\\\q' is neither None nor one of the 5 choices, A to E (--choices)"),
    "beyond": ("['A', 'F']", "'F' is neither None nor one of the 5 choices, A to E (--choices)"),
    "small": ("['a']", "'a' is neither None nor one of the 5 choices, A to E (--choices)"),
    "several": ("['AB']", "'AB' is neither None nor one of the 5 choices, A to E (--choices)"),
    "number": ("['A', 1]", "a int is neither None nor one of the 5 choices, A to E (--choices)"),
    "large number": ("[0x" + "f" * 9000 + "]", "a int is neither None nor one of the 5 choices, A to E (--choices)"),
    "list": ("[['A']]", "a list is neither None nor one of the 5 choices, A to E (--choices)"),
    "huge": ("[" + "'A', " * 2001 + "]", "longer than 10,000 characters, so it is not a list of answers"),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
def test_a_line_that_is_no_list_of_letters_is_named(tmp_path: Path, kind: str):
    line, sentence = WRONG[kind]
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
        ("", " holds no questions"),
        ("[]", " holds no questions"),
        ('[{"id": "a"}', ": broken JSON (Expecting ',' delimiter: line 1 column 13 (char 12))"),
        ("[" * 100_000, ": broken JSON (nested too deep: line 1 column 1 (char 0))"),
        ('[{"id": "a"}, {"name": "b"}]', ', question 2: wanted an object with an id, {"id": "…"}'),
        ('{"id": "a"}\n{"id": 2}', ', question 2: wanted an object with an id, {"id": "…"}'),
        ('["a"]', ', question 1: wanted an object with an id, {"id": "…"}'),
        ('{"id": "a"}\n{"id": "a"}', ", question 2: question 1 has the id 'a' already"),
    ],
)
def test_questions_without_ids_are_refused(tmp_path: Path, text: str, sentence: str):
    file = tmp_path / "questions.json"
    file.write_text(text)
    with pytest.raises(UserError) as problem:
        question_ids(file)
    assert str(problem.value) == f"{file}{sentence}"


@pytest.mark.parametrize(
    ("responses", "output", "sentence"),
    [
        ("['A']\n", "answers.jsonl", "has answers to 1 questions, and {}/questions.json holds 2: there must be a line"),
        ("['A']\n\n['B']\n", "answers.jsonl", f"responses.txt, line 2: wanted {LETTERS}, not ''"),
        ("['A']\n['B']\n", "nowhere/answers.jsonl", "{}/nowhere/answers.jsonl cannot be written: No such file"),
        (None, "answers.jsonl", "{}/responses.txt cannot be read: No such file or directory"),
    ],
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
