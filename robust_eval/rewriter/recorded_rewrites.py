"""Rewrites that somebody has written down: in the data set, or in a file of their own."""

import json
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from robust_eval.error import UserError
from robust_eval.model.base import Temperatures
from robust_eval.normalization import normal_form, normalize
from robust_eval.question import Question
from robust_eval.rewriter.base import Rewritten
from robust_eval.runtime.files import json_lines, parsed_json, text_lines
from robust_eval.store.stored_model import StoredModel

log = logging.getLogger(__name__)


@dataclass
class RecordedRewrites:
    """rewriter=recorded: rewrites are taken as they are, but for those that are no other wording."""

    file: str | None = None
    """JSON Lines with the id of a question and its rewrites; null: the rewrites that the data set brings."""
    originals: str | None = None
    """For a ``file`` in the layout of SQuAD (as the paraphrases of Gan & Ng, 2019, have): the file in this layout that
    holds the questions themselves. Rewrites are paired with them by id; where their ids are those of other questions,
    by order, if contexts and answers agree."""

    model = None
    asks = False

    def __post_init__(self) -> None:
        if self.originals is not None and self.file is None:
            raise ValueError("originals are of no use without a file of rewrites")

    def within(self, takes: Callable[[float], Temperatures]) -> "RecordedRewrites":
        """Return the rewriter as it is: no model is asked."""
        return self

    def expected(self, questions: Sequence[Question]) -> list[Question]:
        """Return the questions as they are: no rewrite has to be waited for."""
        return list(questions)

    def rewrite(self, questions: Sequence[Question], model: StoredModel, seed: int) -> Rewritten:
        """Return the questions with their rewrites; repetitions of one another and of the question are dropped and
        counted.
        """
        recorded = {question.id: question.rewrites for question in questions}
        if self.file is not None:
            path = Path(self.file)
            by_id = _read(path) if self.originals is None else _paired(Path(self.originals), path)
            if foreign := by_id.keys() - recorded.keys():
                log.warning("%s: %d ids are no questions of this data set", self.file, len(foreign))
            recorded = {question_id: by_id.get(question_id, ()) for question_id in recorded}
        rewritten = [replace(q, rewrites=distinct(q.text, recorded[q.id])) for q in questions]
        dropped = sum(map(len, recorded.values())) - sum(len(question.rewrites) for question in rewritten)
        if dropped:
            log.warning("%d rewrites repeat their question or one another, and are dropped", dropped)
        return Rewritten(rewritten)


def distinct(question: str, rewrites: Sequence[str]) -> tuple[str, ...]:
    """Return the rewrites whose normal form is neither the question's nor that of one before them, nor empty."""
    first_texts = {normal_form(question): ""}
    for rewrite in rewrites:
        first_texts.setdefault(normal_form(rewrite), rewrite)
    return tuple(rewrite for form, rewrite in first_texts.items() if form and rewrite)


class _SquadQuestion(NamedTuple):
    """A question in a file that has the layout of SQuAD."""

    id: str
    text: str
    context: str
    answers: frozenset[str]


def _paired(originals: Path, rewrites: Path) -> dict[str, tuple[str, ...]]:
    """Rewrites by the id of their question, of two files in the layout of SQuAD: paired by id, or where ids are those
    of other questions, by order. UserError where neither fits.
    """
    original_questions, rewritten = _squad("rewriter.originals", originals), _squad("rewriter.file", rewrites)
    pairs, by_id = _by_id(original_questions, rewritten)
    if by_id:
        pairs, by_order = _by_order(original_questions, rewritten)
        if by_order:
            raise UserError(
                f"rewriter.file: {rewrites} does not go with {originals}, neither by id ({by_id}) nor by order "
                f"({by_order})"
            )
    log.info("%s: paired with %s by %s", rewrites, originals, "order" if by_id else "id")
    by_question: dict[str, tuple[str, ...]] = {}
    for question, rewrite in pairs:
        by_question[question.id] = (*by_question.get(question.id, ()), rewrite.text)
    return by_question


_Pairs = list[tuple[_SquadQuestion, _SquadQuestion]]


def _by_id(original_questions: Sequence[_SquadQuestion], rewritten: Sequence[_SquadQuestion]) -> tuple[_Pairs, str]:
    """Return each rewrite with the question of its id, which has its context and none but other answers; or why not."""
    questions: dict[str, list[_SquadQuestion]] = defaultdict(list)
    for question in original_questions:
        questions[question.id].append(question)
    pairs = []
    for place, rewrite in enumerate(rewritten, start=1):
        same = [question for question in questions[rewrite.id] if question.context == rewrite.context]
        if not same:
            what = "on another context" if questions[rewrite.id] else "not there"
            return [], f"question {place} has the id {rewrite.id}, which is {what}"
        if same[0].answers and rewrite.answers and not same[0].answers & rewrite.answers:
            return [], f"question {place} has the id {rewrite.id}, which has other answers there"
        pairs.append((same[0], rewrite))
    return pairs, ""


def _by_order(original_questions: Sequence[_SquadQuestion], rewritten: Sequence[_SquadQuestion]) -> tuple[_Pairs, str]:
    """Return each rewrite with the question at its place, which has its context and its answers; or why not.

    Without answers, order is believed only where a context has one question: those of a paragraph may be in any order.
    """
    if len(original_questions) != len(rewritten):
        return [], f"there are {len(rewritten):,} questions, and {len(original_questions):,} there"
    pairs = list(zip(original_questions, rewritten, strict=True))
    on_context = Counter(question.context for question in original_questions)
    for place, (question, rewrite) in enumerate(pairs, start=1):
        if question.context != rewrite.context:
            return [], f"the questions {place} are on different contexts"
        if question.answers != rewrite.answers and question.answers and rewrite.answers:
            return [], f"the questions {place} have different answers"
        if not (question.answers and rewrite.answers) and on_context[question.context] > 1:
            return [], f"the questions {place} are some of several on a context, without answers that tell them apart"
    return pairs, ""


def _squad(setting: str, path: Path) -> list[_SquadQuestion]:
    """Return the questions in a file that has the layout of SQuAD, which may lack answers."""
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
            f"{setting}: {path} has not the layout of SQuAD, "
            '{"data": [{"paragraphs": [{"context": "…", "qas": [{"id": "…", "question": "…"}]}]}]}'
        ) from problem
    if not questions:
        raise UserError(f"{setting}: {path} holds no question")
    return questions


def _read(path: Path) -> dict[str, tuple[str, ...]]:
    """Rewrites by id; UserError names the first line that is broken."""
    by_id: dict[str, tuple[str, ...]] = {}
    for where, _, record in json_lines(path, f"rewriter.file: {path}"):
        question_id, rewrites = (record.get("id"), record.get("rewrites")) if isinstance(record, dict) else (None, None)
        if (
            not isinstance(question_id, str)
            or not isinstance(rewrites, list)
            or not all(isinstance(text, str) and text.strip() for text in rewrites)
        ):
            raise UserError(f'{where}: wanted {{"id": "…", "rewrites": ["…", …]}}, texts that are not empty')
        if question_id in by_id:
            raise UserError(f"{where}: id {question_id!r} stands twice")
        by_id[question_id] = tuple(rewrites)
    return by_id
