"""Grade one reply, and show why it is right or wrong: ``robust-eval grade "REPLY" --answers Paris``."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from robust_eval.error import UserError
from robust_eval.grader.base import Grader
from robust_eval.grader.graded_reply import GRADERS, READERS, GradedReply, grade_reply, question_of
from robust_eval.normalization import normalize
from robust_eval.question import LETTERS
from robust_eval.runtime.console import Console
from robust_eval.runtime.process import command
from robust_eval.runtime.text import printable

LONGEST = 1_000_000
"""Bytes of a reply on standard input at most."""
_WIDTH = 18
"""Columns of the names in front of the values."""


def main() -> None:
    """Run the command; exit with status 1 and one sentence where an argument is wrong."""
    arguments = _parser().parse_args()
    with command():
        reply = _standard_input() if arguments.reply == "-" else arguments.reply
        grader = GRADERS[arguments.grader](letter=arguments.letter)
        graded = grade_reply(reply, arguments.answers, arguments.choices, arguments.reader, grader)
        accepted = _accepted(reply, arguments, grader)
        if arguments.json:
            print(json.dumps({**asdict(graded), "accepted": accepted}, indent=2))
            return
        Console().print("\n".join(_lines(graded, accepted, arguments)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="robust-eval grade",
        description="Grade one reply, and show why it is right or wrong: the answer that was extracted, the rule that "
        "extracted it, the verdict, and whether it is uncertain.",
    )
    parser.add_argument("reply", metavar="REPLY", help="the text of the model; - reads standard input")
    parser.add_argument(
        "--answers",
        nargs="+",
        action="extend",
        default=[],
        metavar="TEXT",
        help="accepted answers; with --choices the letter or the text of the right choice",
    )
    parser.add_argument(
        "--choices", nargs="+", action="extend", default=[], metavar="TEXT", help="texts of the choices, in order"
    )
    parser.add_argument("--reader", choices=list(READERS), default="reply", help="reply (chat models) is the default")
    parser.add_argument("--grader", choices=list(GRADERS), default="matching", help="matching is the default")
    parser.add_argument(
        "--letter", choices=["anchored", "strict"], default="anchored", help="strict: a letter and nothing else counts"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _standard_input() -> str:
    data = sys.stdin.buffer.read(LONGEST + 1)
    if len(data) > LONGEST:
        raise UserError(f"REPLY on standard input must have at most {LONGEST:,} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise UserError(f"REPLY on standard input must be UTF-8: {problem.reason} at byte {problem.start}") from problem


def _accepted(reply: str, arguments: argparse.Namespace, grader: Grader) -> list[dict[str, Any]]:
    """Return each accepted answer of a free-text question: its normalised form, and whether the reply matches it."""
    if arguments.choices:
        return []
    return [
        {"answer": answer, "normalised": normalize(answer), "matches": _matches(reply, answer, arguments, grader)}
        for answer in arguments.answers
    ]


def _matches(reply: str, answer: str, arguments: argparse.Namespace, grader: Grader) -> bool:
    """Tell whether a reply is right by one accepted answer alone; one of which nothing is left matches nothing."""
    if not normalize(answer):
        return False
    return grade_reply(reply, [answer], reader=arguments.reader, grader=grader).correct is True


def _lines(graded: GradedReply, accepted: Sequence[dict[str, Any]], arguments: argparse.Namespace) -> Iterator[str]:
    """Yield what a person reads."""
    yield from _entry("extracted answer", [graded.answer or f"none ({graded.reason or 'the reply is empty'})"])
    if graded.rule:
        yield from _entry("rule", [graded.rule])
    if graded.answer:
        name = "letter" if arguments.choices else "normalised form"
        yield from _entry(name, [graded.label or f"none ({graded.reason or 'nothing is left'})"])
    if arguments.choices:
        right = question_of(arguments.answers, arguments.choices).correct
        shown = [
            f"{LETTERS[place]}) {choice}{' (right)' if place == right else ''}"
            for place, choice in enumerate(arguments.choices)
        ]
        yield from _entry("choices", shown)
    elif accepted:
        yield from _entry("accepted answers", [_accepted_words(entry) for entry in accepted])
    verdicts = {True: "right", False: "wrong", None: "none: --answers does not say what is right"}
    yield from _entry("verdict", [verdicts[graded.correct]])
    doubt = "yes: the extracted answer and the whole reply disagree on right or wrong; a person or a judge can decide"
    yield from _entry("uncertain", [doubt if graded.uncertain else "no"])


def _accepted_words(entry: dict[str, Any]) -> str:
    form = f"normalised: {entry['normalised']}" if entry["normalised"] else "nothing is left when it is normalised"
    return f"{entry['answer']} ({form}){', matches' if entry['matches'] else ''}"


def _entry(name: str, values: Sequence[str]) -> Iterator[str]:
    """Yield a name with its values, a line each."""
    for place, value in enumerate(values):
        yield f"{'' if place else f'{name}:':{_WIDTH}}{printable(value)}"


if __name__ == "__main__":
    main()
