"""The list in a language model's reply: "Sure! 1. **What …?** 2. …", bullets, JSON, or one question a line."""

import json
import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple


def _one_of(words: str) -> str:
    """A pattern for one of the words, which are separated by white space; _ is a space in a word."""
    return "(?:" + "|".join(words.replace("'", "['’]").split()).replace("_", r"\ ") + ")"


_SAYS_HOW = _one_of("""
    rewrit(?:e|ten|ing) rephras(?:e|ed|ing) reword(?:ed|ing) paraphrased? reformulat(?:ed|ion) version variation variant
    option alternative question query inquiry prompt q way approach style tone voice format framing phrasing wording
    perspective angle focus register formal informal casual colloquial conversational direct indirect simple simplified
    plain academic scholarly technical scientific poetic literary creative playful humorous narrative storytelling
    descriptive concise detailed passive active inverted reversed? historical journalistic imperative command
    declarative statement riddle trivia quiz hypothetical rhetorical polite multiple[_-]choice""")
"""What a rewrite is, not what it asks: "Rewrite 1", "Formal tone"."""
_MAY_ALSO_SAY = _one_of("an? the in as of more and or based like first second third fourth fifth")
_LABEL = rf"(?:(?:{_SAYS_HOW}|{_MAY_ALSO_SAY})\b[ /,&-]*){{0,5}}{_SAYS_HOW}\b"
_REMARK = re.compile(
    _one_of(r"""
    (?:sure|certainly|of_course|absolutely|okay|ok|great)(?:_thing)?(?:[!,.:]|_[—–-]|$|_here\b) here(?:_is|_are|'s)\b
    below_(?:is|are)\b note(?:_that\b|:) i_hope\b hope_(?:this|these)\b sorry[,.!] i(?:'m|_am)_(?:sorry|happy|glad)\b
    i_can(?:'t|not|_not)\b as_an_ai\b unfortunately\b feel_free\b let_me_know(?:_if\b|\W*$) each_of_these\b
    these_(?:rewrites|versions|questions|variations)\b"""),
    re.I,
)
_OFFER = re.compile(
    _one_of("""
    would_you_like do_these do_you_want do_you_need does_this_(?:help|work) is_there_anything_else are_these shall_i
    should_i can_i_help may_i_help how_(?:are|do)_these let_me_know_if""")
    + r"\b",
    re.I,
)
_PREPOSITION = _one_of("""
    in at by on of for from to with into under during after before about through within against between among upon since
    until as over around along across near""")
_ASKING = _one_of(rf"""
    (?:{_PREPOSITION}_(?:the_)?)?(?:who|what|which|when|where|why|how|whom|whose)
    (?:is|are|was|were|do|does|did|can|could|would|will|shall|should|has|have|had|am)(?:n't)? may_i
    please kindly tell_me let_me_know inform_me enlighten_me help_me remind_me point_out fill_in true_or_false
    i(?:'d|_would)_(?:like|love)_to_\w+ i(?:'d|_would)_be_(?:curious|interested) i_(?:want|need)_(?:you_)?to_\w+
    i(?:'m|_am)_(?:curious|looking_for|trying_to|wondering|searching) i_wonder you_are_asked""")
_REQUESTING = _one_of("""
    name identify state give explain describe list find determine calculate compute specify provide mention choose
    select pick complete finish define indicate supply recall guess reveal pinpoint clarify outline discuss solve
    evaluate estimate locate cite enumerate summari[sz]e compare elaborate answer write say show share work_out""")
_BEGINS_TO_ASK = re.compile(rf"{_ASKING}\b|{_REQUESTING}\b(?!\ *:|\ of\b)", re.I)
_BLANK = re.compile(r"_{2,}|\[blank\]|(?<!\S)(?:…|\.{3})(?!\w)|(?:…|\.{3})\W{0,3}\Z", re.I)
_CLOSING = "\"'”’“»」)]*_` "

