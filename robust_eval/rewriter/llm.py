"""Rewrites by a language model, all of a question in one call.

Cho & Watson, "Measuring Robustness via Automated Crowdsourcing of Question Perturbations and Answers", §3
(docs/methods.md, §2).
"""

import logging
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa

from robust_eval.answer import OWN, SCHEMA, rows
from robust_eval.model.base import Request, Temperatures
from robust_eval.model.local.sentences import Sentences
from robust_eval.normalization import normal_form
from robust_eval.prompt.prompt import refuse_exemplars, rewriting_prompt
from robust_eval.prompt.templates import FEW_SHOT, REWRITING
from robust_eval.question import Question
from robust_eval.reader.reasoning import without_reasoning
from robust_eval.rewriter.base import FOUND, Rewritten
from robust_eval.rewriter.question_list import asks, finished, listed
from robust_eval.store.stored_model import StoredModel

log = logging.getLogger(__name__)

_ANOTHER_QUESTION = re.compile(r"^\s*(?:question:|rewrite the question\b)", re.I | re.M)


@dataclass
class Llm:
    """rewriter=llm: "Rewrite the question in v radically different ways", again for questions that get too few."""

    sentences: str
    """The sentence model that compares a rewrite with its question: a folder, a hub id, or embedded:PACKAGE/FOLDER."""
    model: Any = None
    """The model that rewrites, an option of the group model; null: the one that is measured."""
    rewrites: int = 5
    """How many are wanted for each question: v of the paper."""
    attempts: int = 3
    """How often a question is asked for at most."""
    temperature: float = 1.0
    max_new_tokens: int = 256
    """Length limit of a whole list, in tokens."""
    drift: str = "flag"
    """What becomes of a rewrite whose meaning has drifted: flag keeps it and counts it, drop leaves it out."""
    similarity: float = 0.5
    """Cosine to the question below which a rewrite counts as drifted."""
    prompts: str = FEW_SHOT
    """Templates and exemplars: builtin:few_shot.yaml, builtin:zero_shot.yaml (the paper's), or a file of one's own."""

    asks = True

    def __post_init__(self) -> None:
        if not self.sentences:
            raise ValueError("sentences must name a sentence model")
        for name in ("rewrites", "attempts", "max_new_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not 0 < self.temperature < math.inf:
            raise ValueError(f"temperature must be above 0, not {self.temperature:g}")
        if self.drift not in ("flag", "drop"):
            raise ValueError(f"drift must be flag or drop, not {self.drift}")
        if not -1 <= self.similarity <= 1:
            raise ValueError(f"similarity must lie between -1 and 1, not {self.similarity:g}")

    def within(self, takes: Callable[[float], Temperatures]) -> "Llm":
        """Return the same at the model's own temperature, or at the highest that it takes, where it takes no other."""
        taken = takes(self.temperature)
        other = copy(self)
        other.temperature = OWN if taken.default_only else min(self.temperature, taken.highest)
        return other

    def rewrite(self, questions: Sequence[Question], model: StoredModel, seed: int) -> Rewritten:
        """Return the questions with up to ``rewrites`` rewrites each, in place of those that they had.

        Items of the lists are dropped that repeat the question (echo) or one another (duplicate), do not ask although
        the question does (no_question), are cut by the length limit, or are more than wanted (surplus). A question that
        a content filter refuses is not asked for again.
        """
        refuse_exemplars(questions, self.prompts, REWRITING)
        sentences = Sentences(self.sentences)
        kept: dict[str, list[str]] = {question.id: [] for question in questions}
        found: list[dict[str, Any]] = []
        replies = [SCHEMA.empty_table()]
        lacking = list(questions)
        for attempt in range(self.attempts):
            requests = [self._request(question, attempt, seed) for question in lacking]
            answers = model.answers(requests, f"rewrites, attempt {attempt + 1}").table
            replies.append(answers)
            items = _items({question.id: question for question in lacking}, answers)
            sentences.precompute(text for item in items for text in (item.question.text, item.text))
            found += [self._judged(item, attempt, kept[item.question.id], sentences) for item in items]
            filtered = {row[0] for row in rows(answers, "question_id", "outcome") if row[1] == "filtered_prompt"}
            lacking = [q for q in lacking if len(kept[q.id]) < self.rewrites and q.id not in filtered]
            if not lacking:
                break
        few = sum(len(kept[question.id]) < self.rewrites for question in questions)
        _report(found, few, len(questions), self.rewrites)
        rewritten = [replace(question, rewrites=tuple(kept[question.id])) for question in questions]
        return Rewritten(rewritten, pa.Table.from_pylist(found, FOUND), pa.concat_tables(replies))

    def expected(self, questions: Sequence[Question]) -> list[Question]:
        """Return the questions as if each had all its rewrites, which are about as long as itself."""
        return [replace(question, rewrites=(question.text,) * self.rewrites) for question in questions]

    def _request(self, question: Question, attempt: int, seed: int) -> Request:
        return Request(
            question_id=question.id,
            rewrite=attempt,  # gives each attempt random numbers of its own
            prompt=rewriting_prompt(question, self.rewrites, self.prompts),
            temperatures=(self.temperature,),
            trials=1,
            max_new_tokens=self.max_new_tokens,
            seed=seed,
            first_line=False,
        )

    def _judged(self, item: "_Item", attempt: int, kept: list[str], sentences: Sentences) -> dict[str, Any]:
        """Return a row of FOUND; where the item is kept, it becomes the last of those that are ``kept``."""
        question, text = item.question, item.text
        row = {"question_id": question.id, "question": question.text, "attempt": attempt, "text": text}
        form = normal_form(text)
        if item.cut:
            return row | {"fate": "cut"}
        if not form or (asks(question.text) and not asks(text)):
            return row | {"fate": "no_question"}
        if form == normal_form(question.text):
            return row | {"fate": "echo"}
        if form in map(normal_form, kept):
            return row | {"fate": "duplicate"}
        asked, other = sentences.embed([question.text, text])
        cosine = float(asked @ other)
        row |= {"cosine": cosine, "drifted": cosine < self.similarity}
        if row["drifted"] and self.drift == "drop":
            return row | {"fate": "drifted"}
        if len(kept) == self.rewrites:
            return row | {"fate": "surplus"}
        kept.append(text)
        return row | {"fate": "kept"}


class _Item(NamedTuple):
    """One item of a list: a rewrite, perhaps."""

    question: Question
    text: str
    cut: bool


def _items(questions: dict[str, Question], answers: pa.Table) -> list[_Item]:
    """Return the items of all lists; the last of one that the length limit ended is cut, unless it ends as a sentence
    does.
    """
    items = []
    for question_id, text, outcome, finish in rows(answers, "question_id", "text", "outcome", "finish_reason"):
        text = without_reasoning(text) or ""
        own = _own_list(text)
        texts = listed(own) if outcome == "ok" else []
        for place, item in enumerate(texts, start=1):
            cut = own == text and finish == "length" and place == len(texts) and not finished(item)
            items.append(_Item(questions[question_id], item, cut))
    return items


def _own_list(reply: str) -> str:
    """Return the reply up to where a model that continues text goes on with another question of its own."""
    if _ANOTHER_QUESTION.match(reply):
        return reply  # it calls its items so
    for found in _ANOTHER_QUESTION.finditer(reply):
        if listed(reply[: found.start()]):
            return reply[: found.start()]
    return reply


def _report(found: Sequence[dict[str, Any]], few: int, questions: int, wanted: int) -> None:
    fates = Counter(row["fate"] for row in found)
    dropped = ", ".join(f"{count} {fate.replace('_', ' ')}" for fate, count in fates.items() if fate != "kept")
    drifted = sum(row["fate"] == "kept" and row["drifted"] for row in found)
    log.info(
        "rewrites: %d kept of %d offered%s; %d of the kept have drifted",
        fates["kept"],
        len(found),
        f" (dropped: {dropped})" if dropped else "",
        drifted,
    )
    if few:
        log.warning("%d of %d questions have fewer than %d rewrites", few, questions, wanted)
