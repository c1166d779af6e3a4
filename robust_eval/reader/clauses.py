"""Sentences of a reply, and its asides: denials, suppositions, beliefs of others, undecided candidates."""

import re
from collections.abc import Callable, Iterator

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


def _words(*phrases: str) -> str:
    """Return a pattern of any of these phrases as whole words, with either apostrophe."""
    joined = "|".join(phrases).replace(" ", r"\s+").replace("'", "['’]")
    return rf"(?<![^\W_])(?:{joined})(?![^\W_])"


_BUT = _words("but", "sondern", "mais", "sino", "ma", "pero", "aber", "however", "although", "though")
_REST = rf"(?:(?!\s+{_BUT})[^;:!?,()–—\n。！？；，、])*"
"""The rest of a clause, within one sentence."""

_HEDGE = re.compile(
    _words(
        r"if I(?:'m| am)? (?:not mistaken|remember|recall|had to|have to|were to|understand|am right"
        r"|am correct)(?: correctly)?",
        r"wenn ich (?:mich )?(?:recht|richtig|nicht irre|raten)\w*",
        r"si je (?:ne )?(?:me )?(?:souviens|trompe)\w*",
        r"si (?:no )?(?:me equivoco|recuerdo)",
    ),
    re.I,
)
_SUPPOSED = re.compile(
    _words(
        r"(?:if|suppose|assuming)(?: \S+){1,6}? (?:were|weren't|was|had|hadn't|did|didn't|asked|wanted|meant|included)",
        r"(?:wenn|falls)(?: \S+){1,8}? (?:wäre|wären|hätte|hätten|würde|lautete|ginge|gefragt|gemeint)",
        r"si (?:\S+ ){1,6}?(?:était|étaient|avait|fuera|fuese|hubiera|preguntar\w+)",
        r"se (?:\S+ ){1,6}?(?:fosse|avesse)",
    ),
    re.I,
)
_WOULD = re.compile(
    _words(
        *("would(?:n't)?", "might have", "could have", "wäre", "wären", "würde", "würden", "serait", "aurait", "sería"),
        *("habría", "sarebbe"),
    ),
    re.I,
)
_HYPOTHETICAL_START = re.compile(r"\s*(?:Wäre|Hätte|Had (?:you|it|the)|Were (?:it|you|the)|如果|假如|要是|もし)")