_ORIGINAL = re.compile(
    r"""^[^\w\n"'{]*+(?:\d{1,2}[^\w\n"'{]++)?(?:the\ )?
    original(?:[ _-](?:question|wording|phrasing|version|text|prompt|query))?[*_]*\ *[:：][*_]*\s*+.*$""",
    re.I | re.M | re.X,
)
_RULE = re.compile(r"^ *+(?:```.*|-{3,}|\*{3,}|={3,}) *+$", re.M)
_ESCAPED = re.compile(r"\\([*_.#-])")
_NUMBER = r"\d{1,2}(?!\d)"
_NUMBER_IN_THE_LINE = re.compile(
    rf"""(?:^\ *+|(?<=[?？。！])\ *+|(?<=[!.…:;,"”'’)\]*_])\ ++)
    (?P<item>[*_]{{0,3}}(?:{_SAYS_HOW}\ *+)?[(\[#]?(?P<number>\d{{1,2}})[.):\]．）：、](?=[\s*_"“]))""",
    re.I | re.M | re.X,
)
_BULLET_IN_THE_LINE = re.compile(r"(?<=[?!.…_]) (?=[•▪‣●] )")
_MARKER = re.compile(
    rf"""(?P<indent>\ *+)(?:[>|]\ *+)?(?P<heading>\#{{1,6}}\ ++)?
    (?P<bullet>[-–—*+]\ ++|[•·▪‣●○◦■]\ *+|-(?=[^\W\d_]))?
    (?:
        (?P<emphasis>[*_]+)?
        (?:
            (?P<number>
                (?:\({_NUMBER}\)|\[{_NUMBER}\]|\#{_NUMBER}|\d\ufe0f?\u20e3|(?<=\*){_NUMBER}(?=\*))[.:]?
                |{_NUMBER}[*_]*\ *+(?:[.):|．）：、](?!\d)|[-–—](?=\ ))
                |(?:{_SAYS_HOW}\ *+){{1,3}}\#?(?:{_NUMBER}|(?:[ivx]{{1,4}}|[a-j]|one|two|three|four|five)\b)
                 (?:\ *\([^)]{{1,60}}\))?[*_]*\ *+(?:[.):：]|[-–—](?=\ )|$)
            )
            |\(?(?P<letter>(?:[a-j]|[ivx]{{1,4}})(?=[.)][*_]*(?:\ |$))|[1-9](?=\ ))[.)]?
        )
        (?(emphasis)[*_]*)
    )?\ *+""",
    re.I | re.X,
)
# what may stand before a word that is none of a list: a marker only in its order
_LETTERS = (tuple("abcdefghij"), ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x"), tuple("123456789"))
_ASIDE = re.compile(r"(?:\(.*\)|\[.*\]|\*.*\*|_.*_)[.:]?")
_ONLY_LABEL = re.compile(_LABEL, re.I)
_BOLD_LABEL = re.compile(
    r"""(?P<mark>\*{1,3}|_{1,3})(?P<label>[^*_?]{1,60}?)
    (?:\ *[:：–—-]\ *(?P=mark)|(?P=mark)\ *(?:\([^)]{1,40}\)\ *)?[:：–—-])\ *(?=\S)""",
    re.X,
)
_PLAIN_LABEL = re.compile(rf"(?:{_LABEL}(?: *[:：–—]| +-(?= ))|[(\[]{_LABEL}[)\]][:：]?) *(?=\S)", re.I)
_LABEL_AFTER = re.compile(rf" [*_]{{0,2}}[(\[]{_LABEL}[)\]][*_.]{{0,3}}\Z", re.I)
_EMPHASIS = re.compile(
    r"(?<![\w*])(\*{1,3})(?=[^\s*])([^*]+)(?<=\S)\1(?![\w*])|(?<!\w)(_{1,2})(?=[^\s_])([^_]+)\3(?!\w)"
)
_LEFT_EMPHASIS = re.compile(r"(?<!\w)\*{2,}|\*{2,}(?!\w)")
_EXPLAINED = re.compile(r"""(?P<item>["“][^"“”]*[?.!]["”]) [-–—(→]+ *(?P<explanation>.*)""")
_QUOTES = {'"': '"', "'": "'", "“": "”", "«": "»", "‘": "’", "„": "“", "「": "」", "`": "`"}
_APOSTROPHE = re.compile(r"(?<=\w)['’](?=\w)")

_OPENING = re.compile(r"""(?:^|[:=]|```\w*)[ ]*+(?=[\[{]\s*+["'{\[])""", re.M)
_STRING_ENDS = r"""(?P=quote)(?=\ *+(?:\n|\Z)|\s*+(?:[\]}]|,\s*+(?:\Z|["'{\[\]}])))"""
_TOKEN = re.compile(
    rf"""\s*+(?:
        (?P<key>(?P<mark>["'])[^"'\n]{{1,60}}(?P=mark)\s*+:)
        |(?P<quote>["'])(?P<string>(?:\\.|(?!{_STRING_ENDS}).)*+){_STRING_ENDS}
        |(?P<bracket>[\[\]{{}}])|[,:]|-?\d[\d.]*|(?:true|false|null|none)\b
        |["'].*  # a string that is cut
    )""",
    re.I | re.S | re.X,
)
_QUOTE_OR_ESCAPE = re.compile(r"""\\(')|(\\.)|(")""", re.S)


class _Line(NamedTuple):
    text: str
    marker: str
    """number, letter, bullet, or none."""
    letter: str
    """Or a number without a mark."""
    title: bool
    """Whether it is a heading, or bold from end to end."""
    indented: bool


def listed(reply: str) -> list[str]:
    r"""The items of a list that a language model wrote, in their order, without markers, quotes and emphasis.

    >>> listed('Sure! Here they are:\n1. **Formal:** "Who is the author of Emma?"\n2. Name the author of Emma.')
    ['Who is the author of Emma?', 'Name the author of Emma.']
    """
    text = _ORIGINAL.sub("", _printable(reply.rpartition("</think>")[2].partition("<think>")[0]))
    lines = _lines(_one_a_line(_RULE.sub("", text)))
    found = [_in_brackets(text), *(_marked(lines, marker) for marker in ("number", "letter", "bullet"))]
    # the first in which two items ask: there may be a list with questions in it below each item, to explain it
    return max(found, key=lambda items: (bool(items), min(sum(map(asks, items)), 2))) or _unmarked(lines)


def asks(text: str) -> bool:
    """Whether a text is a question or a request.

    >>> asks("In which city is the Louvre"), asks("Name its city."), asks("The Louvre is in ___."), asks("Sure!")
    (True, True, True, False)
    """
    text = " ".join(text.split()).lstrip("\"'“‘«„「`*(")
    if text.rstrip(_CLOSING + "!.…").endswith(("?", "？", "؟")):
        return True
    if text.rstrip(_CLOSING).endswith((":", "：")) or _REMARK.match(text):
        return False
    return bool(_BEGINS_TO_ASK.match(text) or (_BLANK.search(text) and text.count(" ") > 1))


def _printable(text: str) -> str:
    """Line breaks as line feeds, other white space as spaces, and no control characters."""
    return "\n".join(
        "".join(" " if c.isspace() else c for c in line if c.isspace() or unicodedata.category(c)[0] != "C")
        for line in text.splitlines()
    )


def _in_brackets(text: str) -> list[str]:
    """The whole strings of the first list or object that JSON or Python might write, however it ends.

    Strings in a list come before those of an object, which may have others: {"topic": "…", "rewrites": ["…"]}.
    """
    position = 0
    while opening := _OPENING.search(text, position):
        in_list: list[str] = []
        in_object: list[str] = []
        key, depth, position = "", 0, opening.end()
        while token := _TOKEN.match(text, position):
            position = token.end()
            if token["bracket"]:
                key, depth = "", depth + (1 if token["bracket"] in "[{" else -1)
            elif token["key"]:
                key = token["key"].lower()
            elif token["string"] and depth > 0:
                item = _bare(_printable(_unescaped(token["string"])))
                if not key:
                    in_list.append(item)
                elif "original" not in key and (asks(item) or re.search(r"\d", key)):
                    in_object.append(item)
                key = ""
        items = [item for item in in_list or in_object if item]
        if len(items) > 1 or any(map(asks, items)):
            numbered = _marked([_line(item) for item in items], "number")
            return numbered if len(numbered) == len(items) else items
    return []


def _unescaped(string: str) -> str:
    """What the characters between two quotes stand for; quotes among them may have gone without an escape."""
    try:
        double = _QUOTE_OR_ESCAPE.sub(lambda found: found[1] or found[2] or '\\"', string)
        return str(json.loads(f'"{double}"', strict=False))
    except ValueError:  # an escape that JSON does not know
        return string


def _one_a_line(text: str) -> str:
    """A line break before each number of a list that goes 1, 2, 3 within a line, and before each bullet there, where
    a sentence ends.
    """
    text = _BULLET_IN_THE_LINE.sub("\n", text)
    breaks, run = [0], list[int]()
    for found in _NUMBER_IN_THE_LINE.finditer(text):
        number = int(found["number"])
        run = [] if number == 1 else run
        if number == len(run) + 1:
            run.append(found.start("item"))
            breaks += run if number == 2 else run[2:][-1:]  # the first waits for the second
    return "\n".join(text[start:end] for start, end in zip(breaks, [*breaks[1:], len(text)], strict=True))


def _lines(text: str) -> list[_Line]:
    """Letters, and numbers without a mark, are markers only where they go a, b, c: not in "A. Lincoln was born …"."""
    raw = _ESCAPED.sub(r"\1", text).split("\n")
    lines = [_line(line) for line in raw]
    for letters in _LETTERS:
        run: list[int] = []
        for index, line in enumerate(lines):
            if line.letter and letters[len(run) : len(run) + 1] == (line.letter,):
                run.append(index)
        if len(run) > 1:
            break
    lettered = set(run if len(run) > 1 else [])
    return [line if not line.letter or i in lettered else _line(raw[i], False) for i, line in enumerate(lines)]


def _line(line: str, lettered: bool = True) -> _Line:
    found = _MARKER.match(line)
    assert found is not None  # every part of it is optional
    indented = len(found["indent"]) > 1
    if found["letter"] and not lettered:
        text = line[max(found.end("indent"), found.end("bullet")) :].strip()
        return _Line(text, "bullet" if found["bullet"] else "", "", False, indented)
    text = line[found.end() :].strip()
    emphasis = found["emphasis"] or ""
    if emphasis and emphasis[0] not in line[found.end("emphasis") : found.end()]:
        text = emphasis + text  # it goes on after the marker
    marker = next((marker for marker in ("number", "letter", "bullet") if found[marker]), "")
    title = bool(found["heading"]) or (text.startswith("**") and text.rstrip(":").endswith("**"))
    return _Line(text, marker, (found["letter"] or "").lower(), title, indented)


def _marked(lines: Sequence[_Line], marker: str) -> list[str]:
    """The items that begin with a kind of marker; a heading gives way to the line that it announces."""
    items: list[list[str]] = []
    announced = goes_on = False
    for line in lines:
        if line.marker == marker:
            items.append([line.text])
            announced, goes_on = _announces(line.text) or (line.title and not asks(line.text)), True
        elif not line.text:
            goes_on = False
        elif announced:
            if asks(line.text) or (_announces(items[-1][0]) and not _REMARK.match(line.text)):
                items[-1] = [line.text]
            announced, goes_on = False, True
        elif goes_on := goes_on and _continues(items[-1][-1], line):
            items[-1].append(line.text)
    return [item for item in (_bare(" ".join(parts)) for parts in items) if not _announces(item)]


def _announces(text: str) -> bool:
    """Whether it says what comes next ("Formal:") rather than something itself."""
    text = text.strip("*_ ")
    return not text or bool(_ONLY_LABEL.fullmatch(text)) or (text[-1] in ":：" and not asks(text[:-1]))


def finished(text: str) -> bool:
    """Whether a text ends as a sentence does."""
    return text.endswith("_") or text.rstrip(_CLOSING).endswith(tuple("?!.…？！。؟"))


def _continues(item: str, line: _Line) -> bool:
    """Whether a line goes on with an item rather than explaining it."""
    if line.marker or _ASIDE.fullmatch(line.text) or _REMARK.match(line.text):
        return False
    return not finished(item) or (asks(line.text) and (line.indented or not asks(item)))


def _unmarked(lines: Sequence[_Line]) -> list[str]:
    """Each line that asks, or each line where none does; those that introduce or close are none."""
    items: list[list[str]] = []
    goes_on = False
    for line in lines:
        if goes_on and line.text[:1].islower() and not finished(items[-1][-1]):
            items[-1].append(line.text)
        elif line.text:
            items.append([line.text])
        goes_on = bool(line.text)
    found = [item for item in (_bare(" ".join(parts)) for parts in items) if not _announces(item)]
    asking = [item for item in found if asks(item) and not _OFFER.match(item)]
    return asking or [item for item in found if not (asks(item) or _REMARK.match(item))]


def _bare(text: str) -> str:
    """Without a label that says its style, without emphasis, and without quotes around all of it."""
    text = _LABEL_AFTER.sub("", " ".join(text.split()).rstrip(" ,;|"))
    if (explained := _EXPLAINED.match(text)) and not asks(explained["explanation"]):
        text = explained["item"]
    bold, plain = _BOLD_LABEL.match(text), _PLAIN_LABEL.match(text)
    if bold and not asks(bold["label"]):
        text = text[bold.end() :]
    elif plain and asks(text[plain.end() :]):
        text = text[plain.end() :]
    text = _EMPHASIS.sub(lambda found: found[2] or found[4], text)
    return _unquoted(" ".join(_LEFT_EMPHASIS.sub("", text).split())).strip()


def _unquoted(text: str) -> str:
    """Without quotes, where the one that it begins with is closed at its end: not in '"Emma" is by whom?'."""
    opening, closing = text[:1], _QUOTES.get(text[:1])
    end = text[-1] if text[-2:-1] == closing and text[-1] in ".?!" else ""
    inside = text.removesuffix(end)
    if closing is None or len(inside) < 3 or not inside.endswith(closing):
        return text
    inside = inside[1:-1]
    before, closed, after = _APOSTROPHE.sub("", inside).partition(closing)
    if closed and not (opening in before or (opening == closing and after[:1].isalnum())):
        return text  # closed before its end
    return inside if inside[-1] in ".?!…" else inside + end
