"""Reading of the letter that a chat model's reply chooses, in English, German, French, Spanish and Chinese.

An explicit statement counts most ("the answer is C", a box, "I would choose C", "C is correct"), then a letter that a
line begins with or is, then the only letter that is named and not denied, then the text of exactly one choice.
Different letters are none, unless a word of correction leads from one to the other (docs/methods.md, §6).
"""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from robust_eval.normalization import has_words, normalised_form
from robust_eval.question import LETTERS
from robust_eval.reader.base import NO_LETTER, Reading
from robust_eval.reader.clauses import IS_WRONG, is_denial, sentences, without_denials
from robust_eval.reader.free_text import bounded, explicit_answer, marked_answers
from robust_eval.reader.letter_marks import (
    JOIN,
    MARK,
    MARKS,
    SMALL_MARK,
    TEXT_MARK,
    THING_BEFORE,
    P,
    earlier_letters,
    further_letters,
    letter_in,
    letter_of_mark,
    listed_letters,
    listed_places,
    only_letters,
    unmarked,
    with_marks,
)
from robust_eval.reader.markup import compatible, plain, without_latex
from robust_eval.reader.phrases import AFTER_A_LETTER, WORD

SEVERAL = "several letters"
BEYOND = "a letter beyond the choices"
DISAGREE = "letter and text differ"
SIGNS = "(?:→|=>|⇒|∴|➡️?|因此|所以|故|综上)"
CORRECTED = "(?:更正为|改为|改选|修正为|应为)"

_CAPITAL = rf"(?:[(\[{{]\s*)?([{MARK}])(?:\s*[)\]}}])?"
_LETTER = rf"(?:[(\[{{]\s*)?([{MARK}{SMALL_MARK}{TEXT_MARK}])(?:\s*[)\]}}])?"
_BEFORE = rf"(?:{P.option}|{P.filler}|(?i:l)['’]|[\s:：\"“”„«»→(\[–—-]){{0,30}}?"
_END = rf"(?=\s*(?:[.!?,;:)\]…]|\n|\Z|[\u4e00-\u9fff。，；]|[–—]|\s{AFTER_A_LETTER}(?![{WORD}])|\s{P.right}))"
_IN_A_WORD = re.compile(r"[\u4e00-\u9fff](?<![选項项案是为择故答即])\Z")  # 维生素C, 在A座
_DENIED_BEFORE = re.compile(r"(?i:\bno|\bnot|\bnicht|不)\s*\Z")  # "no es la A"
_QUESTION = re.compile(r"\b(?i:what|which|why|how|could you|can you|would you|do you)\b[^.!?\n]{0,300}\?")
_LIKEWISE = re.compile(r"\b(?i:so)\s+(?:is|are|was|were)\b")  # "A is wrong, and so is B"
_OF_A_KIND = re.compile(
    r"\s+(?:is|was|ist|war|est|es)\s+(?:an?|eine?|une?|una|the\s+symbol|the\s+name)\b|\s+(?:stands\s+for|denotes)\b"
)  # "C is a programming language"
_IT_IS = re.compile(rf"\A{P.it_is}\s+")
_FIRST_CLAUSE = re.compile(r"\s*(?:[,;:!.。，]|\s[–—-])\s")
_LAST_CLAUSE = re.compile(r"[,;:=，]\s*")
_SMALL_END = re.compile(f"[{SMALL_MARK}a-z]\\Z")
_ALMOST = re.compile(r"\b(?i:almost|nearly|partly|partially|half|close to|fast|beinahe|presque|casi)\b")
_ANOTHER_QUESTION = re.compile(r"(?i:^\s*(?:question|q)\b)|\?")
_REMARK = re.compile(r"\s*(?:is|are|was|were|would|has|have|had|does|can|cannot|could|describes|refers|means|gives)\b")
"""Words after the letter of a choice that a line is about, and does not choose."""
_ARTICLE_OR_LETTER = re.compile(r"(?<=[a-z:] )A\b")
"""A capital A within a sentence, taken for an article by what follows."""
_NO_TO_ONESELF = re.compile(r"\b(?i:no|nein|non)\s*[,.!]")
_SECOND = re.compile(r"\b(?i:second|2nd|runner-up|less|least|zweite|deuxième|segund[ao])\b")
_SECOND_BEFORE = re.compile(
    r"\b(?i:second|2nd|third|other|remaining|runner-up|initial|original|previous|earlier|former|tempting|wrong"
    r"|incorrect|mistaken|less likely"
    r"|zweite|deuxième|segunda)\s*\Z"
)
TEXT, ONLY = "text of a choice", "only letter"
_DIALOGUE = re.compile(r"^Q[.:]([ \t].*\n+)A[.:](?=[ \t])", re.M)
"""A question before an answer that is not called one: "Q: Which metal rusts? A: Iron"."""
_WITHIN = re.compile(r"\b(?i:in|at|near|from|into)\s+\Z")  # "written in C", "from A to B"

