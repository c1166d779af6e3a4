r"""Text for people: printable, escaped, cut, and in lists; rounded numbers; names of secrets; compressed data of pages.

Replies, names and messages of servers may hold characters that move a cursor, colour or rename a window, ring, change
the reading order, or are invisible. Each becomes an escape, such as ``\x1b``.
"""

import base64
import difflib
import gzip
import html
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_HALF_UP, Decimal, localcontext
from typing import Any
from urllib.parse import urlsplit

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
"""Control and format characters, and noncharacters, for a class of a regular expression.

Format characters that scripts need are not among them: the joiners U+200C and U+200D of Persian, the scripts of India
and many emoji, signs that enclose numbers, and those that arrange hieroglyphs.
"""
_ANY = re.compile(f"[{_UNSEEN}]")
_WITHIN_LINES = re.compile(f"(?![\n\t])[{_UNSEEN}]")


def printable(text: str) -> str:
    r"""Return the text in printable form on one line, with every invisible character as an escape.

    >>> print(printable("red \x1b[31m, and a second\nline"))
    red \x1b[31m, and a second\nline
    """
    return _ANY.sub(_escape, text)


def printable_lines(text: str) -> str:
    """Return the text in printable form, with the escapes of :func:`printable`, except for line breaks and tabs."""
    return _WITHIN_LINES.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def excerpt(value: object) -> str:
    """Return an excerpt of a value for an error message, in printable characters on one short line."""
    return _shortened(repr(value))


def json_excerpt(value: object) -> str:
    """Return an :func:`excerpt` of a value of a JSON file, as it stands there."""
    return _shortened(json.dumps(value, ensure_ascii=False))


def _shortened(text: str) -> str:
    text = printable(text)
    return text if len(text) <= 60 else f"{text[:60]}…"


def first_line(text: str) -> str:
    """Return the first line of a text that is not blank, without white space around it."""
    lines = text.strip().splitlines()
    return lines[0].rstrip() if lines else ""


def cut(text: str, longest: int) -> str:
    """Return a printable text; one longer than ``longest`` characters is cut, with its length."""
    text = printable_lines(text)
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text):,} characters)"


def escaped(text: str) -> str:
    """Return untrusted text on one line with Markdown, HTML, mathematics (of GitHub) and automatic links escaped."""
    plain = html.escape(printable(" ".join(text.split())), quote=False)
    plain = re.sub(r"([\\`*_|\[\]~#]|(?<=www)\.)", r"\\\1", plain, flags=re.IGNORECASE)
    return re.sub(r":(?=\S)|[@$]", lambda sign: f"&#{ord(sign[0])};", plain)


def number(value: float, form: str = ".3f") -> str:
    """Format a metric's value; an infinite one, a breaking temperature beyond the grid, is "unbroken".

    Halves are rounded away from zero, like ``toFixed`` in a page; Python's ``format`` would give 0.062 for 0.0625. A
    value that rounds to zero has no sign.

    >>> number(0.654527), number(0.0625), number(-0.0001), number(0.125, ".0%"), number(float("inf"))
    ('0.655', '0.063', '0.000', '13 %', 'unbroken')
    """
    if math.isnan(value):
        return "undefined"
    if math.isinf(value):
        return "unbroken"
    if form.endswith("g"):  # significant digits: nothing rounds to zero, and no page has such a form
        return format(value, form)
    with localcontext(rounding=ROUND_HALF_UP):
        return format(Decimal(float(value)), form.replace(".", "z.", 1)).replace("%", " %")


def signed(value: float) -> str:
    """Format a difference of metrics, with its sign unless it rounds to zero.

    >>> signed(0.25), signed(-0.25), signed(-0.0001)
    ('+0.250', '-0.250', '0.000')
    """
    text = number(value)
    return f"+{text}" if float(text) > 0 else text


_LISTED = 5
"""Number of names in a list that is abbreviated."""


def enumerated(names: Iterable[str], conjunction: str = "or") -> str:
    """Return the names as an enumeration.

    >>> enumerated(["exact_match", "contains", "none"]), enumerated(["none"], "and")
    ('exact_match, contains or none', 'none')
    """
    *first, last = names
    return f"{', '.join(first)} {conjunction} {last}" if first else last


def nearest(name: str, names: Sequence[str], where: str = "") -> str:
    """Return " (did you mean NAME?)" with the most similar of the names, or one that begins with ``name``; empty if
    there is none.
    """
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    close = close or [each for each in names if name and each.startswith(name)]
    return f" (did you mean {where + '.' if where else ''}{close[0]}?)" if close else ""


