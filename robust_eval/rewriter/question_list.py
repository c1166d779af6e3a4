"""Read the list in a language model's reply: JSON, lines with numbers or bullets, or a question on each line."""

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

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

_THOUGHTS = re.compile(r"\A.*</think>|<think>.*\Z", re.S)
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
    r"""Return the items of a list that a language model wrote, without markers, quotes and emphasis.

    >>> listed('Sure! Here they are:\n1. **Formal:** "Who is the author of Emma?"\n2. Name the author of Emma.')
    ['Who is the author of Emma?', 'Name the author of Emma.']
    """
    text = _FENCE.sub("", _printable(_THOUGHTS.sub("", reply)))
    lines = _one_a_line(text).split("\n")
    found = [_in_json(text), _marked(lines, _NUMBER), _marked(lines, _BULLET)]
    # The first list in which two items ask: below each item there may be a list that explains it.
    return max(found, key=lambda items: (bool(items), min(sum(map(asks, items)), 2))) or _unmarked(lines)


def asks(text: str) -> bool:
    """Tell whether a text is a question or a request.

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
    """Tell whether a text ends as a sentence does."""
    return text.endswith("_") or text.rstrip(_CLOSING).endswith(tuple("?!.…？！。؟"))


def _printable(text: str) -> str:
    """Write line breaks as line feeds and other white space as spaces, and drop control characters."""
    return "\n".join(
        "".join(" " if c.isspace() else c for c in line if c.isspace() or unicodedata.category(c)[0] != "C")
        for line in text.splitlines()
    )


def _in_json(text: str) -> list[str]:
    """Return the strings of the lists and objects of JSON, if one of them asks."""
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
    """Yield the strings of a list, of the lists of an object, or those values of an object that ask."""
    if isinstance(value, str):
        yield _printable(value)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, dict):
        asking = [item for key, item in value.items() if "original" not in key and isinstance(item, str) and asks(item)]
        yield from _strings([item for item in value.values() if isinstance(item, list | dict)] or asking)


def _one_a_line(text: str) -> str:
    """Break lines before each number of a list that goes 1, 2, 3 within a line, where a sentence ends."""
    breaks, run = [0], list[int]()
    for found in _NUMBER_IN_THE_LINE.finditer(text):
        number = int(found["number"])
        run = [] if number == 1 else run
        if number == len(run) + 1:
            run.append(found.start("item"))
            breaks += run if number == 2 else run[2:][-1:]  # the first waits for the second
    return "\n".join(text[start:end] for start, end in zip(breaks, [*breaks[1:], len(text)], strict=True))


def _marked(lines: Sequence[str], marker: re.Pattern[str]) -> list[str]:
    """Return the items that begin with a marker; a title gives way to the line that it announces."""
    items: list[str] = []
    announced = goes_on = False
    for line in lines:
        text = line.strip()
        if found := marker.match(line):
            items.append(line[found.end() :].strip())
            announced, goes_on = _announces(items[-1], line), True
        elif not text:
            goes_on = False
        elif announced:
            items[-1], announced, goes_on = text, False, True
        elif goes_on and (not finished(items[-1]) or (asks(text) and not asks(items[-1]))):
            items[-1] += f" {text}"
        else:
            goes_on = False
    return [item for item in map(_bare, items) if item and not item.endswith(":")]


def _announces(item: str, line: str) -> bool:
    """Tell whether an item says what comes next ("Formal:", "**Riddle**", a heading) rather than something itself."""
    bare = item.strip("*_ ")
    return not bare or (not asks(bare) and (bare.endswith(":") or item.endswith("**") or line.startswith("#")))


def _unmarked(lines: Sequence[str]) -> list[str]:
    """Return the lines that ask, but for offers of more and what is left of broken JSON."""
    items = [_bare(line) for line in lines if not _BROKEN_JSON.search(line)]
    return [item for item in items if asks(item) and not _OFFER.match(item)]


def _bare(text: str) -> str:
    """Take off a label that says a style, emphasis, and quotes around all of the text."""
    text = " ".join(text.split()).rstrip(" ,;|")
    label = _LABEL.match(text)
    if label and not asks(label["label"]):
        text = text[label.end() :]
    text = _EMPHASIS.sub(lambda found: found[2] or found[4], text).removeprefix("**").removesuffix("**")
    closing = _QUOTES.get(text[:1])
    inside = text[1:-1]
    if closing and text[-1] == closing and text[0] not in inside and closing not in _APOSTROPHE.sub("", inside):
        text = inside
    return text.strip()