# --- statements -------------------------------------------------------------------------------------------------------
_IS_THEN = rf"(?:{P.be}\s*[:：]?|{P.may_be}|[:：=→]|\n|[-–—](?=\s))"
_CORRECTING = r"(?:(?<![,;] )\b(?i:actually)\b\s*[,:—–-]|\b(?i:wait|sorry)\b\s*[,.:!—–-])+"
_STATEMENTS = [
    re.compile(pattern)
    for pattern in (
        rf"{P.noun}[^.:!?\n;。；：]{{0,90}}?\s*{_IS_THEN}\s*{_BEFORE}{_LETTER}",
        rf"{P.right}\s*(?:{P.be}\s*[:：]?|[:：=→])\s*{_BEFORE}{_LETTER}",
        rf"{P.choose}\s*[:：]?\s*{_BEFORE}{_LETTER}",
        rf"{P.conclusion}[^.:!?\n;]{{1,80}}?{P.be}\s*{_BEFORE}{_LETTER}{_END}",
        rf"{P.it_is}\s*{_BEFORE}{_LETTER}{_END}",
        rf"{P.hence}\s*[,:，：]?\s*(?:{P.be}\s*)?{_BEFORE}{_LETTER}{_END}",
        rf"{SIGNS}\s*[,:，：]?\s*{_BEFORE}{_LETTER}",
        rf"{CORRECTED}\s*{_BEFORE}{_LETTER}",
        rf"{_CORRECTING}\s*(?:(?i:no)\s*,\s*)?{_BEFORE}{_LETTER}{_END}",  # "B... wait, C", "B... no, C"
        rf"(?:\.{{3}}|…|\s[-–—])\s*\b(?i:no|nein|non)\s*[,.!]\s*{_BEFORE}{_LETTER}(?=\s*[.!]?\s*(?:\n|\Z))",
        rf"{P.but}\s*{_BEFORE}{_LETTER}{_END}",
        rf"{P.option}\s+{_LETTER}(?=\s*[.!]?\s*(?:\n|\Z))",
        rf"(?<![{WORD}])(?:ist|wäre)\s+{_BEFORE}{_LETTER}(?:[^.!?\n,;]{{0,40}}?\s)??{P.right}",  # "also ist B richtig"
    )
]
_OTHERWISE = r"\b(?i:but|however|although|though|while|whereas|aber|jedoch|mais|pero|aunque)\b"
_LETTER_IS_RIGHT = [
    re.compile(pattern)
    for pattern in (
        rf"{_CAPITAL}[.:)]?(?:(?!{_OTHERWISE})[^.!?\n;。；{MARK}]){{0,60}}?(?:\s*{P.be}|\s*[-–—:]|\s+(?i:the|la|le|der|die))[^.!?\n,;。，；]{{0,40}}?{P.right}",
        rf"{_CAPITAL}\s*(?:项|选项)?\s*(?:是)?\s*正确",
        rf"{_CAPITAL}\s+{P.fits}",
        rf"{_CAPITAL}[^\n{MARK}]{{0,80}}?\s*[✓✔✅☑]",
    )
]
_CORRECTION, _DENIAL, _HEDGE, _WHETHER = map(re.compile, (P.correction, P.denial, P.hedge, P.whether))
_OF_OTHERS = re.compile(rf"{P.others}\s*\Z")
_AFFIRMED = re.compile(rf"[ \t]*(?:[^\w \t]|\Z|{P.noun}|(?i:because|since|as|and|here|one|weil|denn|car|porque|ya)\b)")
"""Continuation of a word that affirms a letter of listed choices: "A. Oxygen is right for" affirms none."""
_DENIED_NEXT = re.compile(rf"\s*(?:{P.be}|\b(?i:can|does|do|ne|no|kann|scheidet|wird)\b)")
_CALLED_WRONG = re.compile(r"\s*[-–—]?\s*(?i:no|wrong|false|incorrect|not (?:correct|right))\s*(?:[;,.]|\n|\Z)")
_LABEL = re.compile(rf"(?<![{WORD}.'’])[(\[]?([{MARK}{SMALL_MARK}])\s*[)\].:–—-]+[ \t]*")
_PREDICATE = re.compile(
    rf"{P.be}|(?i:can|could|do|does|did|would|will|has|ne|kann|scheidet|wird|no\s+(?:es|son|puede|sería))(?![^\W_])|不(?:正确|对|是|符|成立|能|可|选|合)|错|n['’]"
    r"|(?i:can|could|do|does|did|would|is|was|has|wo)n['’]t\b|(?i:cannot)\b"
)
"""Beginning of a clause about a letter, not of the text of a choice: "B) is wrong", but "B) It is not heated"."""
_OPTION = "zzz"
"""Word in place of the text of a choice."""
_CLAUSES = re.compile(r"[^,.;:!?\n，。；：！？—–]+(?:(?<=[(\[][\ue100-\ue119])[)\]][^,.;:!?\n，。；]*)?")
_CLAUSE_END = re.compile(r"[.,;:!?\n，。；—–]")

