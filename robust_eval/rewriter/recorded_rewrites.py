"""Recorded rewrites: of the data set, or of a file."""

import json
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from robust_eval.error import UserError
from robust_eval.model.base import Temperatures
from robust_eval.normalization import normalised_form, normalize
from robust_eval.question import Question
from robust_eval.rewriter.base import Rewritten
from robust_eval.runtime.files import text_lines
from robust_eval.runtime.json_files import json_lines, parsed_json
from robust_eval.runtime.text import counted
from robust_eval.store.stored_model import StoredModel

log = logging.getLogger(__name__)


@dataclass
class RecordedRewrites:
    """Recorded rewrites (rewriter=recorded): used unchanged, without those that repeat a wording."""

    file: str | None = None
    """JSON Lines with the ids of questions and their rewrites; null: the rewrites of the data set."""
    originals: str | None = None
    """For a ``file`` in the layout of SQuAD (such as the paraphrases of Gan & Ng, 2019): the file in this layout with
    the questions. Rewrites are paired with the questions by id, or by order if the ids differ but contexts and answers
    agree."""

    model = None
    asks = False

    def __post_init__(self) -> None:
        if self.originals is not None and self.file is None:
            raise ValueError("originals needs a file of rewrites: also set rewriter.file")

    def within(self, takes: Callable[[float], Temperatures]) -> "RecordedRewrites":
        """Return the rewriter unchanged: recorded rewrites have no temperature."""
        return self

    def expected(self, questions: Sequence[Question]) -> list[Question]:
        """Return the questions unchanged: no recorded rewrite is missing."""
        return list(questions)

    def rewrite(self, questions: Sequence[Question], model: StoredModel, seed: int) -> Rewritten:
        """Return the questions with their recorded rewrites; repetitions of one another and of the question are dropped
        and counted.
        """
        recorded = {question.id: question.rewrites for question in questions}
        if self.file is not None:
            path = Path(self.file)
            by_id = _read(path) if self.originals is None else _paired(Path(self.originals), path)
            if foreign := by_id.keys() - recorded.keys():
                log.warning("%s: ids that belong to no question in this data set: %d", self.file, len(foreign))
            recorded = {question_id: by_id.get(question_id, ()) for question_id in recorded}
        rewritten = [replace(q, rewrites=distinct(q.text, recorded[q.id])) for q in questions]
        dropped = sum(map(len, recorded.values())) - sum(len(question.rewrites) for question in rewritten)
        if dropped:
            log.warning("%s dropped: the same as the question or as another rewrite", counted(dropped, "rewrite"))
        return Rewritten(rewritten)


def distinct(question: str, rewrites: Sequence[str]) -> tuple[str, ...]:
    """Return the rewrites that, in normalised form, are not empty and differ from the question and earlier ones."""
    first_texts = {normalised_form(question): ""}
    for rewrite in rewrites:
        first_texts.setdefault(normalised_form(rewrite), rewrite)
    return tuple(rewrite for form, rewrite in first_texts.items() if form and rewrite)


class _SquadQuestion(NamedTuple):
    """Question in a file with the layout of SQuAD."""

    id: str
    text: str
    context: str
    answers: frozenset[str]


def _paired(originals: Path, rewrites: Path) -> dict[str, tuple[str, ...]]:
    """Return recorded rewrites by the id of their question, from two files in the layout of SQuAD: paired by id, or
    else by order. UserError if neither fits.
    """
    original_questions, rewritten = _squad("rewriter.originals", originals), _squad("rewriter.file", rewrites)
    pairs, id_problem = _by_id(original_questions, rewritten)
    if id_problem:
        pairs, order_problem = _by_order(original_questions, rewritten)
        if order_problem:
            raise UserError(
                f"rewriter.file: {rewrites} matches {originals} neither by id ({id_problem}) nor by order "
                f"({order_problem})"
            )
    log.info("%s: paired with %s by %s", rewrites, originals, "order" if id_problem else "id")
    by_question: dict[str, tuple[str, ...]] = {}
    for question, rewrite in pairs:
        by_question[question.id] = (*by_question.get(question.id, ()), rewrite.text)
    return by_question


