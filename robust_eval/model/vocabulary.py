"""What an answer needs to know of each token: whether it ends the answer, and what it writes."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from torch import Tensor

from robust_eval.model.token_texts import Ids, TokenTexts


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a model as the parts of answers.

    ``ends`` (V,) are the tokens that end an answer wherever they stand: end-of-text tokens and, in plain text, those
    with a line break. ``carries`` (V,) are those that carry text of the answer (before its line break, if they have
    one). An answer also ends before any of the strings ``stop``; and where ``first_line`` is set, in a conversation,
    after its first line that is not blank. ``read_texts`` gives what the tokens write, and is called if that is needed.
    """

    ends: Tensor
    carries: Tensor
    read_texts: Callable[[], TokenTexts]
    stop: tuple[bytes, ...] = ()
    first_line: bool = False

    @cached_property
    def texts(self) -> TokenTexts:
        return self.read_texts()

    @cached_property
    def end_ids(self) -> Ids:
        return np.flatnonzero(self.ends.cpu().numpy())

    @cached_property
    def _line_ids(self) -> tuple[Ids, Ids]:
        """Tokens with a line break: all of them, and those with something before it."""
        breaks = np.flatnonzero(self.texts.breaks_line)
        something = [bool(self.texts.raw[token].split(b"\n", 1)[0].strip()) for token in breaks]
        return breaks, breaks[np.array(something, dtype=bool)]

    def ending(self, text: bytes) -> Ids:
        """The tokens that end an answer that began with ``text``, ascending."""
        ids = self.end_ids
        if self.first_line:
            every, with_text = self._line_ids
            ids = np.union1d(ids, every if text.strip() else with_text)
        return np.union1d(ids, self.stopping(text)) if self.stop else ids

    def stopping(self, text: bytes) -> Ids:
        """The tokens with which a stop string appears in an answer that began with ``text``."""
        found = {token for stop in self.stop for token in self._completing(text, stop)}
        return np.array(sorted(found), dtype=np.intp)

    def _completing(self, text: bytes, stop: bytes) -> list[int]:
        tokens = {token for token, raw in enumerate(self.texts.raw) if stop in raw}
        for done in range(1, len(stop)):
            if text.endswith(stop[:done]):
                rest = stop[done:]
                tokens.update(token for token, raw in enumerate(self.texts.raw) if raw.startswith(rest))
        return sorted(tokens)

    def answer(self, text: bytes) -> bytes:
        """What a reply answers: its first line (of a conversation: that is not blank), up to a stop string."""
        for stop in self.stop:
            text = text.split(stop, 1)[0]
        if self.first_line:
            text = text.lstrip()
        return text.split(b"\n", 1)[0].strip()
