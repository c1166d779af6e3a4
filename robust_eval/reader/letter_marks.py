"""Marks in place of letters that may name a choice, and lists of them in a reply."""

import re

from robust_eval.reader.phrases import AFTER_A_LETTER, WORD, clause_phrases, phrases

P = phrases("letters")
"""Patterns of phrases, by their names in ``phrases.toml``."""
_NO_ARTICLE = (
    rf"(?!A und O\b)(?!A[ \t]+(?!{AFTER_A_LETTER}(?![{WORD}]))[a-zäöüéèñA-Z])"  # "is A force", but "is A because"
)
_NO_SYMBOL = (
    r"(?![#+])(?!\s*[=<>≈∝^²³√±%°])(?!\s?[-‐][a-zA-Z])(?!['’][a-zA-Z])(?!\s*(?:\(\w\)|_)\s*=)"  # E = mc², B-field
)
_NO_PRONOUN = (
    rf"(?!I\s+(?!(?:{P.after_i}|(?i:and|or|nor|to)\s+[(\[]?[A-Z](?!\w)))[a-z]|I['’]"  # "I think", but "I and J"
    rf"|I,[^,.;:!?\n]{{1,40}},\s+(?:{clause_phrases('first_person')}))"  # "I, however, do not know"
)
_NO_NUMERAL = r"(?!I(?:(?:\s*[,&/–—-]|\s+(?i:and|or|to|und|et|y))+\s*)(?:II|III|IV|VI|IX)\b)"  # "I, II and III"
_NUMERAL_BEFORE = re.compile(r"\b(?:II|III|IV|VI|IX)(?:\s*[,&/–—-]|\s+(?i:and|or|to|und|et|y))+\s*\Z")
_NO_UNIT = r"(?<![.'’\-°])(?<!° )(?<!\d )"  # 20 °C, 3 A
_LETTER_NAME = re.compile(
    rf"(?<![{WORD}]){_NO_UNIT}{_NO_ARTICLE}{_NO_PRONOUN}{_NO_NUMERAL}([A-Z])(?![{WORD}])(?:(?=\s*[)\]}}])|{_NO_SYMBOL})"
    rf"|(?<![{WORD}])([a-z])(?=[)\]](?![{WORD}]))"  # (b)
    rf"|(?<![{WORD}'’/])(?<!\d )([a-z])(?=[.:,]*\s*(?:\n|\Z))"  # "the answer is b"
)
"""Pattern of a letter that may name a choice. A mark replaces it, so that no rule can distinguish letters; the mark of
a small one at the end of a line counts in statements alone.
"""
MARK, SMALL_MARK, TEXT_MARK = "\ue100-\ue119", "\ue120-\ue139", "\ue140-\ue14c"
MARKS = re.compile(f"[{MARK}{SMALL_MARK}]")
THING_BEFORE = re.compile(rf"{P.things}\.?\s*[(]?\Z")


def with_marks(text: str) -> str:
    """Return a text with each letter that may name a choice as a mark of its own."""

    def mark(match: re.Match[str]) -> str:
        number = match.lastindex or 1
        before = text[max(0, match.start(number) - 30) : match.start(number)]
        if THING_BEFORE.search(before) or (match[number] in "IVX" and _NUMERAL_BEFORE.search(before)):
            return match.group()
        return chr((0xE120 if number == 3 else 0xE100) + ord(match[number].upper()) - ord("A"))

    return _LETTER_NAME.sub(mark, text)


def unmarked(text: str) -> str:
    """Return a text with letters for the marks of choices."""
    return MARKS.sub(lambda match: letter_of_mark(match.group()), text)


def letter_of_mark(mark: str) -> str:
    """Return the letter that a mark stands for."""
    return chr(ord("A") + (ord(mark) & 0x1F))


def letter_in(match: re.Match[str]) -> tuple[int, int, str]:
    """Return the start and the end of the mark in a match, and the letter of the mark."""
    number = next(number for number, value in enumerate(match.groups(), 1) if value)
    return match.start(number), match.end(number), letter_of_mark(match[number])


