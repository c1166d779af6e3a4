"""Letters of several choices in a reply that lists them: it chooses none of them."""

import re

_LONE = re.compile(r"[(\[][a-m][)\]]|\b[a-m]\)|\b[A-M]\b")
_JOINING = re.compile(
    r"\b(?i:and|or|to|through|plus|as well as|both|either|option|choice|letter)\b"
    r"|[\s.,;:!?()\[\]{}<>/|&+*#_\"'~→•·…。，、；–—-]"
)
"""What may stand between the letters of a list, and before them; no ✓ or ✗, which says which is right."""
_LABEL = re.compile(r"\W*[A-M]\s*[).:\]]\s.*\b[A-M]\b.*\b(?:and|or)\b")  # "E. A and B"
_OPTION = re.compile(r"(?<![\w.'’])(?P<open>[(\[]?)(?P<letter>[A-M])(?P<sign>[).:\]]|$)(?![^\W\d_])")
_NEXT_OF_SEVERAL = re.compile(r"(?:[,;/&+]|\bor)\s*$")
_ONLY_LETTERS = re.compile(r"(?:[\s,;]*[(\[]?[A-M][).:\]])*[\s,;]*")


def only_letters(text: str) -> set[str]:
    """Return the letters of a text that holds several of them and nothing else, whatever parts them; else none.

    The letter of a choice that names others, as in "E. A and B", is no list.

    >>> sorted(only_letters("A - E")), sorted(only_letters("Option A. Option B.")), only_letters("E. A and B")
    (['A', 'E'], ['A', 'B'], set())
    """
    found = {letter.strip("()[]").upper() for letter in _LONE.findall(text)}
    if len(found) < 2 or _LABEL.match(text) or _JOINING.sub("", _LONE.sub("", text)):
        return set()
    return found


def listed_letters(text: str) -> set[str]:
    """Return the letters of further choices that stand in a text behind a first one.

    A letter belongs to one if it has the form of the first ("B." or "(B)") and is parted from it by a comma or the like
    (a reply may be cut behind it) or by nothing at all; or if it is the next in the alphabet, in a list that begins
    with A or has three letters. So there are none in "B. Robert A. Millikan" and in "B. 5 C. It is".
    """
    options = list(_OPTION.finditer(text))
    if not options or text[: options[0].start()].strip():
        return set()
    first, end = options[0], options[0].end()
    found, run = set(), first["letter"]
    initials = first["sign"] == "." and not _ONLY_LETTERS.fullmatch(text)
    for option in options[1:]:
        between = text[end : option.start()]
        separated = _NEXT_OF_SEVERAL.search(between) is not None
        cut = separated and not option["sign"]
        if option["open"] != first["open"] or (option["sign"] != first["sign"] and not cut):
            continue
        if separated or not (between.strip() or initials):
            found.add(option["letter"])
        if ord(option["letter"]) == ord(run[-1]) + 1:
            run += option["letter"]
        end = option.end()
    return found | set(run if len(run) > 2 or run.startswith("AB") else "")