# --- lines ------------------------------------------------------------------------------------------------------------
_WHOLE = re.compile(rf"\A{_BEFORE}(?:[(\[{{]\s*)?([{MARK}{SMALL_MARK}])\s*[^\w{MARK}{SMALL_MARK}=<>+°%²³\n]*\Z")
_FIRST = re.compile(
    rf"\A(?:{P.option}\s+)?(?:[(\[]\s*([{MARK}])\s*[)\]]|([{MARK}])\s*(?:[):\]]|\.(?!\s*[A-Z{MARK}]\.))"
    rf"|([{MARK}])(?=\s+[-–—]\s|\s*[,，、。（(]))"
)
_ONLY_LETTERS = re.compile(rf"[^\w{MARK}]*[{MARK}](?:(?:{JOIN}|\s)*[{MARK}])+[^\w{MARK}]*")


class _Statement(NamedTuple):
    place: int
    letters: frozenset[str]


def chosen(reply: str, choices: Sequence[str]) -> Reading:
    """Return the letter that a reply, without reasoning and marks of a template, chooses among choices.

    It is uncertain where what the reply denies or supposes would make it another.

    >>> chosen("It cannot be A. I would go with **C) iron**.", ["tin", "lead", "iron"]).answer
    'C'
    >>> chosen("The answer is A or B.", ["tin", "lead", "iron"]).reason
    'several letters'
    """
    for text in (reply, plain(reply)):
        if letter := _letter_of_text(text, choices):
            return Reading(letter, TEXT)
    choices = [without_latex(choice) or choice for choice in choices]
    reply = bounded(reply)
    text = compatible(reply)
    for inside in reversed(marked_answers(reply)):
        if statement := _marked(inside, choices):
            return _decided("", [statement], choices, "marked letter")
    text = _DIALOGUE.sub(r"\1", _unquoted(plain(text)))
    if letter := _letter_of_text(text, choices):
        return Reading(letter, TEXT)
    if only_letters(text) and not _labelled(text, choices):
        return Reading("", "letter of a line", SEVERAL, True)
    whole = with_marks(text)
    shown = _without_denying_options(whole, choices)
    affirmed = without_denials(shown)
    reading = _read(affirmed, choices)
    if not reading.answer and any(is_denial(normalised_form(choice)) for choice in choices):
        statements = _stated_texts(whole, choices)
        reading = _decided(whole, statements, choices, "explicit text") if statements else _by_text(whole, choices)
    names_letter = MARKS.search(whole) is not None or _ARTICLE_OR_LETTER.search(whole) is not None
    if not reading.answer:
        return reading._replace(uncertain=names_letter and reading.reason != BEYOND)
    if reading.rule == ONLY or affirmed == shown:
        return reading._replace(uncertain=reading.rule == ONLY)
    return reading._replace(uncertain=_read(shown, choices).answer != reading.answer)


