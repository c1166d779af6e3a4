"""Questions of published data sets: of their records on the hub and as they were published."""

import hashlib
import re
from collections.abc import Iterator
from itertools import chain, groupby
from pathlib import Path
from typing import Any

from robust_eval.dataset.record import (
    MALFORMED,
    MALFORMED_CHOICES,
    NO_CHOICES,
    NO_QUESTION,
    NO_RIGHT_CHOICE,
    NO_WRONG_REFERENCE,
    UNANSWERABLE,
    Record,
    Unusable,
    answers,
    choices,
    items,
    letter_position,
    optional,
    position,
    several,
    text,
)
from robust_eval.error import UserError
from robust_eval.question import LETTERS, Question
from robust_eval.runtime.files import module_data, text_lines

SUBJECTS: tuple[str, ...] = tuple(module_data(__file__)["mmlu_subjects"])
"""Subjects of MMLU."""
MMLU_HEADER = ("question", "A", "B", "C", "D", "answer")
"""Columns of MMLU's published tables, which do not name them."""
TYPES = {
    "ABBR": "abbreviation",
    "ENTY": "entity",
    "DESC": "description",
    "HUM": "human",
    "LOC": "location",
    "NUM": "number",
}
"""The coarse classes of TREC (Li & Roth), in the order in which the hub numbers them."""
_OPTION = re.compile(r"(?:^|,)\s*([a-e]) ?\)")
_LETTERED = re.compile(r"^([A-Z]):\s*")
_SPLIT = re.compile(r"_(dev|val|test)$")


def paragraph(context: str) -> str:
    """Return a name for a text that several questions may be about, the same whatever the source; empty for none."""
    return hashlib.sha256(context.encode()).hexdigest()[:16] if context else ""


def squad_records(records: Iterator[Record], file: Path | None) -> Iterator[Record]:
    """Yield the questions of SQuAD; in its published files articles hold paragraphs, and these hold questions."""
    for record in records:
        if "data" not in record:
            yield record
            continue
        for article in _objects(record["data"]):
            for section in _objects(article.get("paragraphs")):
                for entry in _objects(section.get("qas")):
                    yield {"title": article.get("title"), "context": section.get("context"), **entry}


def _objects(value: Any) -> list[dict[str, Any]]:
    """Return the entries of a published list; one that is no object becomes an empty one, which makes no question."""
    return [entry if isinstance(entry, dict) else {} for entry in (value if isinstance(value, list) else [{}])]


def squad(record: Record) -> Question:
    """Return the question of a record of SQuAD, 1.1 or 2.0; the questions of a paragraph depend on each other."""
    given_answers = record.get("answers")
    spans = (
        given_answers.get("text")
        if isinstance(given_answers, dict)
        else [entry.get("text") for entry in _objects(given_answers)]
    )
    if record.get("is_impossible") is True or (given_answers is not None and not items(spans)):
        raise Unusable(UNANSWERABLE)
    context = optional(record.get("context"))
    return Question(
        id=optional(record.get("id")),
        text=text(record.get("question"), NO_QUESTION),
        answers=answers(items(spans)),
        context=context,
        category=optional(record.get("title")),
        group=paragraph(context),
    )


def trivia_qa_records(records: Iterator[Record], file: Path | None) -> Iterator[Record]:
    """Yield the questions of TriviaQA; a published file holds them under ``Data``."""
    for record in records:
        yield from _objects(record["Data"]) if "Data" in record else [record]


def trivia_qa(record: Record) -> Question:
    """Return the question of a record of TriviaQA, from the hub, the published file, or the table of DPR, which has
    questions with lists of answers.
    """
    answer = record.get("answer", record.get("Answer"))
    if isinstance(answer, dict):
        value, aliases = answer.get("value", answer.get("Value")), answer.get("aliases", answer.get("Aliases"))
        accepted = [value, *items(aliases)]
    else:
        accepted = items(answer)
    return Question(
        id=optional(record.get("question_id", record.get("QuestionId"))),
        text=text(record.get("question", record.get("Question")), NO_QUESTION),
        answers=answers(accepted),
    )


