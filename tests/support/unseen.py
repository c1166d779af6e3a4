"""Characters that must not reach a terminal, a log, a page or Markdown, and what may hold them."""

import sys
import unicodedata
from pathlib import Path

HOSTILE = "".join(
    [
        *map(chr, [*range(0x20), *range(0x7F, 0xA0)]),  # C0, DEL, C1
        *("\u2028", "\u2029"),
        *("\u061c", "\u200e", "\u200f", "\u202a", "\u202b", "\u202c", "\u202d", "\u202e"),
        *("\u2066", "\u2067", "\u2068", "\u2069", "\u200b", "\ufeff", "\xad", "\U000e0041"),
    ]
).replace("\n", "")
"""One line of them, as a server may send it."""
SEQUENCES = "\x1b[2J\x1b]0;owned\x07\x9b31m"
"""Clear the screen, rename the window, go on in red."""
OF_SCRIPTS = {"\u200c", "\u200d"}
"""Format characters without which some languages are misspelt; they move and hide nothing."""
_UNSEEN = {
    chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) in ("Cc", "Cf", "Cs", "Zl", "Zp")
} - {"\n", "\t", *OF_SCRIPTS}


def unseen(text: str) -> set[str]:
    """The names of those characters in a text that are not seen."""
    return {f"U+{ord(character):04X}" for character in _UNSEEN & set(text)}


def unseen_in(folder: Path, *kinds: str) -> dict[str, set[str]]:
    """The files of these kinds that hold some, each with which."""
    files = [file for file in sorted(folder.rglob("*")) if file.suffix in kinds]
    assert {file.suffix for file in files} == set(kinds)
    found = {str(file.relative_to(folder)): unseen(file.read_bytes().decode()) for file in files}
    return {name: characters for name, characters in found.items() if characters}