def anchored_letter(reply: str, choices: int, strict: bool = False) -> str | None:
    """Return the letter that the first line of a reply chooses, in capitals.

    None where it chooses none, several, or one beyond the choices, and where the lines below go on with a list of
    letters.

    What stands below another question is no part of the reply. A letter that is merely named chooses nothing.
    ``strict``: the reply must be the letter and nothing else.

    >>> anchored_letter(" B) 4 m/s", 5), anchored_letter("The answer is C.", 5), anchored_letter("A force", 5)
    ('B', 'C', None)
    >>> anchored_letter("A. 3 m/s, B. 4 m/s", 5), anchored_letter("The answer is A force", 5)
    (None, None)
    """
    if strict:
        letter = reply.strip().upper()
        return letter if letter in LETTERS[:choices] and len(letter) == 1 else None
    lines = [line for line in reply.strip().splitlines() if line.strip()]
    end = next((place for place, line in enumerate(lines) if place and _ANOTHER_QUESTION.search(line)), len(lines))
    first = chosen("".join(lines[:1]), ("",) * choices)
    if not first.answer or first.rule == ONLY:
        return None
    whole = chosen("\n".join(lines[:end]), ("",) * choices) if end > 1 else first
    return None if whole.reason == SEVERAL else whole.answer or first.answer


def _read(text: str, choices: Sequence[str]) -> Reading:
    """Return the letter that a text with marks chooses by the first rule that finds anything."""
    for rule, find in (
        ("explicit letter", _explicit),
        ("letter called right", _called_right),
        ("explicit text", lambda text: _stated_texts(text, choices)),
        ("letter of a line", _in_lines),
        (ONLY, lambda text: [each for each in _named_letters(text) if each.letters & set(LETTERS[: len(choices)])]),
    ):
        if statements := find(text):
            return _decided(text, statements, choices, rule)
    return _by_text(text, choices)


def _without_denying_options(text: str, choices: Sequence[str]) -> str:
    """Return a reply with a word in place of each choice that denies and stands behind its letter ("B) Not enough"),
    and without a choice behind its letter that is called wrong: "B. Lyon is wrong" is "B is wrong".

    If the texts of the choices are unknown, the rest of the line after a letter counts as its choice, unless it is a
    predicate of the letter ("B) is wrong").
    """
    parts, done = [], 0
    for label in _LABEL.finditer(text):
        place, rest = LETTERS.find(letter_of_mark(label[1])), text[label.end() :].partition("\n")[0]
        choice = choices[place].strip().rstrip(".") if 0 <= place < len(choices) else None
        if choice == "" and not (MARKS.search(rest) or _PREDICATE.match(rest)):
            choice = rest
        if label.start() < done or not choice or unmarked(rest[: len(choice)]).casefold() != choice.casefold():
            continue
        if IS_WRONG.match(rest[len(choice) :].lstrip(" \"'”’)")):
            parts += [text[done : label.end(1)], " "]
            done = label.end() + len(choice)
        elif _DENIAL.search(choice) or _DENIED_NEXT.match(choice) or without_denials(choice) != choice:
            parts += [text[done : label.end()], _OPTION]
            done = label.end() + len(choice)
    return "".join((*parts, text[done:]))


def _stated_texts(text: str, choices: Sequence[str]) -> list[_Statement]:
    """Return the statements of a reply that choose texts of choices in place of letters."""
    text = _with_texts(text, choices)
    return [each for each in _stated(text) if re.match(rf"[(\[{{]?\s*[{TEXT_MARK}]", text[each.place :])]


def _with_texts(text: str, choices: Sequence[str]) -> str:
    """Return a reply with a mark in place of the text of each choice."""
    for place in sorted(range(len(choices)), key=lambda place: -len(choices[place])):
        choice = choices[place].strip().rstrip(".")
        if len(choice) > 1:
            text = re.sub(rf"(?<!\w){re.escape(choice)}(?!\w)", chr(0xE140 + place), text, flags=re.I)
    return text


