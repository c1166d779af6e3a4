"""Rewriter that asks a language model (LLM) for all rewrites of a question in one call.

Cho & Watson, "Measuring Robustness via Automated Crowdsourcing of Question Perturbations and Answers", §3
(docs/methods.md, §2).
"""

import json
import logging
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa

from robust_eval.answer import DEFAULT_TEMPERATURE, SCHEMA, rows
from robust_eval.model.base import Request, Temperatures
from robust_eval.model.local.sentences import Sentences
from robust_eval.normalization import normalised_form
from robust_eval.prompt.prompt import refuse_exemplars, rewriting_prompt
from robust_eval.prompt.templates import FEW_SHOT, REWRITING
from robust_eval.question import Question
from robust_eval.reader.reasoning import without_reasoning
from robust_eval.rewriter.base import FATES, MODEL_REWRITES, Rewritten
from robust_eval.store.stored_model import StoredModel

log = logging.getLogger(__name__)

_ANOTHER_QUESTION = re.compile(r"^\s*(?:question:|rewrite the question\b)", re.I | re.M)


@dataclass
class Llm:
    """Rewriter by LLM (rewriter=llm): "Rewrite the question in v radically different ways", again for questions that
    get too few.
    """

    sentences: str
    """Sentence-embedding model that compares a rewrite with its question: a folder, a hub id, or
    embedded:PACKAGE/FOLDER."""
    model: Any = None
    """Model that rewrites, an option of the group model; null: the model under test."""
    rewrites: int = 5
    """Number of rewrites of each question: v in the paper."""
    attempts: int = 3
    """Maximum number of requests for a question."""
    temperature: float = 1.0
    """Temperature of the rewrites, by default as in the paper."""
    max_new_tokens: int = 256
    """Length limit of a list of rewrites, in tokens."""
    drift: str = "flag"
    """Treatment of a rewrite whose meaning has drifted: flag keeps and counts it, drop leaves it out."""
    similarity: float = 0.5
    """Cosine similarity to the question below which a rewrite counts as drifted."""
    prompts: str = FEW_SHOT
    """Templates and exemplars: builtin:few_shot.yaml, builtin:zero_shot.yaml (the paper's), or the path of a file."""

    asks = True

    def __post_init__(self) -> None:
        if not self.sentences:
            raise ValueError("sentences must name a sentence-embedding model")
        for name in ("rewrites", "attempts", "max_new_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not 0 < self.temperature < math.inf:
            raise ValueError(f"temperature must be finite and above 0, not {self.temperature:g}")
        if self.drift not in ("flag", "drop"):
            raise ValueError(f"drift must be flag or drop, not {self.drift}")
        if not -1 <= self.similarity <= 1:
            raise ValueError(f"similarity must be between -1 and 1, not {self.similarity:g}")

    def within(self, takes: Callable[[float], Temperatures]) -> "Llm":
        """Return the rewriter at the nearest temperature that the language model takes, or at the model's own."""
        range_ = takes(self.temperature)
        rewriter = copy(self)
        rewriter.temperature = DEFAULT_TEMPERATURE if range_.default_only else min(self.temperature, range_.highest)
        return rewriter

    def rewrite(self, questions: Sequence[Question], model: StoredModel, seed: int) -> Rewritten:
        """Return the questions, each with up to ``rewrites`` new rewrites by the language model.

        Dropped are items of the lists that repeat the question (echo) or one another (duplicate), do not ask although
        the question does (no_question), are truncated by the length limit (cut), or exceed the number (surplus). A
        question that a content filter refuses has no further attempt.
        """
        refuse_exemplars(questions, self.prompts, REWRITING)
        sentences = Sentences(self.sentences)
        kept_texts: dict[str, list[str]] = {question.id: [] for question in questions}
        offers: list[dict[str, Any]] = []
        replies = [SCHEMA.empty_table()]
        incomplete = list(questions)
        for attempt in range(self.attempts):
            requests = [self._request(question, attempt, seed) for question in incomplete]
            answers = model.answers(requests, f"rewrites, attempt {attempt + 1}").table
            replies.append(answers)
            items = _items({question.id: question for question in incomplete}, answers)
            sentences.precompute(text for item in items for text in (item.question.text, item.text))
            offers += [self._judged(item, attempt, kept_texts[item.question.id], sentences) for item in items]
            filtered = {row[0] for row in rows(answers, "question_id", "outcome") if row[1] == "filtered_prompt"}
            incomplete = [q for q in incomplete if len(kept_texts[q.id]) < self.rewrites and q.id not in filtered]
            if not incomplete:
                break
        few = sum(len(kept_texts[question.id]) < self.rewrites for question in questions)
        _report(offers, few, len(questions), self.rewrites)
        rewritten = [replace(question, rewrites=tuple(kept_texts[question.id])) for question in questions]
        return Rewritten(rewritten, pa.Table.from_pylist(offers, MODEL_REWRITES), pa.concat_tables(replies))

    def expected(self, questions: Sequence[Question]) -> list[Question]:
        """Return the questions as if a language model had written all rewrites, each about as long as its question."""
        return [replace(question, rewrites=(question.text,) * self.rewrites) for question in questions]

    def _request(self, question: Question, attempt: int, seed: int) -> Request:
        return Request(
            question_id=question.id,
            variant=attempt,  # gives each attempt random numbers of its own
            prompt=rewriting_prompt(question, self.rewrites, self.prompts),
            temperatures=(self.temperature,),
            trials=1,
            max_new_tokens=self.max_new_tokens,
            seed=seed,
            first_line=False,
        )

    def _judged(self, item: "_ListItem", attempt: int, kept_texts: list[str], sentences: Sentences) -> dict[str, Any]:
        """Return a row of MODEL_REWRITES for a listed rewrite, and add it to ``kept_texts`` if it is kept."""
        question, text = item.question, item.text
        row = {"question_id": question.id, "question": question.text, "attempt": attempt, "text": text}
        form = normalised_form(text)
        if item.cut:
            return row | {"fate": "cut"}
        if not form or (asks(question.text) and not asks(text)):
            return row | {"fate": "no_question"}
        if form == normalised_form(question.text):
            return row | {"fate": "echo"}
        if form in map(normalised_form, kept_texts):
            return row | {"fate": "duplicate"}
        question_vector, other = sentences.embed([question.text, text])
        cosine = float(question_vector @ other)
        row |= {"cosine": cosine, "drifted": cosine < self.similarity}
        if row["drifted"] and self.drift == "drop":
            return row | {"fate": "drifted"}
        if len(kept_texts) == self.rewrites:
            return row | {"fate": "surplus"}
        kept_texts.append(text)
        return row | {"fate": "kept"}


class _ListItem(NamedTuple):
    """Item of a language model's list of rewrites, and True if it is truncated."""

    question: Question
    text: str
    cut: bool


def _items(questions: dict[str, Question], answers: pa.Table) -> list[_ListItem]:
    """Return the rewrites in all lists; the last of a truncated one is cut, unless it ends as a sentence does."""
    items = []
    for question_id, text, outcome, finish in rows(answers, "question_id", "text", "outcome", "finish_reason"):
        text = without_reasoning(text) or ""
        list_text = _first_list(text)
        texts = listed(list_text) if outcome == "ok" else []
        is_truncated = list_text == text and finish == "length"
        for number, item in enumerate(texts, start=1):
            cut = is_truncated and number == len(texts) and not finished(item)
            items.append(_ListItem(questions[question_id], item, cut))
    return items


def _first_list(reply: str) -> str:
    """Return a reply up to the point at which a base model continues its list of rewrites with another question."""
    starts = [] if _ANOTHER_QUESTION.match(reply) else [each.start() for each in _ANOTHER_QUESTION.finditer(reply)]
    return next((reply[:start] for start in starts if listed(reply[:start])), reply)


def _report(offers: Sequence[dict[str, Any]], few: int, questions: int, target: int) -> None:
    fates = Counter(row["fate"] for row in offers)
    dropped = ", ".join(f"{count} {FATES[fate]}" for fate, count in fates.items() if fate != "kept")
    dropped = f" (dropped: {dropped})" if dropped else ""
    drifted = sum(row["fate"] == "kept" and row["drifted"] for row in offers)
    kept = f"rewrites: {fates['kept']} of {len(offers)} kept{dropped}"
    log.info("%s; the meaning of %d of these may have drifted", kept, drifted)
    if few:
        log.warning("%d of %d questions have fewer than %d rewrites", few, questions, target)


_BEGINS_TO_ASK = re.compile(
    r"""(?:
        (?:(?:in|at|on|by|of|for|from|to|with|into|under|during|after|before|about|since|until|near)\ )?(?:the\ )?
        (?:who|what|which|when|where|why|how|whom|whose)
        |(?:is|are|was|were|do|does|did|can|could|would|will|should|has|have|had)(?:n['’]t)?
        |I\ wonder|I(?:['’]d|\ would)\ like\ to\ know
        |(?:please|tell|name|identify|state|give|explain|describe|list|find|determine|calculate|compute|specify|provide
            |mention|choose|select|pick|point\ out|complete|define|indicate|recall|guess|reveal|clarify|locate|write
            |say)(?!\ *:|\ of\b)
    )\b""",
    re.I | re.X,
)
_INTRODUCTION = re.compile(r"here (?:are|is)\b", re.I)
_OFFER = re.compile(r"(?:would|do) you (?:like|want|need)\b", re.I)  # "Would you like more?"
_GAP = re.compile(r"_{2,}|\[blank\]|^(?:…|\.{3})|(?:…|\.{3})$", re.I)
_CLOSING = "\"'”’“»」)]*_` "

_FENCE = re.compile(r"^ *(?:```.*|-{3,}|\*{3,}) *$", re.M)
_BROKEN_JSON = re.compile(r"""[\[{]\s*["']""")
_JSON = re.compile(r"""(?:^|:) *+(?=[\[{]\s*["{\[])""", re.M)
_NUMBER_IN_THE_LINE = re.compile(
    r"""(?:^ *|(?<=[?？。！!.…:;"”)*_]) +)(?P<item>\**(?P<number>\d{1,2})[.)](?=[ *"“]))""", re.M
)
_NUMBER = re.compile(
    r"""[ >|\#-]*[*_]*(?:(?:rewrite|version|variation|question|q)\ *)?
    [(\[]?\d{1,2}(?:[*_]*(?:\ *[.):\]|、](?!\d)|\ [-–—](?=\ ))|$)[*_:]*\ *""",
    re.I | re.X,
)
_BULLET = re.compile(r" *(?:[-–—*+] |[•▪‣●·]) *")
_LABEL = re.compile(r"(?P<mark>\*{1,2}|_)(?P<label>[^*_?]{1,60}?)(?::(?P=mark)|(?P=mark) *[:–—-]) *(?=\S)")
_EMPHASIS = re.compile(r"(?<![\w*])(\*{1,3})(?=[^\s*])([^*]+)(?<=\S)\1(?![\w*])|(?<!\w)(__?)(?=[^\s_])([^_]+)\3(?!\w)")
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "«": "»", "`": "`"}
_APOSTROPHE = re.compile(r"(?<=\w)['’](?=\w)")


