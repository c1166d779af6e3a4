"""Abstentions: replies that say that they do not know, cannot tell or will not guess (docs/judges.md)."""

import re

from robust_eval.reader.clauses import sentences
from robust_eval.reader.free_text import EXPLICIT, MARKED, bounded, explicit_answer
from robust_eval.reader.markup import plain, without_template
from robust_eval.reader.phrases import phrases
from robust_eval.reader.reasoning import without_reasoning
from robust_eval.reader.reply import free_text_of

_PHRASES = phrases("abstention")
_CUE = re.compile(
    r"no|n['’]t|un|idk|refuse|insuff|nicht|kein|pas|aucun|ignore|inconnu|ni |desconoc|[不无没未]|ません|ない", re.I
)
"""Parts of words without one of which no reply abstains: most short answers have none."""
_OPENING = re.compile(rf"\A(?:{_PHRASES.opening}[\s,:;!.，、…]*(?:{_PHRASES.joint}\s*)?)+")
_SAYS = re.compile(
    rf"{_PHRASES.says}(?P<rest>\s*[,，、]?\s*{_PHRASES.reason}.*|(?:\s+\w|\s*[^\W\d_a-zA-Z]).*|\W*)", re.S
)
_ALONE = re.compile(rf"{_PHRASES.alone}\W*")
_COURTESY = re.compile(_PHRASES.courtesy)
_ANSWER_FOLLOWS = re.compile(_PHRASES.answer_follows)
_CLAUSES = re.compile(r"[;；]|\s[–—-]\s")
_LONG_WORD = re.compile(r"[^\W\d_][\w'’]{3,}")


def abstains(reply: str) -> bool:
    """Return True if a reply abstains: it, or its explicit answer, only says that it does not know; every sentence
    does, or is an apology or an offer. A refusal, a hedge and a title do not.

    >>> abstains("I'm sorry, but I don't know who wrote it. Could you tell me more?"), abstains("I'm not sure. Rome?")
    (True, False)
    """
    if not _CUE.search(reply):
        return False
    read, text = free_text_of(reply), plain(bounded(without_template(without_reasoning(reply) or "")))
    stated = {MARKED: read.answer, EXPLICIT: explicit_answer(text)}.get(read.rule)
    said = False
    for sentence in sentences(stated or text):
        for clause in filter(str.strip, _CLAUSES.split(sentence)):
            rest = _OPENING.sub("", clause.strip(), count=1)
            match = _SAYS.fullmatch(rest)
            is_open = match is not None and not _ANSWER_FOLLOWS.search(match["rest"])
            if (is_open or _ALONE.fullmatch(rest)) and not _is_title(rest):
                said = True
            elif rest and not _COURTESY.match(rest):
                return False
    return said


def _is_title(text: str) -> bool:
    """Return True for a title, which is no abstention: three words or more, capitalised as in "I Don't Know Why"."""
    words = _LONG_WORD.findall(text)
    return len(text.split()) > 2 and len(words) > 1 and not text.isupper() and all(word[0].isupper() for word in words)