def _decided(text: str, statements: Sequence[_Statement], choices: Sequence[str], rule: str) -> Reading:
    """Return the one letter that a reply's statements choose together."""
    possible = set(LETTERS[: len(choices)])
    statements = [each for each in statements if each.letters & possible] or statements
    last = statements[-1]
    before = next((each for each in reversed(statements) if each.letters != last.letters), None)
    if before is not None and not _CORRECTION.search(text[before.place : last.place]):
        return Reading("", rule, SEVERAL)
    if len(last.letters) != 1:
        return Reading("", rule, SEVERAL)
    (letter,) = last.letters
    if letter not in possible:
        return Reading("", rule, BEYOND)
    if _names_another(text[last.place :], letter, choices):
        return Reading("", rule, DISAGREE)
    return Reading(letter, rule)


def _marked(answer: str, choices: Sequence[str]) -> _Statement | None:
    """Return the letters of choices that stand in a box or the like; None where it has none."""
    if letter := _letter_of_text(plain(answer), choices):
        return _Statement(0, frozenset(letter))
    inside = with_marks(_unquoted(compatible(plain(answer))).strip())
    if whole := _WHOLE.match(inside):
        return _Statement(0, frozenset(letter_of_mark(whole[1])))
    if first := _FIRST.match(inside):
        return _Statement(0, frozenset({letter_in(first)[2]} | further_letters(inside[first.end() :])))
    if _ONLY_LETTERS.fullmatch(inside):
        return _Statement(0, frozenset(map(letter_of_mark, re.findall(f"[{MARK}]", inside))))
    statements = _stated(inside)
    return statements[-1] if statements else None


def _explicit(text: str) -> list[_Statement]:
    """Return a reply's statements that choose letters, a first line that is one and affirming corrections included."""
    opening = [] if re.search("[✗✘❌✓✔✅☑]", text) else _opening(text)
    statements = [*opening, *_stated(text)]
    last = statements[-1].place if statements else len(text)
    corrections = [
        each for each in _called_right(text) if each.place > last and _CORRECTION.search(text[last : each.place])
    ]
    return [*statements, *corrections]


def _opening(text: str) -> list[_Statement]:
    """Return the letter that a reply begins with, unless it lists the choices or is about that choice."""
    line = text.strip().partition("\n")[0].strip()
    whole, first = _WHOLE.match(line), _FIRST.match(line)
    if whole is not None and re.match(f"[{MARK}]", whole[1]):
        return [_Statement(0, frozenset(letter_of_mark(whole[1])))]
    if (
        first is None
        or first.lastindex == 3
        or listed_places(text)
        or _REMARK.match(line[first.end() :])
        or _denied_after(line[first.end() :])
    ):
        return []
    return [_Statement(0, frozenset({letter_in(first)[2]}))] if _stated(text) else []


def _stated(text: str) -> list[_Statement]:
    """Return a reply's statements that choose letters, in their order; a list of choices states nothing."""
    statements: dict[int, _Statement] = {}
    listed = listed_places(text)
    for match in (match for pattern in _STATEMENTS for match in _all(pattern, text)):
        begin, end, letter = letter_in(match)
        between, further = text[match.start() : begin], further_letters(text[end:].lstrip(")]}"))
        further |= _letters_in_line(text[begin - (text[begin - 1 : begin] in ("(", "[")) :].partition("\n")[0])
        before = text[: match.start()]
        denied = [
            *(_DENIAL.search(_NO_TO_ONESELF.sub("", between)), _SECOND.search(between)),
            *(pattern.search(before[-80:]) for pattern in (_DENIED_BEFORE, _SECOND_BEFORE, _OF_OTHERS)),
        ]
        if (
            not any(denied)
            and not _denied_after(text[end:], further)
            and begin not in listed
            and not THING_BEFORE.search(between)
            and not (text[begin] >= "\ue140" and MARKS.search(between))  # "option A is Paris"
        ):
            statements.setdefault(begin, _Statement(begin, frozenset({letter} | further)))
    return [statements[place] for place in sorted(statements)]