_OTHERS = re.compile(
    _words(
        r"(?:many|most|some|lots of|a lot of|other|few) (?:people|students|persons|readers|tourists|sources|of us)",
        r"(?:people|students|others) (?:often|sometimes|frequently|commonly|usually|may|might|tend)",
        r"(?:a |the |one )?(?:very )?(?:common|frequent|popular|typical|widespread|usual|classic) (?:mistake"
        r"|error|misconception|confusion|myth|wrong answer|trap)",
        r"(?:is|are|was|were) (?:often|sometimes|frequently|commonly|easily|widely) (?:mistaken|confused"
        r"|believed|thought|assumed|mixed up)",
        r"(?:often|sometimes|frequently|commonly|easily) (?:mistaken|confused|mixed up)",
        r"(?:you|one) (?:might|may|could) (?:think|expect|assume|believe|guess)",
        r"(?:it is|it's) (?:tempting|easy) to",
        r"(?:don't|do not|not to be|never) (?:confuse\w*|mix\w*|mistake)",
        r"(?:viele|manche|einige|die meisten)(?: \w+)? (?:denken|glauben|meinen|halten|verwechseln|tippen)",
        r"(?:ein )?(?:häufiger|verbreiteter|beliebter) (?:Fehler|Irrtum)",
        r"(?:beaucoup|certains|d'aucuns|bien des gens|la plupart)(?: \w+)? (?:pensent|croient|disent|confondent)",
        r"(?:une )?(?:erreur|confusion) (?:fréquente|courante)",
        r"(?:muchos|muchas|algunos|mucha gente)(?: \w+)? (?:creen|piensan|dicen|confunden|cree|piensa)",
        r"un error (?:común|frecuente)",
        r"man könnte (?:meinen|denken|glauben)",
        r"on pourrait (?:croire|penser)",
        r"(?:se|uno) podría (?:pensar|creer)",
    )
    + r"|很多人|许多人|有人|人们常|常被误|误以为|常见的?错误|多くの人|よくある間違い",
    re.I,
)
_DENIED = [
    re.compile(pattern, re.I)
    for pattern in (
        # belief that is denied: "I don't think that it is", "I doubt"
        _words(
            r"(?:do|does|did|would|could|can|should)(?:n't| not)(?: \w+)? (?:think|believe|say|know|agree"
            r"|confirm|claim|call|"
            r"guess|choose|pick|tell)",
            r"cannot (?:be|say|confirm|tell)",
            r"(?:I|we) doubt",
            r"(?:I'm|I am) not (?:sure|certain) (?:whether|if|that)",
            r"(?:glaube|denke|meine|weiß|bezweifle) (?:ich )?(?:nicht|kaum)?,? ?(?:dass|ob)",
            r"(?:glaube|denke|meine) (?:ich )?nicht",
            r"ne (?:pense|crois|sais) pas(?: que| si)?",
            r"no (?:creo|pienso|sé|diría)(?: que| si)?",
            r"non (?:credo|penso|so)(?: che| se)?",
        )
        + rf",?{_REST}",
        r"(?:我?不认为|我?不觉得|不知道是不是|并不是|并非|而不是|而非|不是|不會是|不会是)(?!因)[^，。；,;]*?(?=而是|[，。；,;]|\Z)",
        r"[^，。、；\s]{0,60}(?:では|じゃ|で)(?:ありません|ない|なく|ないです)",
        # a thing in place of which another is named
        _words(
            *("rather than", "instead of", "as opposed to", "unlike", "other than", "anything but", "in contrast to"),
            *(
                "different from",
                "compared (?:to|with)",
                "nothing like",
                "statt",
                "anstatt",
                "anstelle von",
                "im Gegensatz zu",
            ),
            *(
                "au lieu d[eu]",
                "plutôt que",
                "contrairement à",
                "en lugar de",
                "en vez de",
                "a diferencia de",
                "invece di",
            ),
        )
        + _REST,
        # a statement that is denied
        _words(
            r"(?:is|was|are|were|does|did|do|has|have|had|can|could|will|would|should)(?:n't| not)"
            r"(?! (?:only|just|until|before|later|necessarily|merely|simply))",
            r"(?:and |but )?not(?! (?:only|just|until|before|later|sure|certain|merely|simply|to mention"
            r"|surprising\w*))",
            r"never",
            r"(?:ist|war|sind|es|und|aber|also)? ?nicht(?! (?:nur|bloß|erst|sicher))",
            r"auf keinen Fall",
            r"kein(?:e[rsnm]?)?",
            r"(?:n'est|n'était|ce n'est|est|et|mais)? ?(?:pas|non)(?! (?:seulement|sûr))",
            r"(?:y |pero )?no (?:es|era|fue|son|está)(?! (?:solo|sólo|seguro))",
            r"tampoco",
            r"non (?:è|era|sono|fu)",
        )
        + _REST,
        rf"(?<=,)\s*(?:y |e |et )?(?:no|non|ni)\s+{_REST}",
        rf"(?<=\s)(?:y no|e non|et non)\s+{_REST}",
    )
]
_IS_WRONG = re.compile(
    _words(
        r"(?:is|are|was|were|would be)(?: \w+)? (?:incorrect|wrong|false|mistaken|the wrong answer|a mistake|untrue)",
        r"(?:is|are|was)(?:n't| not) (?:the |a )?(?:right|correct|true|answer|one|capital|it|case)",
        r"(?:ist|wäre) (?:falsch|nicht (?:richtig|korrekt|die)|unzutreffend)",
        r"(?:est|serait) (?:faux|fausse|incorrecte?)",
        r"n'est pas (?:la bonne|le bon|correcte?|exacte?|vraie?)",
        r"(?:es|sería) (?:fals[ao]|incorrect[ao])",
        r"no es (?:correct[ao]|ciert[ao]|verdader[ao])",
        # right under another condition
        r"would (?:only )?(?:be|have been) (?:right|correct|true|better|the (?:right |correct )?(?:answer"
        r"|choice))(?=[^.]{0,200}\b(?:if|only|for|in|with|under)\b)",
        r"(?:wäre|ist) (?:nur |auch )?(?:richtig|korrekt|die (?:\w+ )?Antwort)(?=,? (?:nur )?(?:wenn|falls|unter|bei))",
        r"serait (?:juste|correcte?|bonne|vraie?|la (?:bonne )?réponse)(?=,? si)",
        r"sería (?:correct[ao]|la (?:respuesta )?correcta|la respuesta)(?=,? si)",
    ),
    re.I,
)
"""The predicate of a clause that is denied as a whole."""
_CUE = re.compile(
    r"n['’]t\b|\b(?:no|not|never|cannot|rather|instead|opposed|unlike|other than|anything but|contrast"
    r"|different|compared|nothing"
    r"|doubt|incorrect|wrong|false|mistaken|mistake|untrue|nicht|keine?[rsnm]?|statt|anstatt|anstelle|Gegensatz|bezweifle|falsch"
    r"|unzutreffend|pas|non|ni|lieu|plutôt|contrairement|faux|fausse|incorrecte?|lugar|vez|diferencia|tampoco"
    r"|fals[ao]|invece|would|wäre|ist nur|serait|sería)\b"
    r"|[不非]|ない|ありません|なく",
    re.I,
)
"""Words without one of which nothing is denied: most sentences have none."""
_CLAUSE_MARKS = ";:!?,()。！？；，、"
_UNDECIDED = re.compile(
    _words(
        *("either", "could be", "might be", "may be", "possibly", "candidates?", "possible answers?", "possibilities"),
        *("can't (?:decide|tell|say)", "cannot (?:decide|tell|say)", "not sure which", "mix them up", "one of those"),
        *("entweder", "könnte", "vielleicht", "pourrait", "peut-être", "podría", "quizás?", "potrebbe", "forse"),
    )
    + r"|可能是|也许|或许|かもしれ|かどうか",
    re.I,
)
_OR = re.compile(_words("or", "oder", "ou", "o", "oppure") + r"|还是|或者|或|または|それとも", re.I)
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
_HIDDEN = re.compile(rf"{_MARK}(\d+){_MARK}")
_DENIAL_WORD_LIST = """
    no not cannot non none never neither nor nothing nobody without nicht kein keine keiner nein nie pas ne
    rien jamais ni nunca nada un t isn false incorrect wrong falsch faux or oder ou if
"""
_DENIAL_WORDS = frozenset(_DENIAL_WORD_LIST.split())


