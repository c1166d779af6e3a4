"""Score the logs of other harnesses: ``robust-eval import FILE… [KEY=VALUE…]``.

Logs of one model and task are one run; those of several become several runs and a comparison. With ``--questions`` the
file holds lists of letters.
"""

import argparse
import ast
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import yaml

from robust_eval.api import compare, load_answers
from robust_eval.cli.arguments import command_parser, split_arguments
from robust_eval.dataset.file_formats import read_records
from robust_eval.error import UserError, first_line, writing
from robust_eval.question import LETTERS
from robust_eval.runtime.console import Console
from robust_eval.runtime.files import text_lines
from robust_eval.runtime.process import command
from robust_eval.runtime.text import excerpt


def main() -> None:
    """Import and score the logs; a broken log ends the command before anything is scored."""
    if any(argument.split("=")[0] == "--questions" for argument in sys.argv[1:]):
        import_letters()
        return
    arguments = _parser().parse_args()
    with command():
        files, words = split_arguments(arguments.words)
        settings = dict(map(_setting, words))
        if not files:
            raise UserError("name at least one log; see --help")
        loaded = load_answers(*files)
        console = Console()
        for each in loaded:
            console.print(str(each), *(f"  {sentence}" for sentence in (*each.differences, *each.ungraded)), sep="\n")
        metrics: Any = settings.pop("metric", None)
        metric_names = [metrics] if isinstance(metrics, str) else metrics
        if metric_names is None:
            for name, reason in (lack for each in loaded for lack in each.lacking(**settings).items()):
                console.print(f"  no {name}: {reason}")
        evaluations = []
        for each in loaded:
            evaluations.append(each.score(metric_names, **settings))
            console.print(repr(evaluations[-1]), *each.agreement(evaluations[-1]), sep="\n")
        if len(evaluations) > 1:
            console.print(repr(compare(evaluations)))


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "import",
        "Score logs from inspect_ai (.eval, .json), lm-eval (samples_*.jsonl), OpenAI batches (requests and "
        "outputs, .jsonl), HELM (scenario_state.json) and Every Eval Ever, or folders of them.",
    )
    parser.add_argument(
        "words", nargs="+", metavar="FILE|KEY=VALUE", help="logs, and settings such as metric=certainty"
    )
    return parser


def _setting(word: str) -> tuple[str, object]:
    key, _, value = word.partition("=")
    try:
        return key, yaml.safe_load(value)
    except yaml.YAMLError as problem:
        raise UserError(f"{word}: {first_line(problem)}") from problem


MAX_CHARACTERS = 10_000
"""Maximum characters of a line: some two thousand answers."""
_LISTS = "a list of letters and None, such as ['D', None, 'B']"


def import_letters() -> None:
    """Convert lists of letters into recorded answers; a mistake in a file ends the command before
    anything is written.
    """
    parser = command_parser(
        "import",
        "Convert lists of letters, one line per question, into a file for sampler=recorded.",
    )
    parser.add_argument("responses", type=Path, metavar="RESPONSES", help=f"{_LISTS}, one line per question")
    parser.add_argument("--questions", type=Path, required=True, help="JSON list or JSON Lines of objects with an id")
    parser.add_argument("--output", type=Path, required=True, help="output file, JSON Lines")
    parser.add_argument(
        "--choices", type=int, default=5, choices=range(2, len(LETTERS) + 1), metavar="N", help="number of choices (5)"
    )
    arguments = parser.parse_args()
    with command():
        ids = question_ids(arguments.questions)
        lists = answer_lists(arguments.responses, arguments.choices)
        if len(lists) != len(ids):
            raise UserError(
                f"{arguments.responses} must have one line for each question, but it has {len(lists)} "
                f"line{'s' * (len(lists) != 1)}, and {arguments.questions} has {len(ids)} "
                f"question{'s' * (len(ids) != 1)}"
            )
        records = [
            {"question_id": question_id, "trial": trial, "text": letter}
            for question_id, letters in zip(ids, lists, strict=True)
            for trial, letter in enumerate(letters)
        ]
        with writing("the answers", arguments.output):
            arguments.output.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
        none = sum(record["text"] is None for record in records)
        summary = f"{len(records):,} answers to {len(ids):,} questions, {none:,} of them without a letter"
        Console().print(f"{arguments.output}: {summary}")


def answer_lists(path: Path, choices: int) -> list[list[str | None]]:
    """Return the letters of each line, of which nothing is executed; UserError for the first line without a list."""
    lists = []
    for number, text in text_lines(path):
        line, where = text.rstrip("\r\n"), f"{path}, line {number}"
        if len(line) > MAX_CHARACTERS:
            raise UserError(f"{where}: a list of answers must have at most {MAX_CHARACTERS:,} characters")
        try:
            with warnings.catch_warnings(action="ignore"):  # of escapes in texts that are no letters anyway
                letters = ast.literal_eval(line)
                repr(letters)  # raises ValueError for a number of too many digits
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            letters = None
        if not isinstance(letters, list) or not letters:
            raise UserError(f"{where}: a line must be {_LISTS}, not {line[:40]!r}")
        if wrong := [letter for letter in letters if letter not in (None, *LETTERS[:choices])]:
            raise UserError(
                f"{where}: each value must be None or one of the {choices} choices, A to {LETTERS[choices - 1]} "
                f"(--choices), not {excerpt(wrong[0])}"
            )
        lists.append(letters)
    return lists


def question_ids(path: Path) -> list[str]:
    """Return the ids of imported questions, in the order of the file; UserError where one is missing or repeated."""
    ids: dict[str, int] = {}
    for number, question in enumerate(read_records(path), start=1):
        question_id = question.get("id")
        if not isinstance(question_id, str) or not question_id:
            raise UserError(f'{path}, question {number}: each question must be an object with an id, {{"id": "…"}}')
        if question_id in ids:
            raise UserError(f"{path}: questions {ids[question_id]} and {number} have the same id {question_id!r}")
        ids[question_id] = number
    if not ids:
        raise UserError(f"{path} contains no questions")
    return list(ids)