JOIN = r"(?:,|;|/|&|\+|、|\b(?i:and|or|und|oder|et|ou|y|o|e|nor)\b|和|或|与|及)"
AND = rf"(?:\s*(?:{JOIN}\s*)+)"  # white space has one place only: with two, a row of commas is read in 2ⁿ ways
_CONTINUATIONS = "and|or|are|as|because|for|since|is|both|could|can|und|oder|sind|et|sont|son|y"
_NO_NAME = rf"(?![{WORD}'’])(?!\s+(?!(?:{_CONTINUATIONS})\b)[a-zäöü])"  # "B and C are", but not "B and C major"
_MORE = re.compile(
    rf"\A[.):\]]*{AND}(?:{P.option}\s+)?(?:(?i:both|also)\s+)?[(\[]?([{MARK}]){_NO_NAME}"
    rf"|\A\s*\([^()\n]*\){AND}([{MARK}])(?=\s*\()"  # "A (3 m/s) and E (7 m/s)"
    rf"|\A[.):\]]*[ \t]*\n\s*[(\[]?([{MARK}])(?=[)\].]*[ \t]*(?:\n|\Z))"  # a letter alone on the next line
)
_EARLIER = re.compile(rf"(?<![{WORD}'’.])([{MARK}])[).\]]?{AND}(?:{P.option}\s+)?[(\[]?\Z")
_IN_A_LIST = [
    re.compile(pattern, re.M)
    for pattern in (
        rf"^[^\w{MARK}\n]*(?:{P.option}\s+)?[(\[]?([{MARK}])\s*[).:\]]",
        rf"{P.option}\s+[(\[]?([{MARK}])[)\]]?\s*:",
        rf"(?<![{WORD}])[(]?([{MARK}])\)",
        rf"(?<![{WORD}])([{MARK}])项",
    )
]
"""Forms in which choices are listed."""
_ANALYSIS = re.compile(
    r"\b(?i:analy[sz]e|assess|break(?:ing)? down|check|compare|consider|discuss|evaluate|examine|review"
    r"|(?:go(?:ing)?|work(?:ing)?) (?:over|through)|look(?:ing)? at)\b[^\n]{0,80}"
    r"\b(?i:options?|choices?|alternatives?|statements?|answers?)\b[^\n]{0,80}[:.]\s*\n\W*\Z"
)
"""The line before a list of choices that the reply discusses, and may not have finished."""
_LONE = re.compile(r"[(\[][a-m][)\]]|\b[a-m]\)|\b[A-M]\b")
_JOINING = re.compile(
    r"\b(?i:and|or|to|through|plus|as well as|both|either|option|choice|letter)\b"
    r"|[\s.,;:!?()\[\]{}<>/|&+*#_\"'~→•·…。，、；–—-]"
)
"""Words and signs between the letters of a list, and before them; no ✓ or ✗, which says which is right."""
_NAMES_OTHERS = re.compile(r"\W*[A-M]\s*[).:\]]\s.*\b[A-M]\b.*\b(?:and|or)\b")  # "E. A and B"
_LISTED_OPTION = re.compile(r"(?<![\w.'’])(?P<open>[(\[]?)(?P<letter>[A-M])(?P<sign>[).:\]]|$)(?![^\W\d_])")
_NEXT_OF_SEVERAL = re.compile(r"(?:[,;/&+]|\bor)\s*$")
_LETTERS_ALONE = re.compile(r"(?:[\s,;]*[(\[]?[A-M][).:\]])*[\s,;]*")


def listed_places(text: str) -> set[int]:
    """Return the places of the letters in a list of choices: at least A, B and C, in one form and in their order, or
    from A on behind the announcement of an analysis ("Let's consider each option:").
    """
    for form in _IN_A_LIST:
        places = {match.start(1): letter_of_mark(match[1]) for match in form.finditer(text)}
        first = next(iter(places), 0)
        is_analysis = places.get(first) == "A" and _ANALYSIS.search(text[max(0, first - 200) : first]) is not None
        if is_analysis or set(places.values()) >= set("ABC"):
            listed: dict[int, str] = {}
            for place, letter in places.items():
                if letter == "A" or (listed and letter > max(listed.values())):
                    listed[place] = letter
            return set(listed)
    return set()


def further_letters(rest: str) -> set[str]:
    """Return the marked letters that follow a first one: "A and B", "A, B or C"."""
    letters = set()
    while more := _MORE.match(rest):
        _, end, letter = letter_in(more)
        letters.add(letter)
        rest = rest[end:]
    return letters


def earlier_letters(text: str) -> set[str]:
    """Return the marked letters before one, as in "both A and B are correct"."""
    letters = set()
    while match := _EARLIER.search(text):
        letters.add(letter_of_mark(match[1]))
        text = text[: match.start(1)]
    return letters


def only_letters(text: str) -> set[str]:
    """Return the letters of a text that holds several of them and nothing else, whatever separates them; else none.

    The letter of a choice that names others, as in "E. A and B", is no list.

    >>> sorted(only_letters("A - E")), sorted(only_letters("Option A. Option B.")), only_letters("E. A and B")
    (['A', 'E'], ['A', 'B'], set())
    """
    letters = {letter.strip("()[]").upper() for letter in _LONE.findall(text)}
    if len(letters) < 2 or _NAMES_OTHERS.match(text) or _JOINING.sub("", _LONE.sub("", text)):
        return set()
    return letters


def listed_letters(text: str) -> set[str]:
    """Return the letters of further choices that stand in a text behind a first one.

    A letter belongs to one if it has the form of the first ("B." or "(B)") and is parted from it by a comma or the like
    (a reply may be cut behind it) or by nothing at all; or if it is the next in the alphabet, in a list that begins
    with A or has three letters. So there are none in "B. Robert A. Millikan" and in "B. 5 C. It is".
    """
    options = list(_LISTED_OPTION.finditer(text))
    if not options or text[: options[0].start()].strip():
        return set()
    first, end = options[0], options[0].end()
    letters, run = set(), first["letter"]
    initials = first["sign"] == "." and not _LETTERS_ALONE.fullmatch(text)
    for option in options[1:]:
        between = text[end : option.start()]
        separated = _NEXT_OF_SEVERAL.search(between) is not None
        cut = separated and not option["sign"]
        if option["open"] != first["open"] or (option["sign"] != first["sign"] and not cut):
            continue
        if separated or not (between.strip() or initials):
            letters.add(option["letter"])
        if ord(option["letter"]) == ord(run[-1]) + 1:
            run += option["letter"]
        end = option.end()
    return letters | set(run if len(run) > 2 or run.startswith("AB") else "")