def listed(reply: str) -> list[str]:
    r"""Return the rewrites in a list that a language model wrote, without markers, quotes and emphasis.

    >>> listed('Sure! Here they are:\n1. **Formal:** "Who is the author of Emma?"\n2. Name the author of Emma.')
    ['Who is the author of Emma?', 'Name the author of Emma.']
    """
    text = _FENCE.sub("", _printable(reply))
    lines = _one_a_line(text).split("\n")
    lists = [_in_json(text), _marked(lines, _NUMBER), _marked(lines, _BULLET)]
    # The first list in which two items ask: below each item there may be a list that explains it.
    return max(lists, key=lambda items: (bool(items), min(sum(map(asks, items)), 2))) or _unmarked(lines)


def asks(text: str) -> bool:
    """Return True if a text is a question or a request.

    >>> asks("In which city is the Louvre"), asks("Name its city."), asks("The Louvre is in ___."), asks("Sure!")
    (True, True, True, False)
    """
    text = " ".join(text.split()).lstrip("\"'“‘«„「`*(")
    if text.rstrip(_CLOSING + "!.…").endswith(("?", "？", "؟")):
        return True
    if text.rstrip(_CLOSING).endswith((":", "：")) or _INTRODUCTION.match(text):
        return False
    return bool(_BEGINS_TO_ASK.match(text) or (_GAP.search(text) and text.count(" ") > 1))


