"""Sentences of a reply, and its asides: denials, suppositions, beliefs of others, undecided candidates."""

import re
from collections.abc import Callable, Iterator

from robust_eval.reader.phrases import clause_phrases

_NO_END = re.compile(
    rf"(?:(?<![^\W_])(?:[^\W\d_]|{clause_phrases('abbreviated')}|[IVXLC]{{1,6}})|\.[^\W\d_]{{1,2}})\Z", re.I
)
_LONGEST_ABBREVIATION = 40
"""Maximum number of characters of an abbreviation with those before it: more would take seconds in a row of them."""
_STARTS = re.compile(
    r"\s*(?:I|It|The|This|That|These|He|She|They|We|You|So|In|And|But|My|There|Its|If|As|Die|Der|Das|Es|Ich|La|Le|Les|Il|El|Los)\b"
)
"""Words that begin a sentence and no name behind an initial."""
_DAY = re.compile(r"(?<!\w)\d{1,2}\Z")
_MONTH = re.compile(r"\s*(?:Jan|Feb|März|Mär|Apr|Mai|May|Jun|Jul|Aug|Sep|Okt|Oct|Nov|Dez|Dec|Jahrhundert)", re.I)
_END = re.compile(r"(?<=[\w)\]\"'”’%°»€$!?.\ue000-\ue14c])[.!?]+(?P<closing>[\"'”’»)\]]*)(?=\s|\Z)|[。！？]+")


def sentences(text: str) -> list[str]:
    r"""Return the sentences of a reply's text, each with what ends it; a line break ends one as well.

    A full stop behind an abbreviation, an initial or the number of a day ends none where more of the line follows.

    >>> sentences("It is by J. Austen. She lived in St. Albans!\nOn the 9. November 1989.")
    ['It is by J. Austen.', 'She lived in St. Albans!', 'On the 9. November 1989.']
    """
    return [sentence for line in text.splitlines() for sentence in _of_line(line.strip())]


def _of_line(line: str) -> Iterator[str]:
    begin = 0
    for end in _END.finditer(line):
        before = line[max(begin, end.start() - _LONGEST_ABBREVIATION) : end.start()]
        if end.group().startswith(".") and _continues(before, line[end.end() :]):
            continue
        if not line[end.end() :].lstrip()[:1].islower() or end.group()[0] in "。！？":
            if sentence := line[begin : end.end()].strip():
                yield sentence
            begin = end.end()
    if rest := line[begin:].strip():
        yield rest


def _continues(before: str, after: str) -> bool:
    """Return True if a full stop between parts of a reply's line belongs to an abbreviation, an initial or a date."""
    if not after.strip():
        return False
    if _DAY.search(before):
        return _MONTH.match(after) is not None
    return _NO_END.search(before) is not None and not _STARTS.match(after)


_BUT = clause_phrases("but")
_REST = rf"(?:(?!\s+{_BUT})[^;:!?,()–—\n。！？；，、])*"
"""The rest of a clause, within one sentence."""

_HEDGE, _SUPPOSED, _WOULD, _BELIEF_OF_OTHERS, IS_WRONG, _SEVERAL_CANDIDATES, _OR, _CORRECTION = (
    re.compile(clause_phrases(name), re.I)
    for name in ("hedge", "supposed", "would", "others", "is_wrong", "undecided", "or", "correction")
)
"""``IS_WRONG`` is the predicate of a clause that is denied as a whole."""
_HYPOTHETICAL_START = re.compile(r"\s*(?:Wäre|Hätte|Had (?:you|it|the)|Were (?:it|you|the)|如果|假如|要是|もし)")

_DENIED = [
    re.compile(pattern, re.I)
    for pattern in (
        rf"{clause_phrases('denied_belief')},?{_REST}",
        r"(?:我?不认为|我?不觉得|不知道是不是|并不是|并非|而不是|而非|不是|不會是|不会是)(?!因)[^，。；,;]*?(?=而是|[，。；,;]|\Z)",
        r"[^，。、；\s]{0,60}(?:では|じゃ|で)(?:ありません|ない|なく|ないです)",
        clause_phrases("in_place_of") + _REST,
        clause_phrases("denied_relative"),
        clause_phrases("denied_statement") + _REST,
        rf"(?<=,)\s*(?:y |e |et )?(?:no|non|ni)\s+{_REST}",
        rf"(?<=\s)(?:y no|e non|et non)\s+{_REST}",
    )
]
_CUE = re.compile(
    r"n['’]t\b|\b(?:no|not|never|neither|cannot|rather|instead|opposed|unlike|other than|anything but|contrast"
    r"|different|compared|nothing"
    r"|doubt|incorrect|wrong|false|mistaken|mistake|untrue|nicht|weder|keine?[rsnm]?|statt|anstatt|anstelle|Gegensatz|bezweifle|falsch"
    r"|unzutreffend|pas|non|ni|lieu|plutôt|contrairement|faux|fausse|incorrecte?|lugar|vez|diferencia|tampoco"
    r"|fals[ao]|invece|would|wäre|ist nur|serait|sería)\b"
    r"|[不非]|ない|ありません|なく",
    re.I,
)
"""Words without one of which nothing is denied: most sentences have none."""
_CLAUSE_MARKS = ";:!?,()。！？；，、"
_OTHER_THINGS = re.compile(
    r"\s*(?:other|others|another|andere|weitere|d['’]autres|otr[ao]s?|altr[eio])(?![^\W_])|\s*其他", re.I
)
"""The beginning of a sentence on other things than the answer."""
_LIST_ITEM = re.compile(r"(?m)^[ \t]*(?:\d{1,2}[.)]|[-*•])[ \t]+\S.*$")
_BREAK = " ; "
_QUOTATION = re.compile(
    r"[\"“„][^\"“”„]{1,200}[\"”“]|«[^«»]{1,200}»|(?<!\w)['‘][^'‘’]{1,200}['’](?!\w)|[「『《][^」』》]{1,200}[」』》]"
)
_MARK = "\ue000"
_CHOSEN = re.compile("[\ue100-\ue14c]")
"""The mark of a letter or text that may name a choice."""
_HIDDEN = re.compile(rf"{_MARK}(\d+){_MARK}")
_SUBJECT = re.compile(rf"\W*(?:(?:{clause_phrases('subject')})(?:['’](?:s|m|re|ve|d|ll))?)?\W*", re.I)
_DENIAL_WORD_LIST = """
    no not cannot non none never neither nor nothing nobody without nicht kein keine keiner nein nie pas ne
    rien jamais ni nunca nada un t isn false incorrect wrong falsch faux or oder ou if
"""
_DENIAL_WORDS = frozenset(_DENIAL_WORD_LIST.split())


