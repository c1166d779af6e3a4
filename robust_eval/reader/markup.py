"""Markup around an answer: marks of chat templates, fences, Markdown, LaTeX, tags."""

import re
import unicodedata
from string import ascii_uppercase

_MARK = re.compile(
    r"<\|[\w ]{2,30}\|>|</?s>|<(?:start|end)_of_turn>|<(?:eos|bos|pad)>|\[/?INST\]|<</?SYS>>|<｜[^｜\n]{2,30}｜>"
)
"""A mark that a chat template writes between the turns of a conversation."""
_ROLE = re.compile(r"\A\s*(?:assistant|model)\s*(?=\n|<\|)|\A\s*ASSISTANT:\s*")
_ANOTHER_TURN = re.compile(
    r"^(?:[#*]|[^\S\n])*(?:(?:Question|Q|Frage|Pregunta|问题)\s*\d*\s*[:：]|(?:User|Human|USER|HUMAN)\s*:|Instruction\s*:)",
    re.M,
)
"""The first line of a turn that is not the model's: it wrote on where it should have ended."""
_PRIVATE_USE = re.compile("[\ue000-\uf8ff]")
"""Characters without a meaning of their own, which readers use as marks."""
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[\w+-]*[ \t]*$\n?|```", re.M)
_LATEX_WORD = re.compile(r"\\(?:text(?:bf|it|rm|sf|tt)?|math(?:rm|bf|sf|it|tt)|mbox|emph|boldsymbol)\s*\{([^{}]*)\}")
_FRACTION = re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
_FRACTION_OF_DIGITS = re.compile(r"\\[dt]?frac\s*(\d)\s*(\d)")
_OPERATORS = {"times": "×", "cdot": "·", "div": "÷", "pm": "±", "le": "≤", "leq": "≤", "ge": "≥", "geq": "≥", "ne": "≠"}
_OPERATORS |= {"neq": "≠", "approx": "≈", "infty": "∞", "pi": "π", "circ": "°", "degree": "°", "percent": "%"}
_LATEX_OPERATOR = re.compile(rf"\\({'|'.join(sorted(_OPERATORS, key=len, reverse=True))})(?![a-zA-Z])\s?|\\(%|\$)")
_LATEX_POWER = re.compile(r"\^\{\s*([+-]?\w+[+-]?|[+-]|\s*°)\s*\}")
_SUBSCRIPT = re.compile(r"(?:(?<=[A-Z])|(?<=[A-Z][a-z])|(?<=[)\]]))_(?:\{\s*(\d+)\s*\}|(\d+))")  # H_2O, Ca(OH)_{2}
_SCRIPT = re.compile(r"<(su[bp])>([^<>\n]{0,30})</\1>", re.I)
_POWER = re.compile(r"(?<=\d)\*\*(?=\d)")
_LATEX_SIGNS = re.compile(r"\\[()\[\]]|\$\$|\\[,;!]|\\(?:quad|left|right)\b")
_FORMULA = re.compile(
    r"(?<![\\$])(?:(?<!\d)(?<!\d )|(?=\$[\^\\_a-zA-Z]))\$(?P<blank>[ \t]*)"
    r"(?=[^\s$])((?:[^$\\\n]|\\.)+)(?<!\s)(?P=blank)\$(?![\d$])"
)
"""Formula between dollar signs that delimit mathematics: "$x$", but not "$5 or $10"."""
_TAG = re.compile(r"</?(?:[biup]|(?i:em|strong|br|span|div|code|pre|center|h\d|li|ul|ol))\b[^<>]*>")
_LINK = re.compile(r"!?\[([^\]\n]{0,500})\]\([^)\s]*\)")  # bounded: a reply may be a row of brackets
_HEADING = re.compile(r"^[ \t]*(?:#{1,6}[ \t]+|>[ \t]?)", re.M)
_EMPHASIS = re.compile(
    r"(?<!\w)\*{1,3}(?=\S)(.+?)(?<=\S)\*{1,3}(?!\w)|(?<!\w)_{1,3}(?=\S)(.+?)(?<=\S)_{1,3}(?!\w)|`([^`\n]+)`"
)
_STRUCK = re.compile(r"(?<![\w~])~~(?=[^\s~])[^~\n]*(?<=\S)~~(?![\w~])")
"""Struck-out words, which do not belong to the reply."""
_STRAY_EMPHASIS = re.compile(r"\*\*|(?<!\w)__(?!\w)")
_WHITE_ON_BLACK = {first + n: letter for first in (0x1F150, 0x1F170) for n, letter in enumerate(ascii_uppercase)}
"""Circled and boxed letters that Unicode's compatible forms leave as they are: 🅐, 🅰."""
_FOOTNOTE_BRACKETS = re.compile(r"(?<=[\w.,;:!?)\"”’])(?:\s?\[(?:\d{1,3}|citation needed)\])+(?![(\w])")
_FOOTNOTE_DIGITS = re.compile(r"(?<=[^\W\d_]{3})\d{1,3}(?=[.,;:!?)]*(?:\s|\Z))")
_FOOTNOTE_AFTER_YEAR = re.compile(r"\b(1[0-9]{3}|20[0-9]{2})\d{1,2}(?=[.,;:!?)]+(?:\s|\Z))")
_LINKING = "in|on|by|at|of|from|the|is|was|are|and|for|to|with|as|called|named"
_GLUED_BEFORE = re.compile(rf"(?:(?<=\s)|(?<=[a-z]{{3}})|\A)(?:{_LINKING})(?=[A-Z0-9])")
_GLUED_AFTER = re.compile(
    rf"(?<=\d\d)(?:{_LINKING}|after|who|which)(?=\s)|(?<=[a-z]{{3}})(?:on|in|and|by|at|of) (?=[A-Z])"
)
_BULLET = re.compile(r"^[ \t]*[-*•+][ \t]+", re.M)


def _operator(match: re.Match[str]) -> str:
    return match[2] if match[2] else f" {_OPERATORS[match[1]]} "


def _script(match: re.Match[str]) -> str:
    """Return an index without its tags, and a power with its sign."""
    is_power = match[1].lower() == "sup" and re.fullmatch(r"\s*(?:[+−-]?\d+[+−-]?|[+−-])\s*", match[2])
    return f"^{match[2].strip()}" if is_power else match[2]


def without_footnotes(text: str) -> str:
    """Return a text without footnote marks behind words, and with the words apart that a lost link glued together.

    >>> without_footnotes("It was signed inParis1. He left on April 30, 18032.")
    'It was signed in Paris. He left on April 30, 1803.'
    """
    text = _FOOTNOTE_DIGITS.sub("", _FOOTNOTE_AFTER_YEAR.sub(r"\1", text))
    return _GLUED_AFTER.sub(r" \g<0>", _GLUED_BEFORE.sub(r"\g<0> ", text))


def without_template(reply: str) -> str:
    r"""Return a reply without the marks of its chat template, and without further turns that the model wrote.

    >>> without_template("Paris<|im_end|>\n<|im_start|>user\nAnd Spain?")
    'Paris'
    >>> without_template("Paris\nQuestion: What is the capital of Germany?\nAnswer: Berlin")
    'Paris'
    """
    reply = _ROLE.sub("", reply)
    while (mark := _MARK.match(reply.lstrip())) is not None:  # marks before the answer
        reply = _ROLE.sub("", reply.lstrip()[mark.end() :])
        if mark.group().startswith("<|start_header"):
            reply = reply.partition("<|end_header_id|>")[2]
    if (mark := _MARK.search(reply)) is not None:
        reply = reply[: mark.start()]
    for turn in _ANOTHER_TURN.finditer(reply):
        if reply[: turn.start()].strip():
            reply = reply[: turn.start()]
            break
    return reply.strip()


def plain(reply: str) -> str:
    r"""Return a reply as plain text: without fences, headings, emphasis, bullets, tags, LaTeX, and struck words.

    >>> plain("### Answer\n\n**Paris** is the `capital`.")
    'Answer\n\nParis is the capital.'
    """
    reply = _FENCE.sub("", _PRIVATE_USE.sub("", reply))
    reply = _STRUCK.sub("", reply) if _STRUCK.sub("", reply).strip() else reply
    reply = _TAG.sub(" ", _SCRIPT.sub(_script, reply))
    reply = _LINK.sub(r"\1", reply)
    reply = _POWER.sub("^", without_latex(reply))
    reply = _BULLET.sub("", _HEADING.sub("", reply))
    for _ in range(2):  # ***both*** and **_nested_**
        reply = _EMPHASIS.sub(lambda match: next(text for text in match.groups() if text is not None), reply)
    return _FOOTNOTE_BRACKETS.sub("", _STRAY_EMPHASIS.sub("", reply)).strip()


def without_latex(text: str) -> str:
    r"""Return a text, a reply or an accepted answer, without the commands and signs of LaTeX.

    >>> without_latex(r"$\frac{3}{4}$"), without_latex(r"\text{H}_2\text{O}"), without_latex("$5 or $6")
    ('3/4', 'H2O', '$5 or $6')
    """
    before, text = None, _FRACTION_OF_DIGITS.sub(r"\1/\2", text)
    while before != text:
        before, text = text, _FRACTION.sub(r"\1/\2", _LATEX_WORD.sub(r"\1", text))
    text = _LATEX_SIGNS.sub("", _FORMULA.sub(r"\2", text))
    text = _LATEX_POWER.sub(r"^\1", _LATEX_OPERATOR.sub(_operator, text))
    return _SUBSCRIPT.sub(r"\1\2", text)


def compatible(reply: str) -> str:
    """Return a reply with full-width, circled and boxed characters as plain ones: "（Ｃ）" is "(C)", "ⓒ" is "C"."""
    reply = re.sub("[ⓐ-ⓩ]", lambda circled: circled.group().upper(), reply)
    return unicodedata.normalize("NFKC", reply.translate(_WHITE_ON_BLACK))