def is_denial(form: str) -> bool:
    """Return whether a normal form denies, supposes or joins by itself: "not guilty" is an answer, and no aside."""
    return not _DENIAL_WORDS.isdisjoint(form.split()) or re.search(r"不|没|無|非|ない", form) is not None


def without_denials(text: str) -> str:
    """Return a text without what it denies, supposes, or says that others believe.

    >>> without_denials("It is not Sydney but Canberra. If it were the largest city, it would be Sydney.")
    'It  ;  but Canberra.'
    """
    return _kept(text, _without_denials)


def without_doubts(text: str) -> str:
    """Return a text without sentences that name several candidates, begin with others or end in a question mark, and
    without lists.

    >>> without_doubts("It could be Sydney or Perth. It is Canberra.")
    'It is Canberra.'
    """
    if len(_LIST_ITEM.findall(text)) > 2:
        text = _LIST_ITEM.sub("", text)
    return _kept(text, lambda sentence: "" if _doubtful(sentence) else sentence)


def _kept(text: str, kept: Callable[[str], str]) -> str:
    lines = (" ".join(filter(None, map(kept, sentences(line)))) for line in text.splitlines())
    return "\n".join(filter(None, lines))


def _without_denials(sentence: str) -> str:
    """Return a sentence without what it denies, supposes, or says that others believe; a quotation does none of it."""
    quotations = [found.group() for found in _QUOTATION.finditer(sentence)]
    places = iter(range(len(quotations)))
    hidden = _QUOTATION.sub(lambda _: f"{_MARK}{next(places)}{_MARK}", sentence)
    return _HIDDEN.sub(lambda found: quotations[int(found[1])], _affirmed(hidden))


def _affirmed(sentence: str) -> str:
    if _is_hypothetical(sentence):
        return ""
    if (others := _OTHERS.search(sentence)) is not None:
        begin = max(sentence.rfind(mark, 0, others.start()) + 1 for mark in ",;:(，；")
        stop = re.compile(rf"[;；)]|,?\s*{_BUT}|，?\s*(?:但|其实|实际)").search(sentence, others.end())
        sentence = f"{sentence[:begin]}{_BREAK}{sentence[stop.start() :] if stop else ''}"
    if not _CUE.search(sentence):
        return sentence
    while (wrong := _IS_WRONG.search(sentence)) is not None:
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
    return _UNDECIDED.search(sentence) is not None or _OR.search(sentence) is not None