def is_denial(form: str) -> bool:
    """Return True if an answer in normalised form denies, supposes or joins by itself: "not guilty" is no aside."""
    return not _DENIAL_WORDS.isdisjoint(form.split()) or re.search(r"不|没|無|非|ない", form) is not None


_PRONOUN = re.compile(rf"(?<!\w)I(?=['’]\w|\s+(?:;|{clause_phrases('first_person')}))")


def is_subject(text: str) -> bool:
    """Return True if a text has no more than the subject of a clause: "I", which a denial leaves of "I don't know"."""
    return _SUBJECT.fullmatch(text) is not None


def without_pronoun(text: str) -> str:
    """Return a text without the pronoun I, which is no numeral and no symbol.

    >>> without_pronoun("I think it is I.")
    ' think it is I.'
    """
    return _PRONOUN.sub("", text)


def without_denials(text: str) -> str:
    """Return a text without what it denies, supposes, or says that others believe.

    >>> without_denials("It is not Sydney but Canberra. If it were the largest city, it would be Sydney.")
    'It  ;  but Canberra.'
    """
    return _each_sentence(text, _without_denials)


def last_correction(text: str, start: int = 0) -> int:
    """Return the end of the last correction ("no, wait", "I meant") in a text from ``start`` on; 0 without one."""
    return max((match.end() for match in _CORRECTION.finditer(text, start)), default=0)


def without_doubts(text: str) -> str:
    """Return a text without its doubtful sentences, which name several candidates, begin with others or end in a
    question mark, and without lists.

    >>> without_doubts("It could be Sydney or Perth. It is Canberra.")
    'It is Canberra.'
    """
    if len(_LIST_ITEM.findall(text)) > 2:
        text = _LIST_ITEM.sub("", text)
    return _each_sentence(text, lambda sentence: "" if _doubtful(sentence) else sentence)


def _each_sentence(text: str, kept: Callable[[str], str]) -> str:
    lines = (" ".join(filter(None, map(kept, sentences(line)))) for line in text.splitlines())
    return "\n".join(filter(None, lines))


def _without_denials(sentence: str) -> str:
    """Return a sentence without what it denies, supposes, or says that others believe; quotations stay whole."""
    quotations = [match.group() for match in _QUOTATION.finditer(sentence)]
    places = iter(range(len(quotations)))
    hidden = _QUOTATION.sub(lambda _: f"{_MARK}{next(places)}{_MARK}", sentence)
    affirmed = _affirmed(hidden)
    letters, affirmed_letters = (len(set(_CHOSEN.findall(text))) for text in (hidden, affirmed))
    if affirmed != hidden and is_subject(affirmed) and not 0 < affirmed_letters < letters:  # "B, not A" leaves B
        return ""
    return _HIDDEN.sub(lambda match: quotations[int(match[1])], affirmed)


def _affirmed(sentence: str) -> str:
    if _is_hypothetical(sentence):
        return ""
    if (others_belief := _BELIEF_OF_OTHERS.search(sentence)) is not None:
        begin = max(sentence.rfind(mark, 0, others_belief.start()) + 1 for mark in ",;:(，；")
        stop = re.compile(rf"[;；)]|,?\s*{_BUT}|，?\s*(?:但|其实|实际)").search(sentence, others_belief.end())
        sentence = f"{sentence[:begin]}{_BREAK}{sentence[stop.start() :] if stop else ''}"
    if not _CUE.search(sentence):
        return sentence
    while (wrong := IS_WRONG.search(sentence)) is not None:
        begin = max(sentence.rfind(mark, 0, wrong.start()) + 1 for mark in _CLAUSE_MARKS)
        sentence = f"{sentence[:begin]}{_BREAK}{sentence[wrong.end() :]}"
    for pattern in _DENIED:
        sentence = pattern.sub(_BREAK, sentence)
    return sentence


def _is_hypothetical(sentence: str) -> bool:
    if _HYPOTHETICAL_START.match(sentence):
        return True
    return (
        _SUPPOSED.search(sentence) is not None and _WOULD.search(sentence) is not None and not _HEDGE.search(sentence)
    )


def _doubtful(sentence: str) -> bool:
    if sentence.endswith(("?", "？")) or _OTHER_THINGS.match(sentence):
        return True
    return _SEVERAL_CANDIDATES.search(sentence) is not None or _OR.search(sentence) is not None