def counted(count: int, noun: str) -> str:
    """Return a count with its noun.

    >>> counted(1, "rewrite"), counted(2000, "rewrite")
    ('1 rewrite', '2,000 rewrites')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def abbreviated_list(names: Iterable[str]) -> str:
    """Return the first few names in alphabetical order, and the number of others.

    >>> abbreviated_list(["b", "a"]), abbreviated_list("gfedcba")
    ('a, b', 'a, b, c, d, e and 2 more')
    """
    ordered = sorted(names)
    more = len(ordered) - _LISTED
    return ", ".join(ordered[:_LISTED]) + (f" and {more} more" if more > 0 else "")


def duration(seconds: float) -> str:
    """Format a duration as text, rounded up.

    >>> duration(30), duration(5400), duration(200_000)
    ('30 s', '1 h 30 min', '55 h 34 min')
    """
    if seconds < 60:
        return f"{math.ceil(seconds)} s"
    hours, minutes = divmod(math.ceil(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def cost_bound(dollars: float) -> str:
    """Format an upper bound of a cost in US dollars, rounded up: a request with a price does not cost 0.

    >>> cost_bound(0), cost_bound(4e-10), cost_bound(0.3), cost_bound(1.0000000004), cost_bound(1234.5678)
    ('0.000', '0.001', '0.300', '1.001', '1,234.568')
    """
    with localcontext(rounding=ROUND_CEILING):
        return f"{Decimal(str(dollars)):,.3f}"


_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^a-zA-Z0-9]+")
"""End of a word of a name: ``x-api-key``, ``X_API_KEY`` and ``xApiKey`` have the same three words."""
_SECRETS = frozenset(
    (
        *("apikey", "apitoken", "accesskey", "accesstoken", "auth", "authorization", "bearer", "cookie", "credential"),
        *("credentials", "jwt", "passphrase", "passwd", "password", "pwd", "secret"),
    )
)
"""Words that make any name that of a secret."""
_KEYS = frozenset(
    ("access", "account", "api", "auth", "encryption", "master", "private", "service", "signing", "subscription")
)
"""Words after which ``key`` is a secret, unlike in ``prompt_cache_key``."""
_MARKS = frozenset(
    (
        *("bos", "cls", "end", "eos", "first", "image", "last", "mask", "max", "min", "next", "pad", "per", "sep"),
        *("special", "start", "stop", "think", "unk"),
    )
)
"""Words after which ``token`` is a piece of text, or their number."""


def secret_setting(settings: Any, path: str = "") -> str | None:
    """Return the first setting, at any depth, with a text under the name of a secret; None without one.

    >>> secret_setting({"max_tokens": 5, "headers": {"X-Api-Key": "abc"}})
    'headers.X-Api-Key'
    """
    entries = settings.items() if isinstance(settings, Mapping) else enumerate(settings)
    for name, value in entries:
        setting = f"{path}{name}"
        texts = value if isinstance(value, list) else [value]
        if _names_a_secret(str(name)) and any(isinstance(text, str) and text for text in texts):
            return setting
        if isinstance(value, Mapping | list) and (nested := secret_setting(value, f"{setting}.")):
            return nested
    return None


def _names_a_secret(name: str) -> bool:
    words = [word.lower() for word in _WORD.split(name) if word]
    if not words:
        return False
    *_, before, last = ["", *words]
    return (
        not _SECRETS.isdisjoint(words)
        or (last == "key" and before in _KEYS)
        or (last == "token" and before not in _MARKS)
    )


def holds_password(address: str) -> bool:
    """Return True if an address has a password, a user name for a web server, or a secret in its query.

    >>> holds_password("https://me:abc@host/path"), holds_password("postgresql://me@host/runs")
    (True, False)
    """
    try:
        url = urlsplit(address)
    except ValueError:  # of an invalid address, which its user reports
        return False
    query = (entry.partition("=") for entry in url.query.split("&"))
    user = url.password or (url.username and url.scheme in ("http", "https"))
    return bool(user) or any(value and _names_a_secret(name) for name, _, value in query)


def packed(data: Any) -> str:
    """Return data for a page, as compressed JSON in base64."""
    return compressed(json.dumps(data, ensure_ascii=False, separators=(",", ":")))


def compressed(text: str) -> str:
    """Return a text for a page as gzip in base64, which cannot end the HTML element around it."""
    return base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), 6, mtime=0)).decode("ascii")