def _called_right(text: str) -> list[_Statement]:
    """Return a reply's statements that call letters right, in their order."""
    statements: dict[int, _Statement] = {}
    listed = listed_places(text)
    for match in (match for pattern in _LETTER_IS_RIGHT for match in _all(pattern, text)):
        begin, end, letter = letter_in(match)
        clause = _CLAUSE_END.split(text[max(0, begin - 40) : begin])[-1]
        between = text[end : match.end()]
        doubts = [_DENIAL.search(between), _ALMOST.search(between), _DENIAL.search(clause), _WHETHER.search(clause)]
        affirmed = begin not in listed or _AFFIRMED.match(text, match.end())
        if affirmed and not any(doubts) and not THING_BEFORE.search(text[max(0, begin - 30) : begin]):
            earlier = earlier_letters(
                text[max(0, begin - 200) : begin]
            )  # "both A and B are right", but not "of A and B, A is right"
            statements.setdefault(
                begin, _Statement(begin, frozenset({letter} | (set() if letter in earlier else earlier)))
            )
    return [statements[place] for place in sorted(statements)]


def _in_lines(text: str) -> list[_Statement]:
    """Return the letters of choices that a reply's lines are or begin with."""
    statements = []
    listed = listed_places(text)
    lines = list(re.finditer(r"[^\n]*\S[^\n]*", text))
    for line in lines:
        stripped = line.group().strip()
        begin = line.start() + line.group().index(stripped)
        if whole := _WHOLE.match(stripped):
            if re.match(f"[{MARK}]", whole[1]) or len(lines) == 1 or not _SMALL_END.search(stripped):
                statements.append(_Statement(begin, frozenset(letter_of_mark(whole[1]))))
        elif _ONLY_LETTERS.fullmatch(stripped):
            statements.append(_Statement(begin, frozenset(map(letter_of_mark, re.findall(f"[{MARK}]", stripped)))))
        elif first := _FIRST.match(stripped):
            rest = stripped[first.end() :]
            remark = bool(statements) and _REMARK.match(rest) is not None
            if begin + first.start(first.lastindex or 0) not in listed and not remark and not _denied_after(rest):
                further = further_letters(rest) | _letters_in_line(stripped)
                statements.append(_Statement(begin, frozenset({letter_in(first)[2]} | further)))
    return statements


def _named_letters(text: str) -> list[_Statement]:
    """Return the letters that are named as choices are, and not denied; none where other letters are named besides."""
    statements, denied = [], set()
    text = _QUESTION.sub(lambda question: " " * len(question.group()), text)
    for clause in _CLAUSES.finditer(text):
        is_doubtful = any(doubt.search(clause.group()) for doubt in (_DENIAL, _HEDGE, _LIKEWISE))
        for match in re.finditer(rf"{_CAPITAL}{_END}|(?<=\()([{MARK}])(?=\))", clause.group()):
            begin, end, letter = letter_in(match)
            before = text[max(0, clause.start() + begin - 30) : clause.start() + begin]
            if any(pattern.search(before) for pattern in (THING_BEFORE, _IN_A_WORD, _WITHIN)):
                continue
            if _OF_A_KIND.match(text, clause.start() + end):
                continue
            if is_doubtful:
                denied.add(letter)
            else:
                statements.append(_Statement(clause.start() + begin, frozenset(letter)))
    loose = {letter_of_mark(mark) for mark in re.findall(f"[{MARK}]", text)}
    other_letters = loose - denied - {letter for statement in statements for letter in statement.letters}
    return [] if other_letters else [statement for statement in statements if not statement.letters & denied]