def hotpot_qa(record: Record) -> Question:
    """Return the question of a record of HotpotQA, from the hub, the published file, or KILT, where the output may have
    no answer.
    """
    if "output" in record:
        return Question(
            id=optional(record.get("id")),
            text=text(record.get("input"), NO_QUESTION),
            answers=answers(entry.get("answer") for entry in _objects(record["output"])),
        )
    return Question(
        id=optional(record.get("id", record.get("_id"))),
        text=text(record.get("question"), NO_QUESTION),
        answers=answers([record.get("answer")]),
        context=_articles(record.get("context")),
        category=optional(record.get("type")),
    )


def _articles(context: Any) -> str:
    """Return the paragraphs of a record of HotpotQA, each under the title of its article."""
    if isinstance(context, dict):
        pairs = list(zip(items(context.get("title")), items(context.get("sentences")), strict=False))
    else:
        pairs = [tuple(entry) for entry in items(context) if isinstance(entry, list) and len(entry) == 2]
    paragraphs = ((optional(title), "".join(map(str, items(sentences))).strip()) for title, sentences in pairs)
    return optional("\n".join(f"{title}: {sentences}" for title, sentences in paragraphs))


def nq_open(record: Record) -> Question:
    """Return the question of a record of Natural Questions, open: a question and a list of answers."""
    return Question("", text(record.get("question"), NO_QUESTION), answers(items(record.get("answer"))))


def pop_qa(record: Record) -> Question:
    """Return the question of a record of PopQA, a fact of Wikidata.

    Facts about one subject depend on each other; the category is the relation.
    """
    return Question(
        id=optional(record.get("id")),
        text=text(record.get("question"), NO_QUESTION),
        answers=answers(items(record.get("possible_answers"))),
        category=optional(record.get("prop")),
        group=optional(record.get("s_uri", record.get("subj_id"))),
    )


def wiki_qa_records(records: Iterator[Record], file: Path | None) -> Iterator[Record]:
    """Yield the questions of WikiQA, each with its rows, which follow one another and hold a sentence each."""
    for _, rows in groupby(records, key=_wiki_question):
        rows_of_question = list(rows)
        yield {**rows_of_question[0], "rows": rows_of_question}


def _wiki_question(row: Record) -> tuple[Any, Any]:
    return row.get("question_id", row.get("QuestionID")), row.get("question", row.get("Question"))


def wiki_qa(record: Record) -> Question:
    """Return the question of a record of WikiQA: sentences that answer it, and others of the same article.

    Many questions have no answer.
    """
    right: list[Any] = []
    wrong: list[Any] = []
    for row in record["rows"]:
        label, sentence = row.get("label", row.get("Label")), row.get("answer", row.get("Sentence"))
        if label not in (0, 1, "0", "1") or isinstance(label, bool) or not optional(sentence):
            raise Unusable(MALFORMED)
        (right if label in (1, "1") else wrong).append(sentence)
    if not right:
        raise Unusable(UNANSWERABLE)
    title = optional(record.get("document_title", record.get("DocumentTitle")))
    return Question(
        id=optional(record.get("question_id", record.get("QuestionID"))),
        text=text(record.get("question", record.get("Question")), NO_QUESTION),
        answers=answers(right),
        incorrect=several(wrong),
        category=title,
        group=title,
    )


def truthful_qa_answers(record: Record) -> Question:
    """Return the question of a record of TruthfulQA, in words: right references and wrong ones.

    In the published table, lists are joined by "; ".
    """
    best = record.get("best_answer", record.get("Best Answer"))
    right = record.get("correct_answers", record.get("Correct Answers"))
    wrong = record.get("incorrect_answers", record.get("Incorrect Answers"))
    references = several(_joined(wrong))
    if not references:
        raise Unusable(NO_WRONG_REFERENCE)  # a reply is right that is nearer to a right one
    return Question(
        id="",
        text=text(record.get("question", record.get("Question")), NO_QUESTION),
        answers=answers([best, *_joined(right)]),
        category=optional(record.get("category", record.get("Category"))),
        incorrect=references,
    )


