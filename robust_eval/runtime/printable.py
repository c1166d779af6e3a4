r"""Text that others wrote, made safe to print, log or show in a page.

Replies, names and messages of servers may hold characters that move a cursor, colour or rename a window, ring, swap the
order of what is read, or cannot be seen at all. Each becomes an escape that tells which it was, such as ``\x1b``.
"""

import re

_UNSEEN = (
    "\x00-\x1f\x7f-\x9f"  # C0, DEL and C1
    "\xad\u180e\u200b\ufeff\u2060-\u206f"  # hidden: soft hyphen, zero-width space, joiner and mark of byte order, …
    "\u061c\u200e\u200f\u202a-\u202e"  # these, and 2066 to 2069 above, change the direction of what is read
    "\u2028\u2029"  # line breaks to some programs and none to others
    "\ufff9-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"  # marks of annotation, shorthand and music
    "\U000e0000-\U000e007f"  # tags: a hidden copy of ASCII
    "\ud800-\udfff"  # halves of characters, which cannot be written
    "\ufdd0-\ufdef" + "".join(f"{chr(plane << 16 | 0xFFFE)}{chr(plane << 16 | 0xFFFF)}" for plane in range(17))
)
"""Control and format characters, and what is no character, as members of a class of a regular expression.

Format characters that a script is written with are not among them: they move and hide nothing. These are the joiners
U+200C and U+200D, without which Persian, the scripts of India and many emoji are misspelt, signs that enclose numbers,
and those that arrange hieroglyphs.
"""
_ANY = re.compile(f"[{_UNSEEN}]")
_WITHIN_LINES = re.compile(f"(?![\n\t])[{_UNSEEN}]")


def printable(text: str) -> str:
    r"""Return the text on one line, with every character that cannot be seen as an escape.

    >>> print(printable("red \x1b[31m, and a second\nline"))
    red \x1b[31m, and a second\nline
    """
    return _ANY.sub(_escape, text)


def printable_lines(text: str) -> str:
    """Return the text with escapes as :func:`printable` makes them, but for line breaks and tabs."""
    return _WITHIN_LINES.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")
