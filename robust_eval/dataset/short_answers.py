"""Data sets whose questions are answered in words: what their records ask, on the hub and as they were published."""

import hashlib
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from robust_eval.dataset.record import (
    MALFORMED,
    NO_QUESTION,
    NO_WRONG_REFERENCE,
    UNANSWERABLE,
    Record,
    Unusable,
    answers,
    items,
    optional,
    several,
    text,
)
from robust_eval.question import Question


def paragraph(context: str) -> str:
    """Return a name for a text that several questions may be about, the same whatever the source; empty for none."""
    return hashlib.sha256(context.encode()).hexdigest()[:16] if context else ""


def squad_records(records: Iterator[Record], file: Path | None) -> Iterator[Record]:
    """Yield articles hold paragraphs, and these hold questions, in the published files of SQuAD."""
    for record in records:
        if "data" not in record:
            yield record
            continue
        for article in _objects(record["data"]):
            for section in _objects(article.get("paragraphs")):
                for entry in _objects(section.get("qas")):
                    yield {"title": article.get("title"), "context": section.get("context"), **entry}


def _objects(value: Any) -> list[dict[str, Any]]:
    """Return the entries of a list; what is no object is an empty one, which no question can be made of."""
    return [entry if isinstance(entry, dict) else {} for entry in (value if isinstance(value, list) else [{}])]


def squad(record: Record) -> Question:
    """SQuAD, 1.1 and 2.0: the questions of a paragraph depend on each other."""
    given = record.get("answers")
    spans = given.get("text") if isinstance(given, dict) else [entry.get("text") for entry in _objects(given)]
    if record.get("is_impossible") is True or (given is not None and not items(spans)):
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
    """Yield a published file of TriviaQA holds its questions under ``Data``."""
    for record in records:
        yield from _objects(record["Data"]) if "Data" in record else [record]


def trivia_qa(record: Record) -> Question:
    """TriviaQA: the hub's columns, the published file, or the table of question and list of answers of DPR."""
    given = record.get("answer", record.get("Answer"))
    if isinstance(given, dict):
        value, aliases = given.get("value", given.get("Value")), given.get("aliases", given.get("Aliases"))
        accepted = [value, *items(aliases)]
    else:
        accepted = items(given)
    return Question(
        id=optional(record.get("question_id", record.get("QuestionId"))),
        text=text(record.get("question", record.get("Question")), NO_QUESTION),
        answers=answers(accepted),
    )


def hotpot_qa(record: Record) -> Question:
    """HotpotQA: the hub's columns, the published file, or the layout of KILT, where output may be without answer."""
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
    """Return the paragraphs of HotpotQA, each under the title of its article."""
    if isinstance(context, dict):
        pairs = list(zip(items(context.get("title")), items(context.get("sentences")), strict=False))
    else:
        pairs = [tuple(entry) for entry in items(context) if isinstance(entry, list) and len(entry) == 2]
    shown = ((optional(title), "".join(map(str, items(sentences))).strip()) for title, sentences in pairs)
    return optional("\n".join(f"{title}: {sentences}" for title, sentences in shown))


def nq_open(record: Record) -> Question:
    """Natural Questions, open: a question and a list of answers."""
    return Question("", text(record.get("question"), NO_QUESTION), answers(items(record.get("answer"))))


def pop_qa(record: Record) -> Question:
    """PopQA: facts of Wikidata; those about one subject depend on each other, the category is the relation."""
    return Question(
        id=optional(record.get("id")),
        text=text(record.get("question"), NO_QUESTION),
        answers=answers(items(record.get("possible_answers"))),
        category=optional(record.get("prop")),
        group=optional(record.get("s_uri", record.get("subj_id"))),
    )


def wiki_qa_records(records: Iterator[Record], file: Path | None) -> Iterator[Record]:
    """Yield the rows of one question of WikiQA, a sentence each, follow one another."""
    for _, rows in groupby(records, key=_wiki_question):
        found = list(rows)
        yield {**found[0], "rows": found}


def _wiki_question(row: Record) -> tuple[Any, Any]:
    return row.get("question_id", row.get("QuestionID")), row.get("question", row.get("Question"))


def wiki_qa(record: Record) -> Question:
    """WikiQA: sentences that answer the question, and others of the same article; many questions have no answer."""
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
    """TruthfulQA, in words: right references and wrong ones; in the published table lists are joined by "; "."""
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