def _joined(value: Any) -> list[Any]:
    return items(value) or (value.split(";") if isinstance(value, str) else [])


def lettered(record: Record) -> Question:
    """Return the question of a record of ARC or OpenBookQA: choices labelled A to E or 1 to 4, and the right label."""
    stem: Any = record.get("question", record.get("question_stem"))
    options = record.get("choices")
    if isinstance(stem, dict):
        stem, options = stem.get("stem"), stem.get("choices")
    if isinstance(options, dict):
        texts, labels = items(options.get("text")), items(options.get("label"))
    else:
        entries = _objects(items(options))
        texts, labels = [entry.get("text") for entry in entries], [entry.get("label") for entry in entries]
    if len(texts) != len(labels):
        raise Unusable(MALFORMED_CHOICES)
    return Question(
        id=optional(record.get("id")),
        text=text(stem, NO_QUESTION),
        choices=choices(texts),
        correct=letter_position(record.get("answerKey"), [optional(label) for label in labels]),
    )


def mmlu_records(records: Iterator[Record], file: Path | None) -> Iterator[Record]:
    """Yield the records of MMLU with their subject, which is the name of a published table."""
    for record in records:
        yield {"subject": _SPLIT.sub("", file.stem), **record} if file and "A" in record else record


def mmlu(record: Record) -> Question:
    """Return the question of a record of MMLU: four choices, and the right one's number from 0, or its letter.

    The category is the subject.
    """
    options = items(record.get("choices")) if "choices" in record else [record.get(letter) for letter in "ABCD"]
    right = record.get("answer")
    is_letter = isinstance(right, str) and not right.strip().isdecimal()
    four = choices(options)
    return Question(
        id="",
        text=text(record.get("question"), NO_QUESTION),
        choices=four,
        correct=letter_position(right, LETTERS[: len(four)]) if is_letter else position(right, len(four)),
        category=optional(record.get("subject")),
    )


def sciq(record: Record) -> Question:
    """Return the question of a record of SciQ: the right answer, up to three distractors, and a passage that supports
    it, which not every file has.
    """
    right = record.get("correct_answer", record.get("answer"))
    accepted = answers([right])
    distractors = [record[name] for name in ("distractor1", "distractor2", "distractor3") if name in record]
    return Question(
        id="",
        text=text(record.get("question"), NO_QUESTION),
        answers=accepted,
        choices=choices([right, *distractors]) if distractors else (),
        correct=0 if distractors else None,
        context=optional(record.get("support")),
    )


def piqa_records(records: Iterator[Record], file: Path | None) -> Iterator[Record]:
    """Yield the records of PIQA with their labels: those of NAME.jsonl stand in NAME-labels.lst, a line each."""
    first = next(records, None)
    if first is None:
        return
    every = chain([first], records)
    if file is None or "label" in first or "goal" not in first:
        yield from every
        return
    label_file = file.with_name(f"{file.stem}-labels.lst")
    try:
        labels = [line.strip() for _, line in text_lines(label_file) if line.strip()]
    except UserError as problem:
        raise UserError(f"{file} contains no labels, and {problem}") from problem
    number = 0
    for number, record in enumerate(every, start=1):
        if number > len(labels):
            break
        yield {**record, "label": labels[number - 1]}
    if number != len(labels):
        raise UserError(f"{file} must have a question for each of the {len(labels):,} labels in {label_file}")


def piqa(record: Record) -> Question:
    """Return the question of a record of PIQA: a goal and two ways to reach it."""
    return Question(
        id=optional(record.get("id")),
        text=text(record.get("goal"), NO_QUESTION),
        choices=choices([record.get("sol1"), record.get("sol2")]),
        correct=position(record.get("label"), 2),
    )


