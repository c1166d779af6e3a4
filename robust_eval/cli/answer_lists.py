"""Letters in lists, as recorded answers: ``robust-eval import RESPONSES --questions QUESTIONS
--output answers.jsonl``.

RESPONSES has a line for each question: a Python list of the letters that were answered, one for each trial, ``None``
where an answer chose none (``['D', None, 'B']``). QUESTIONS, a JSON list or JSON Lines, has an object with an ``id``
for each, in the same order. The output is for ``sampler=recorded sampler.temperature=…``.

The layout of Reganova & Steinbach, "Testing Uncertainty of Large Language Models for Physics Knowledge and Reasoning".
"""

import argparse
import ast
import json
import warnings
from pathlib import Path

from robust_eval.error import UserError, first_line
from robust_eval.question import LETTERS
from robust_eval.runtime.console import Console
from robust_eval.runtime.files import parsed_json, text_lines
from robust_eval.runtime.process import command

MOST_CHARACTERS = 10_000
"""Of one line: some two thousand answers."""
_LISTS = "a list of letters and None, such as ['D', None, 'B']"


def main() -> None:
    """Run the command; where a file is wrong, exit with status 1 and one sentence, and write nothing."""
    arguments = _parser().parse_args()
    with command():
        ids = question_ids(arguments.questions)
        lists = answer_lists(arguments.responses, arguments.choices)
        if len(lists) != len(ids):
            raise UserError(
                f"{arguments.responses} has answers to {len(lists)} questions, and {arguments.questions} holds "
                f"{len(ids)}: there must be a line for each"
            )
        records = [
            {"question_id": question_id, "trial": trial, "text": letter}
            for question_id, letters in zip(ids, lists, strict=True)
            for trial, letter in enumerate(letters)
        ]
        try:
            arguments.output.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
        except OSError as problem:
            raise UserError(f"{arguments.output} cannot be written: {problem.strerror}") from problem
        none = sum(record["text"] is None for record in records)
        said = f"{len(records):,} answers to {len(ids):,} questions, {none:,} of them no letter"
        Console().print(f"{arguments.output}: {said}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="robust-eval import",
        description="Turn lists of letters, one a line for each question, into a file for sampler=recorded.",
    )
    parser.add_argument("responses", type=Path, metavar="RESPONSES", help=f"{_LISTS}, a line for each question")
    parser.add_argument("--questions", type=Path, required=True, help="JSON list or JSON Lines of objects with an id")
    parser.add_argument("--output", type=Path, required=True, help="the file to write, JSON Lines")
    parser.add_argument(
        "--choices", type=int, default=5, choices=range(2, len(LETTERS) + 1), metavar="N", help="of a question (5)"
    )
    return parser


def answer_lists(path: Path, choices: int) -> list[list[str | None]]:
    """Return the letters of each line; UserError names the first one that holds anything else. Nothing in it is
    executed.
    """
    found = []
    for number, line in text_lines(path):
        line = line.rstrip("\r\n")
        where = f"{path}, line {number}"
        if len(line) > MOST_CHARACTERS:
            raise UserError(f"{where}: longer than {MOST_CHARACTERS:,} characters, which is no list of answers")
        try:
            with warnings.catch_warnings(action="ignore"):  # of escapes in texts that are no letters anyway
                letters = ast.literal_eval(line)
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError) as problem:
            raise UserError(f"{where}: wanted {_LISTS}, not {line[:40]!r}") from problem
        if not isinstance(letters, list) or not letters:
            raise UserError(f"{where}: wanted {_LISTS}, not {line[:40]!r}")
        for letter in letters:
            if letter is not None and (not isinstance(letter, str) or letter not in tuple(LETTERS[:choices])):
                shown = repr(letter[:40]) if isinstance(letter, str) else f"a {type(letter).__name__}"
                raise UserError(
                    f"{where}: {shown} is none of the {choices} choices, A to {LETTERS[choices - 1]} "
                    "(--choices), nor None"
                )
        found.append(letters)
    return found


def question_ids(path: Path) -> list[str]:
    """Return the ids of the questions, in the order of the file; UserError where one is missing, or stands twice."""
    lines = [line for _, line in text_lines(path)]
    try:
        if lines and lines[0].lstrip().startswith("["):
            questions = parsed_json("".join(lines))
        else:
            questions = [parsed_json(line) for line in lines if line.strip()]
    except ValueError as problem:
        raise UserError(f"{path} is neither a JSON list nor JSON Lines: {first_line(problem)}") from problem
    ids: dict[str, int] = {}
    for number, question in enumerate(questions, start=1):
        question_id = question.get("id") if isinstance(question, dict) else None
        if not isinstance(question_id, str) or not question_id:
            raise UserError(f'{path}, question {number}: wanted an object with an id, {{"id": "…"}}')
        if question_id in ids:
            raise UserError(f"{path}, question {number}: id {question_id!r} has question {ids[question_id]} already")
        ids[question_id] = number
    if not ids:
        raise UserError(f"{path} holds no questions")
    return list(ids)


if __name__ == "__main__":
    main()