def _by_text(text: str, choices: Sequence[str]) -> Reading:
    """Return the letter of the one choice whose text the reply says that the answer is, or names in one sentence."""
    text = unmarked(text)
    if (answer := explicit_answer(text)) and (starts := _letters_of_start(answer, choices)):
        return Reading(max(starts)[1], TEXT)
    parts_of_text, form = sentences(text), normalised_form(text)
    letters = [
        letter for letter, choice in zip(LETTERS, choices, strict=False) if has_words(form, normalised_form(choice))
    ]
    denies = _DENIAL.search(text) and not any(
        is_denial(normalised_form(choices[LETTERS.index(letter)])) for letter in letters
    )
    is_open = denies or len(letters) > 1 or without_denials(text) != text
    for part in (*parts_of_text[-1:], *parts_of_text[:1]):
        if part.endswith("?") and is_open:  # "Paris? No.", "Paris? Perhaps Lyon."
            continue
        clauses = (_FIRST_CLAUSE.split(part, maxsplit=1)[0], _LAST_CLAUSE.split(part)[-1])
        for form in (_IT_IS.sub("", part), *clauses, _NO_TO_ONESELF.sub("", part, count=1)):
            if letter := _letter_of_text(form, choices):
                return Reading(letter, TEXT)
    if len(letters) == 1 and not denies and not _HEDGE.search(text) and len(parts_of_text) == 1:
        return Reading(letters[0], TEXT)
    return Reading("", "", NO_LETTER, bool(letters))


def _letters_of_start(text: str, choices: Sequence[str]) -> list[tuple[int, str]]:
    """Return for each choice whose text begins the given text the length of the choice and its letter."""
    form = f"{normalised_form(text)} "
    forms = map(normalised_form, choices)
    return [(len(each), letter) for letter, each in zip(LETTERS, forms, strict=False) if form.startswith(f"{each} ")]


def _all(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Yield all matches of a pattern, also overlapping ones: a statement may begin within another."""
    place = 0
    while (match := pattern.search(text, place)) is not None:
        yield match
        place = match.start() + 1


def _denied_after(rest: str, further: Collection[str] = ()) -> bool:
    """Return True if letters are denied by what follows the first of them: "B is wrong"."""
    rest = rest[max((rest.find(chr(0xE100 + ord(letter) - ord("A"))) + 1 for letter in further), default=0) :]
    if re.match(r"[^，。；,;\n]{0,6}[不错]", rest) or _CALLED_WRONG.match(rest):
        return True
    clause = _CLAUSE_END.split(rest.lstrip(")] "), maxsplit=1)[0]
    return _DENIED_NEXT.match(clause) is not None and _DENIAL.search(clause) is not None


def _letters_in_line(line: str) -> set[str]:
    """Return the letters of further choices in a line that begins with one, unless something in it is denied."""
    return set() if _DENIAL.search(line) else listed_letters(unmarked(line))


def _names_another(text: str, letter: str, choices: Sequence[str]) -> bool:
    """Return True if the text of another choice stands behind a letter, as in "B) Lyon" where Lyon is C."""
    text_behind = re.match(rf"[{MARK}{SMALL_MARK}]\s*[)\].:]+\s*([^\n]+)", text)
    if text_behind is None:
        return False
    letters = [each for _, each in _letters_of_start(unmarked(text_behind[1]), choices)]
    return bool(letters) and letter not in letters


def _labelled(text: str, choices: Sequence[str]) -> bool:
    """Return True if a reply is the letter of a choice and its text, which may be a letter, too: "B. C"."""
    text = with_marks(text.strip())
    first = _FIRST.match(text)
    place = LETTERS.find(letter_in(first)[2]) if first else -1
    return first is not None and unmarked(text[first.end() :]).strip(" .").lower() in (
        choice.strip(" .").lower() for choice in choices[max(0, place) : place + 1]
    )


def _letter_of_text(text: str, choices: Sequence[str]) -> str | None:
    """Return the letter of the one choice whose text this is; None where there is none, or several."""
    for form in (_verbatim, _folded, normalised_form, lambda text: normalised_form(compatible(plain(text)))):
        normalized, texts = form(text), [form(choice) for choice in choices]
        if normalized and len(set(texts)) == len(texts) and normalized in texts:
            return LETTERS[texts.index(normalized)]
    return None


def _verbatim(text: str) -> str:
    return " ".join(text.casefold().split())


def _folded(text: str) -> str:
    """Return the text of a choice as it stands but for case, white space, quotation marks and a final full stop."""
    return _verbatim(text).strip("\"“”„'‘’").rstrip(".") or text


def _unquoted(text: str) -> str:
    """Return a letter or text without quotation marks and the like: “C”, 【C】, <C>."""
    text = re.sub(r"<([A-Z])>", r"\1", text)
    return re.sub(r"[\"“”„«»‘`【】「」『』]|(?<!\w)['’]|['’](?!\w)", "", text)