def math_qa(record: Record) -> Question:
    """Return the question of a record of MathQA: five choices in one text, "a ) 38 , b ) 27.675 , …", or in
    a list of such texts.
    """
    options = record.get("options")
    joined = " , ".join(map(str, items(options))) or optional(options)
    if not joined:
        raise Unusable(NO_CHOICES)
    before, *pieces = _OPTION.split(joined)
    twice = any(_OPTION.match(choice.strip()) for choice in pieces[1::2])  # "a ) a ) 8"
    if before.strip() or twice or "".join(pieces[::2]) != "abcde"[: len(pieces) // 2]:
        raise Unusable(MALFORMED_CHOICES)
    return Question(
        id="",
        text=text(record.get("Problem"), NO_QUESTION),
        choices=choices(pieces[1::2]),
        correct=letter_position(record.get("correct"), pieces[::2]),
        category=optional(record.get("category")),
    )


def boolq(record: Record) -> Question:
    """Return the question of a record of BoolQ, yes or no, on a passage.

    The published answer may be the text "True" or "False".
    """
    answer = record.get("answer")
    right = answer if isinstance(answer, bool) else {"true": True, "false": False}.get(optional(answer).casefold())
    if right is None:
        raise Unusable(NO_RIGHT_CHOICE)
    passage = optional(record.get("passage"))
    return Question(
        id="",
        text=text(record.get("question"), NO_QUESTION),
        answers=("yes", "true") if right else ("no", "false"),
        choices=("yes", "no"),
        correct=0 if right else 1,
        context=passage,
        group=paragraph(passage),
    )


def truthful_qa_choices(record: Record) -> Question:
    """Return the question of a record of TruthfulQA, mc1: one right choice, the first one in every record.

    The choices are a mapping, or two lists on the hub.
    """
    targets = record.get("mc1_targets")
    if not isinstance(targets, dict):
        raise Unusable(NO_CHOICES)
    if targets.keys() >= {"choices", "labels"}:
        texts, labels = items(targets["choices"]), items(targets["labels"])
    else:
        texts, labels = list(targets), list(targets.values())
    if len(texts) != len(labels) or any(label not in (0, 1) for label in labels):
        raise Unusable(MALFORMED_CHOICES)
    shown_choices = choices(texts)
    if labels.count(1) != 1:
        raise Unusable(NO_RIGHT_CHOICE)
    return Question(
        id="", text=text(record.get("question"), NO_QUESTION), choices=shown_choices, correct=labels.index(1)
    )


def mlphys101(record: Record) -> Question:
    """Return the question of a record of the physics study (Reganova & Steinbach): choices "A: …", and the right one's
    number from 0.

    Most of its records have the key alone, without text and choices, for which letters stand. Recorded answers to such
    a question can be graded, but no model can be asked.
    """
    key_alone = optional(record.get("id")) and record.get("task") == "" and record.get("opt") == ""
    options = list(LETTERS[:5]) if key_alone else map(optional, items(record.get("opt")))
    shown_choices = choices([_LETTERED.sub("", choice) for choice in options])
    return Question(
        id=optional(record.get("id")),
        text="" if key_alone else text(record.get("task"), NO_QUESTION),
        choices=shown_choices,
        correct=position(record.get("ans"), len(shown_choices)),
        category=optional(record.get("diff")),
    )


def trec(record: Record) -> Question:
    """Return the question of a record of TREC: the type of a question, as one of six choices.

    The type is its class, the category the finer one.
    """
    coarse: Any
    if "line" in record:
        label, _, question_text = optional(record["line"]).partition(" ")
        coarse, _, fine = label.partition(":")
    else:
        question_text, coarse = optional(record.get("text")), record.get("coarse_label")
        fine = record["fine_label"] if isinstance(record.get("fine_label"), str) else ""  # the hub's are numbers
        if not isinstance(coarse, str):
            coarse = list(TYPES)[position(coarse, len(TYPES))]
    if coarse not in TYPES:
        raise Unusable(MALFORMED)
    return Question(
        id="",
        text=text(question_text, NO_QUESTION),
        choices=tuple(TYPES.values()),
        correct=list(TYPES).index(coarse),
        type=coarse,
        category=fine.rpartition(":")[2],
    )