def finished(text: str) -> bool:
    """Return True if a listed rewrite ends as a sentence does."""
    return text.endswith("_") or text.rstrip(_CLOSING).endswith(tuple("?!.…？！。؟"))


def _printable(text: str) -> str:
    """Write line breaks as line feeds and other white space as spaces, and drop control characters."""
    return "\n".join(
        "".join(" " if c.isspace() else c for c in line if c.isspace() or unicodedata.category(c)[0] != "C")
        for line in text.splitlines()
    )


def _in_json(text: str) -> list[str]:
    """Return the rewrites in lists and objects of JSON, if one of them asks."""
    strings: list[str] = []
    position = 0
    while opening := _JSON.search(text, position):
        position = opening.end() + 1
        try:
            value, position = json.JSONDecoder().raw_decode(text, opening.end())
        except ValueError:
            continue
        except RecursionError:
            break
        strings += _strings(value)
    items = [item for item in map(_bare, _marked(strings, _NUMBER) or strings) if item]
    return items if any(map(asks, items)) else []


def _strings(value: Any) -> Iterator[str]:
    """Yield the rewrites in JSON: strings of a list, of the lists in an object, or values of an object that ask."""
    if isinstance(value, str):
        yield _printable(value)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, dict):
        questions = [
            item for key, item in value.items() if "original" not in key and isinstance(item, str) and asks(item)
        ]
        yield from _strings([item for item in value.values() if isinstance(item, list | dict)] or questions)


