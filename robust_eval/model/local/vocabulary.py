"""What an answer needs to know of each token: whether it ends the answer, and what it writes."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from robust_eval.model.token_texts import Ids, Mask, TokenTexts


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a model as the parts of answers.

    ``ends`` (V,) are the tokens that end an answer wherever they stand: end-of-text tokens and, in plain text, those
    with a line break. ``carries`` (V,) are those that carry text of the answer (before its line break, if they have
    one). An answer also ends before any of the strings ``stop``; and where ``first_line`` is set, in a conversation,
    after its first line that is not blank. ``read_texts`` gives what the tokens write, and is called if that is needed.
    """

    ends: Mask
    carries: Mask
    read_texts: Callable[[], TokenTexts]
    stop: tuple[bytes, ...] = ()
    first_line: bool = False

    @cached_property
    def texts(self) -> TokenTexts:
        return self.read_texts()

    @cached_property
    def end_ids(self) -> Ids:
        return np.flatnonzero(self.ends)

    @cached_property
    def _first_line_ends(self) -> tuple[Ids, Ids]:
        """The tokens that end an answer that is blank so far, and one that is not, where its first line ends it."""
        breaks = np.flatnonzero(self.texts.breaks_line)
        something = [bool(self.texts.raw[token].split(b"\n", 1)[0].strip()) for token in breaks]
        return np.union1d(self.end_ids, breaks[np.array(something, dtype=bool)]), np.union1d(self.end_ids, breaks)

    def ending(self, text: bytes) -> Ids:
        """Return the tokens that end an answer that began with ``text``, ascending."""
        ids = self._first_line_ends[bool(text.strip())] if self.first_line else self.end_ids
        return np.union1d(ids, self.stopping(text)) if self.stop else ids

    def stopping(self, text: bytes) -> Ids:
        """Return the tokens with which a stop string appears in an answer that began with ``text``."""
        found = set(self._with_stop)
        for begun, tokens in self._completing.items():
            if text.endswith(begun):
                found.update(tokens)
        return np.array(sorted(found), dtype=np.intp)

    @cached_property
    def _with_stop(self) -> list[int]:
        """The tokens that hold a whole stop string."""
        return [token for token, raw in enumerate(self.texts.raw) if any(stop in raw for stop in self.stop)]

    @cached_property
    def _completing(self) -> dict[bytes, list[int]]:
        """For each beginning of a stop string, the tokens that begin with the rest of it."""
        completing: dict[bytes, list[int]] = {}
        for stop in self.stop:
            for done in range(1, len(stop)):
                rest = stop[done:]
                tokens = [token for token, raw in enumerate(self.texts.raw) if raw.startswith(rest)]
                completing.setdefault(stop[:done], []).extend(tokens)
        return completing

    def answer(self, text: bytes) -> bytes:
        """Return what a reply answers: its first line (of a conversation: that is not blank), up to a stop string."""
        for stop in self.stop:
            text = text.split(stop, 1)[0]
        if self.first_line:
            text = text.lstrip()
        return text.split(b"\n", 1)[0].strip()
