"""Sentences of a text, with the abbreviations, initials and dates that a full stop does not end."""

import re
from collections.abc import Iterator

_ABBREVIATED = (
    "st|mr|mrs|ms|dr|mt|ft|jr|sr|vs|ca|c|no|nos|op|vol|ch|pp|ed|eds|fig|rev|gen|col|inc|ltd|co|corp|bros|prof|capt|sgt|lt|maj"
    "|adm|gov|sen|rep|pres|hon|ave|blvd|rd|dept|univ|est|approx|esp|incl|etc|e\\.g|i\\.e|cf|al|jan|feb|mar|apr|jun|jul|aug|sep"
    "|sept|oct|nov|dec|bzw|usw|z\\.b|nr|abb|hl|sra?|srta|dña|av|apr|janv|févr|juil|déc|mme|mlle|ee|uu|j\\.-c|ph|vgl|ggf|evtl"
)
_NO_END = re.compile(rf"(?:(?<![^\W_])(?:[^\W\d_]|{_ABBREVIATED}|[IVXLC]{{1,6}})|\.[^\W\d_]{{1,2}})\Z", re.I)
_STARTS = re.compile(
    r"\s*(?:I|It|The|This|That|These|He|She|They|We|You|So|In|And|But|My|There|Its|If|As|Die|Der|Das|Es|Ich|La|Le|Les|Il|El|Los)\b"
)
"""Words that begin a sentence and no name behind an initial."""
_DAY = re.compile(r"(?<!\w)\d{1,2}\Z")
_MONTH = re.compile(r"\s*(?:Jan|Feb|März|Mär|Apr|Mai|May|Jun|Jul|Aug|Sep|Okt|Oct|Nov|Dez|Dec|Jahrhundert)", re.I)
_END = re.compile(r"(?<=[\w)\]\"'”’%°»€$!?.\ue000-\ue14c])[.!?]+(?P<closing>[\"'”’»)\]]*)(?=\s|\Z)|[。！？]+")


def sentences(text: str) -> list[str]:
    r"""Return the sentences of a text, each with what ends it; a line break ends one as well.

    A full stop behind an abbreviation, an initial or the number of a day ends none where more of the line follows.

    >>> sentences("It is by J. Austen. She lived in St. Albans!\nOn the 9. November 1989.")
    ['It is by J. Austen.', 'She lived in St. Albans!', 'On the 9. November 1989.']
    """
    return [sentence for line in text.splitlines() for sentence in _of_line(line.strip())]


def _of_line(line: str) -> Iterator[str]:
    begin = 0
    for end in _END.finditer(line):
        if end.group().startswith(".") and _goes_on(line[begin : end.start()], line[end.end() :]):
            continue
        if not line[end.end() :].lstrip()[:1].islower() or end.group()[0] in "。！？":
            if sentence := line[begin : end.end()].strip():
                yield sentence
            begin = end.end()
    if rest := line[begin:].strip():
        yield rest


def _goes_on(before: str, after: str) -> bool:
    """Return whether a full stop between these parts of a line belongs to an abbreviation, an initial or a date."""
    if not after.strip():
        return False
    if _DAY.search(before):
        return _MONTH.match(after) is not None
    return _NO_END.search(before) is not None and not _STARTS.match(after)