_Pairs = list[tuple[_SquadQuestion, _SquadQuestion]]


def _by_id(original_questions: Sequence[_SquadQuestion], rewritten: Sequence[_SquadQuestion]) -> tuple[_Pairs, str]:
    """Return each rewrite with the question of its id and context, and no contradicting answers; or the problem."""
    questions: dict[str, list[_SquadQuestion]] = defaultdict(list)
    for question in original_questions:
        questions[question.id].append(question)
    pairs = []
    for number, rewrite in enumerate(rewritten, start=1):
        same = [question for question in questions[rewrite.id] if question.context == rewrite.context]
        if not same:
            problem = "has a different context" if questions[rewrite.id] else "is missing"
            return [], f"question {number} has the id {rewrite.id}, which {problem} in the other file"
        if same[0].answers and rewrite.answers and not same[0].answers & rewrite.answers:
            return [], f"question {number} has the id {rewrite.id}, which has different answers in the other file"
        pairs.append((same[0], rewrite))
    return pairs, ""


def _by_order(original_questions: Sequence[_SquadQuestion], rewritten: Sequence[_SquadQuestion]) -> tuple[_Pairs, str]:
    """Return each recorded rewrite with the question at its position, if context and answers agree; or the problem.

    Without answers, order counts only if a context has one question: those of a paragraph may be in any order.
    """
    if len(original_questions) != len(rewritten):
        plural = "s" if len(rewritten) != 1 else ""
        return [], f"it has {len(rewritten):,} question{plural}, but the other file has {len(original_questions):,}"
    pairs = list(zip(original_questions, rewritten, strict=True))
    on_context = Counter(question.context for question in original_questions)
    for number, (question, rewrite) in enumerate(pairs, start=1):
        if question.context != rewrite.context:
            return [], f"the questions at position {number} have different contexts"
        if question.answers != rewrite.answers and question.answers and rewrite.answers:
            return [], f"the questions at position {number} have different answers"
        if not (question.answers and rewrite.answers) and on_context[question.context] > 1:
            return [], f"the questions at position {number} share their context with others, without distinct answers"
    return pairs, ""


def _squad(setting: str, path: Path) -> list[_SquadQuestion]:
    """Return the questions in a file with the layout of SQuAD, which may lack answers."""
    text = "".join(line for _, line in text_lines(path, label=f"{setting}: {path}"))
    try:
        questions = [
            _SquadQuestion(
                str(item["id"]),
                str(item["question"]),
                str(paragraph["context"]),
                frozenset(normalize(str(answer["text"])) for answer in item.get("answers", [])),
            )
            for article in parsed_json(text)["data"]
            for paragraph in article["paragraphs"]
            for item in paragraph["qas"]
        ]
    except (json.JSONDecodeError, AttributeError, KeyError, TypeError) as problem:
        raise UserError(
            f"{setting}: {path} does not have the layout of SQuAD, "
            '{"data": [{"paragraphs": [{"context": "…", "qas": [{"id": "…", "question": "…"}]}]}]}'
        ) from problem
    if not questions:
        raise UserError(f"{setting}: {path} contains no questions")
    return questions


def _read(path: Path) -> dict[str, tuple[str, ...]]:
    """Return recorded rewrites by the id of their question; UserError names the first broken line."""
    by_id: dict[str, tuple[str, ...]] = {}
    for where, _, record in json_lines(path, f"rewriter.file: {path}"):
        fields = record if isinstance(record, dict) else {}
        question_id, rewrites = fields.get("id"), fields.get("rewrites")
        texts: list[Any] = rewrites if isinstance(rewrites, list) else [None]
        if not isinstance(question_id, str) or not all(isinstance(text, str) and text.strip() for text in texts):
            raise UserError(f'{where}: expected {{"id": "…", "rewrites": ["…", …]}} with non-empty strings')
        if question_id in by_id:
            raise UserError(f"{where}: id {question_id!r} occurs twice")
        by_id[question_id] = tuple(texts)
    return by_id