def _one_a_line(text: str) -> str:
    """Break a list of rewrites before each number that goes 1, 2, 3 within a line, where a sentence ends."""
    breaks, run = [0], list[int]()
    for match in _NUMBER_IN_THE_LINE.finditer(text):
        number = int(match["number"])
        run = [] if number == 1 else run
        if number == len(run) + 1:
            run.append(match.start("item"))
            breaks += run if number == 2 else run[2:][-1:]  # the first waits for the second
    return "\n".join(text[start:end] for start, end in zip(breaks, [*breaks[1:], len(text)], strict=True))


def _marked(lines: Sequence[str], marker: re.Pattern[str]) -> list[str]:
    """Return the listed rewrites that begin with a marker; the line below a title replaces it."""
    items: list[str] = []
    is_title = continues = False
    for line in lines:
        text = line.strip()
        if match := marker.match(line):
            items.append(line[match.end() :].strip())
            is_title, continues = _announces(items[-1], line), True
        elif not text:
            continues = False
        elif is_title:
            items[-1], is_title, continues = text, False, True
        elif continues and (not finished(items[-1]) or (asks(text) and not asks(items[-1]))):
            items[-1] += f" {text}"
        else:
            continues = False
    return [item for item in map(_bare, items) if item and not item.endswith(":")]


def _announces(item: str, line: str) -> bool:
    """Return True if a listed item only introduces the next rewrite ("Formal:", "**Riddle**", a heading)."""
    bare = item.strip("*_ ")
    return not bare or (not asks(bare) and (bare.endswith(":") or item.endswith("**") or line.startswith("#")))


def _unmarked(lines: Sequence[str]) -> list[str]:
    """Return the lines of a list of rewrites that ask, without offers of more and fragments of JSON."""
    items = [_bare(line) for line in lines if not _BROKEN_JSON.search(line)]
    return [item for item in items if asks(item) and not _OFFER.match(item)]


def _bare(text: str) -> str:
    """Return a listed rewrite without the label of a style, emphasis, and quotes around all of it."""
    text = " ".join(text.split()).rstrip(" ,;|")
    label = _LABEL.match(text)
    if label and not asks(label["label"]):
        text = text[label.end() :]
    text = _EMPHASIS.sub(lambda match: match[2] or match[4], text).removeprefix("**").removesuffix("**")
    closing = _QUOTES.get(text[:1])
    inside = text[1:-1]
    if closing and text[-1] == closing and text[0] not in inside and closing not in _APOSTROPHE.sub("", inside):
        text = inside
    return text.strip()
